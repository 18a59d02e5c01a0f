//! Batch normalisation in training, over all but the last dimension.

use super::batch_norm_inference::BatchNormInference;
use super::{
    Calibration, Case, Cost, Example, Fill, GradArgs, InEvaluation, Io, NaiveIo, OpDef, expect_float,
    expect_inputs, expect_same, expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{batch_norm as kernels, naive::norm as naive};

/// Normalises every channel of `x: [.., C]` over the batch; inputs `x`, `weight: [C]` and `bias: [C]`, outputs `y`, the
/// batch's mean and its biased variance.
///
/// The running statistics are updated by a node of their own, so this one can be recomputed.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f32,
}

impl OpDef for BatchNorm {
    fn name() -> &'static str {
        "batch_norm"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 3)?;
        expect_normalizable(x[0])?;
        let channels = [x[0].last()];
        expect_shape("weight", x[1], &channels)?;
        expect_shape("bias", x[2], &channels)?;
        Ok(vec![x[0].clone(), x[1].clone(), x[1].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let inputs = [args.x[0], args.dy0(), args.x[1], args.y[1], args.y[2]];
        let gradients = b.add_all(BatchNormGrad { eps: self.eps }, &inputs)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        // The input is read twice: for the statistics, then to be normalised.
        let once = Cost::element_wise(x, y, 7);
        Cost { bytes: once.bytes.saturating_add(x[0].bytes()), ..once }
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::workspace(x[0].rows(), x[0].last()) as u64
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn in_evaluation(&self) -> InEvaluation {
        InEvaluation::Instead { op: BatchNormInference { eps: self.eps }.into(), statistics: &[1, 2] }
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, weight, bias) = (io.src(0), io.f32(1), io.f32(2));
        let (mean, var) = (io.out(1), io.out(2));
        kernels::stats(x, mean, var, io.workspace());
        kernels::apply(x, mean, var, weight, bias, self.eps, io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let y = naive::batch_norm(io.x[0], io.x[1], io.x[2], f64::from(self.eps));
        let (mean, var) = naive::batch_stats(io.x[0], io.x[1].len());
        vec![y, mean, var]
    }

    fn examples() -> Vec<Example> {
        let op = BatchNorm { eps: 1e-5 };
        vec![
            Example::normal(op, &[&[2, 2, 3, 5], &[5], &[5]]),
            Example::normal(op, &[&[7, 1], &[1], &[1]]),
            Example::normal(op, &[&[4, 66], &[66], &[66]]),
        ]
    }
}

/// Gradients of [`BatchNorm`], all three in one node because they share their sums over the batch.
///
/// Inputs `x`, `dy`, `weight`, and the mean and variance of the batch; outputs `dx`, `dweight` and `dbias`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchNormGrad {
    /// As in the forward op.
    pub eps: f32,
}

impl OpDef for BatchNormGrad {
    fn name() -> &'static str {
        "batch_norm_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 5)?;
        expect_normalizable(x[0])?;
        expect_same("x and dy", x[0], x[1])?;
        for (what, ty) in [("weight", x[2]), ("mean", x[3]), ("variance", x[4])] {
            expect_shape(what, ty, &[x[0].last()])?;
        }
        Ok(vec![x[0].clone(), x[2].clone(), x[2].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        grad_cost(x, y, 11)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::workspace(x[0].rows(), x[0].last()) as u64
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(
                BatchNormGrad { eps: 1e-5 },
                &[&[rows, columns], &[rows, columns], &[columns], &[columns], &[columns]],
            )
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, dy, weight, mean, var) = (io.src(0), io.src(1), io.f32(2), io.f32(3), io.f32(4));
        let (dx, dweight, dbias) = (io.dst(0), io.out(1), io.out(2));
        kernels::grad(x, dy, mean, var, weight, self.eps, dx, dweight, dbias, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let &[x, dy, weight, mean, var] = io.x else { unreachable!("the type rule takes five inputs") };
        let (dx, dweight, dbias) = naive::batch_norm_grad(x, dy, weight, (mean, var), f64::from(self.eps));
        vec![dx, dweight, dbias]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], channels: usize| {
            let shapes: [&[usize]; 5] = [shape, shape, &[channels], &[channels], &[channels]];
            Example::normal(BatchNormGrad { eps: 1e-5 }, &shapes).fill(4, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 2, 3, 5], 5), example(&[4, 66], 66)]
    }
}

/// Cost of a gradient: both large inputs are read twice, for the sums and then for the gradient.
pub(super) fn grad_cost(x: &[&Type], y: &[&Type], flops_per_element: u64) -> Cost {
    let once = Cost::element_wise(x, y, flops_per_element);
    Cost { bytes: once.bytes.saturating_add(2 * x[0].bytes()), ..once }
}

/// Fails with a message unless every channel of `x` has more than one value.
pub(super) fn expect_normalizable(x: &Type) -> Result<(), String> {
    expect_float("x", x)?;
    let rows = if x.numel() == 0 { 0 } else { x.rows() };
    if rows < 2 {
        return Err(format!("training needs more than one value per channel, got {x}"));
    }
    Ok(())
}
