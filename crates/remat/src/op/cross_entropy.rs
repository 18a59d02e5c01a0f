//! Cross-entropy of logits with labels, averaged.

use super::{
    Cost, Example, GradArgs, Io, NaiveIo, OpDef, Prediction, expect_float, expect_inputs, expect_ints,
    expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{loss as kernels, naive::loss as naive};

/// The mean of `ln Σ e^logits - logit[label]` over the rows; inputs `logits: [.., V]` and `labels: [..]`, outputs the loss
/// and per row `lse = ln Σ e^logits`.
///
/// A negative label marks a row to ignore, as -100 does in PyTorch.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct CrossEntropy {}

impl OpDef for CrossEntropy {
    fn name() -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let lse = expect_logits(x[0], x[1])?;
        Ok(vec![Type::scalar(), lse])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let inputs = [args.x[0], args.x[1], args.y[1], args.dy0()];
        Ok(vec![Some(b.add(CrossEntropyGrad {}, &inputs)?), None])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 25)
    }

    fn prediction(&self, _n_inputs: usize) -> Option<Prediction> {
        Some(Prediction { op: None, inputs: vec![0], labels: Some(1) })
    }

    fn run(&self, io: &mut Io<'_>) {
        let loss = kernels::cross_entropy(io.f32(0), io.i32(1), io.out(1));
        io.out(0)[0] = loss;
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (loss, lse) = naive::cross_entropy(io.x[0], &io.whole_numbers(1));
        vec![vec![loss], lse]
    }

    fn examples() -> Vec<Example> {
        let example = |logits: &[usize], labels: &[usize]| {
            let labels = Type::i32(labels).expect("a small shape");
            let n_labels = logits[logits.len() - 1];
            Example::normal(CrossEntropy {}, &[logits, &[]]).ints(1, labels, n_labels)
        };
        vec![example(&[3, 7], &[3]), example(&[2, 3, 5], &[2, 3]), example(&[2, 67], &[2])]
    }
}

/// `dlogits = (e^(logits - lse) - one-hot) dloss / (rows with a label)`; inputs `logits`, `labels`, `lse` and `dloss`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct CrossEntropyGrad {}

impl OpDef for CrossEntropyGrad {
    fn name() -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 4)?;
        let lse = expect_logits(x[0], x[1])?;
        expect_shape("lse", x[2], lse.shape())?;
        expect_shape("dloss", x[3], &[])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 20)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::cross_entropy_grad(io.src(0), io.i32(1), io.f32(2), io.f32(3)[0], io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::cross_entropy_grad(io.x[0], &io.whole_numbers(1), io.x[2], io.x[3][0])]
    }

    fn examples() -> Vec<Example> {
        let labels = Type::i32(&[3]).expect("a small shape");
        vec![Example::normal(CrossEntropyGrad {}, &[&[3, 67], &[], &[3], &[]]).ints(1, labels, 67)]
    }
}

/// Checks logits against labels and returns the type of one float per row.
pub(super) fn expect_logits(logits: &Type, labels: &Type) -> Result<Type, String> {
    expect_float("logits", logits)?;
    expect_ints("labels", labels)?;
    match logits.shape().split_last() {
        Some((1.., rows)) if rows == labels.shape() => Type::f32(rows).map_err(|e| e.to_string()),
        _ => Err(format!("logits must be a row for every label, got {logits} for {labels}")),
    }
}
