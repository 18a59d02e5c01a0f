//! Sums over leading dimensions: gradients of biases and of whatever was repeated.

use super::{Calibration, Case, Cost, Example, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::Type;
use remat_kernels::{naive, sum_rows as kernels};

/// Sums over all but the last `keep` dimensions.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SumRows {
    /// Dimensions that stay.
    pub keep: usize,
}

impl SumRows {
    fn rows_and_cols(&self, x: &Type) -> (usize, usize) {
        let (summed, kept) = x.shape().split_at(x.rank() - self.keep);
        (summed.iter().product(), kept.iter().product())
    }
}

impl OpDef for SumRows {
    fn name() -> &'static str {
        "sum_rows"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        if self.keep > x[0].rank() {
            return Err(format!("cannot keep {} dimensions of {}", self.keep, x[0]));
        }
        let kept = &x[0].shape()[x[0].rank() - self.keep..];
        Ok(vec![Type::f32(kept).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        let (rows, cols) = self.rows_and_cols(x[0]);
        4 * kernels::workspace(rows, cols) as u64
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| Case::floats(SumRows { keep: 1 }, &[&[rows, columns]])))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::sum_rows(io.f32(0), io.out(0), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (rows, cols) = self.rows_and_cols(io.x_types[0]);
        vec![naive::linear::sum_rows(io.x[0], rows, cols)]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(SumRows { keep: 1 }, &[&[7, 5]]),
            Example::normal(SumRows { keep: 2 }, &[&[2, 3, 5]]),
            Example::normal(SumRows { keep: 1 }, &[&[301, 3]]),
        ]
    }
}
