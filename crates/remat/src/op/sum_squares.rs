//! The sum of squares of a gradient, for the norm that clipping needs.

use super::{Cost, Example, Io, NaiveIo, OpDef, expect_float, expect_inputs};
use crate::graph::Type;
use remat_kernels::{gradient as kernels, naive::gradient as naive};

/// `y = Σ x²`. Only the last micro-batch of a step clips; before it the sum is not taken, and is zero.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SumSquares {}

impl OpDef for SumSquares {
    fn name() -> &'static str {
        "sum_squares"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![Type::scalar()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 2)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::sum_squares_workspace(x[0].numel()) as u64
    }

    fn run(&self, io: &mut Io<'_>) {
        let is_needed = io.run().micro.is_last();
        io.out(0)[0] = if is_needed { kernels::sum_squares(io.f32(0), io.workspace()) } else { 0.0 };
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![vec![if io.run.micro.is_last() { naive::sum_squares(io.x[0]) } else { 0.0 }]]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(SumSquares {}, &[&[3, 37]]), Example::normal(SumSquares {}, &[&[40_000]])]
    }
}
