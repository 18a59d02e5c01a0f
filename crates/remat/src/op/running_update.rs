//! The running statistics of batch normalisation, updated once per step by a node of their own.

use super::{
    Cost, Effect, Example, InEvaluation, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same,
};
use crate::graph::Type;
use remat_kernels::{batch_norm as kernels, naive::norm as naive};

/// `new = (1 - momentum) old + momentum correction batch`; inputs are the running statistic and the statistic of the batch.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RunningUpdate {
    /// Weight of the new batch.
    pub momentum: f32,
    /// What the batch's statistic is multiplied with: `n / (n - 1)` makes the variance unbiased.
    pub correction: f32,
}

impl OpDef for RunningUpdate {
    fn name() -> &'static str {
        "running_update"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("the running statistic", x[0])?;
        expect_same("running and batch statistics", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 4)
    }

    fn effect(&self) -> Effect {
        Effect::Update
    }

    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn in_evaluation(&self) -> InEvaluation {
        InEvaluation::Skip
    }

    fn running_statistic(&self) -> Option<(usize, usize)> {
        Some((0, 1))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::running_update(io.src(0), io.src(1), self.momentum, self.correction, io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (momentum, correction) = (f64::from(self.momentum), f64::from(self.correction));
        vec![naive::running_update(io.x[0], io.x[1], momentum, correction)]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(RunningUpdate { momentum: 0.1, correction: 1.25 }, &[&[37], &[37]])]
    }
}
