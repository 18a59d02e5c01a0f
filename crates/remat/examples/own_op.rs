//! A network with an op of its own: `y = x / (1 + |x|)`, planned, recomputed and checked like the ops of the crate.
//! Run it with `cargo run --release --example own_op`.

use remat::graph::{Builder, Type};
use remat::ids::ValueId;
use remat::op::{Cost, Example, GradArgs, Io, NaiveIo, OpDef};
use remat::prelude::*;

#[derive(Clone, PartialEq, Debug, remat::serde::Serialize)]
#[serde(crate = "remat::serde")]
struct Softsign;

/// `dx = dy / (1 + |x|)²`.
#[derive(Clone, PartialEq, Debug, remat::serde::Serialize)]
#[serde(crate = "remat::serde")]
struct SoftsignGrad;

impl OpDef for Softsign {
    fn name() -> &'static str {
        "softsign"
    }
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() == 1 { Ok(vec![x[0].clone()]) } else { Err(format!("takes one input, got {}", x.len())) }
    }
    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }
    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> remat::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(SoftsignGrad, &[args.x[0], args.dy0()])?)])
    }
    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 3)
    }
    fn run(&self, io: &mut Io<'_>) {
        let x = io.f32(0);
        io.out(0).iter_mut().zip(x).for_each(|(y, x)| *y = x / (1.0 + x.abs()));
    }
    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().map(|x| x / (1.0 + x.abs())).collect()]
    }
    fn examples() -> Vec<Example> {
        vec![Example::normal(Softsign, &[&[3, 37]])]
    }
}

impl OpDef for SoftsignGrad {
    fn name() -> &'static str {
        "softsign_grad"
    }
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() == 2 { Ok(vec![x[0].clone()]) } else { Err(format!("takes two inputs, got {}", x.len())) }
    }
    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 4)
    }
    fn run(&self, io: &mut Io<'_>) {
        let (x, dy) = (io.f32(0), io.f32(1));
        for ((dx, x), dy) in io.out(0).iter_mut().zip(x).zip(dy) {
            *dx = dy / ((1.0 + x.abs()) * (1.0 + x.abs()));
        }
    }
    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().zip(io.x[1]).map(|(x, dy)| dy / (1.0 + x.abs()).powi(2)).collect()]
    }
    fn examples() -> Vec<Example> {
        vec![Example::normal(SoftsignGrad, &[&[3, 37], &[3, 37]])]
    }
}

fn main() -> remat::Result<()> {
    remat::testing::check_op::<Softsign>();
    remat::testing::check_op::<SoftsignGrad>();
    let model = Model::build("softsign", |g| {
        let mut h = g.input("input", [256, 64]);
        for i in 0..8 {
            h = h.linear(format!("fc{i}"), 64).apply(Softsign);
        }
        h.linear("out", 10).cross_entropy(g.labels("labels", [256], 10))
    })?;
    let mut training = Training::new(model).budget("60%").compile()?;
    println!("{}", training.plan());
    println!("loss after 20 steps: {:.4}", training.run(20)?.loss);
    Ok(())
}
