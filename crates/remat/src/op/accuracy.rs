//! The share of right answers of a classifier, for evaluation.

use super::{Cost, Example, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::Type;
use crate::op::cross_entropy::expect_logits;
use remat_kernels::accuracy as kernels;

/// The share of rows whose largest logit is at the label; inputs `logits: [.., V]` and `labels: [..]`. A negative label
/// marks a row that does not count.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Accuracy {}

impl OpDef for Accuracy {
    fn name() -> &'static str {
        "accuracy"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_logits(x[0], x[1])?;
        Ok(vec![Type::scalar()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn run(&self, io: &mut Io<'_>) {
        io.out(0)[0] = kernels::accuracy(io.f32(0), io.i32(1));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let labels = io.whole_numbers(1);
        let cols = io.x[0].len() / labels.len();
        let is_right = |(row, label): (&[f64], &i32)| {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter().position(|&x| x == largest) == usize::try_from(*label).ok()
        };
        let right = io.x[0].chunks_exact(cols).zip(&labels).filter(|pair| is_right(*pair)).count();
        vec![vec![right as f64 / labels.len() as f64]]
    }

    fn examples() -> Vec<Example> {
        let labels = Type::i32(&[40]).expect("a small shape");
        vec![Example::normal(Accuracy {}, &[&[40, 3], &[]]).ints(1, labels, 3)]
    }
}
