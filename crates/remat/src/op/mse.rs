//! The mean squared error.

use super::{
    Cost, Example, GradArgs, Io, NaiveIo, OpDef, Prediction, expect_float, expect_inputs, expect_same,
    expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{loss as kernels, naive::loss as naive};

/// The mean of `(x - target)²`, a scalar.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mse {}

impl OpDef for Mse {
    fn name() -> &'static str {
        "mse"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("x", x[0])?;
        expect_same("x and target", x[0], x[1])?;
        if x[0].numel() == 0 {
            return Err(format!("there is nothing to average in {}", x[0]));
        }
        Ok(vec![Type::scalar()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let dloss = args.dy0();
        let mut gradient = |of: usize, other: usize| {
            let inputs = [args.x[of], args.x[other], dloss];
            args.wants[of].then(|| b.add(MseGrad {}, &inputs)).transpose()
        };
        Ok(vec![gradient(0, 1)?, gradient(1, 0)?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 3)
    }

    fn prediction(&self, _n_inputs: usize) -> Option<Prediction> {
        Some(Prediction { op: None, inputs: vec![0], labels: None })
    }

    fn run(&self, io: &mut Io<'_>) {
        io.out(0)[0] = kernels::mse(io.f32(0), io.f32(1));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![vec![naive::mse(io.x[0], io.x[1])]]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Mse {}, &[&[3, 37], &[3, 37]])]
    }
}

/// `dx = 2 (x - target) dloss / n`; inputs `x`, `target` and `dloss`. With `x` and `target` swapped it is the gradient of
/// the target.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct MseGrad {}

impl OpDef for MseGrad {
    fn name() -> &'static str {
        "mse_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 3)?;
        expect_float("x", x[0])?;
        expect_same("x and target", x[0], x[1])?;
        expect_shape("dloss", x[2], &[])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 2)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0), (1, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        let mut dloss = [0.0];
        // A tensor of one element may share its storage with the gradient that is written.
        io.src(2).read(0, &mut dloss);
        kernels::mse_grad(io.src(0), io.src(1), dloss[0], io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::mse_grad(io.x[0], io.x[1], io.x[2][0])]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(MseGrad {}, &[&[3, 37], &[3, 37], &[]])]
    }
}
