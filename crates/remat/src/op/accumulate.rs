//! Gradients summed over the micro-batches of a step: the sum is state, replaced at every micro-batch.

use super::{Cost, Effect, Example, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::Type;
use remat_kernels::{gradient as kernels, naive::gradient as naive};

/// `sum' = sum + gradient / n` for `n` micro-batches; the first of them begins from zero. After the last, the sum is the
/// gradient of the mean loss. Inputs: the old sum and the gradient.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Accumulate {}

impl OpDef for Accumulate {
    fn name() -> &'static str {
        "accumulate"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("the sum", x[0])?;
        expect_same("sum and gradient", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 2)
    }

    fn effect(&self) -> Effect {
        Effect::Update
    }

    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        let micro = io.run().micro;
        let factor = (1.0 / micro.count as f64) as f32;
        kernels::accumulate(io.src(0), io.src(1), factor, micro.is_first(), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let micro = io.run.micro;
        vec![naive::accumulate(io.x[0], io.x[1], 1.0 / micro.count as f64, micro.is_first())]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Accumulate {}, &[&[3, 37], &[3, 37]])]
    }
}
