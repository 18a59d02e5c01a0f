//! Batch normalisation in two nodes: the statistics, and the element-wise rest that can be fused and run again
//! cheaply; and the gradient of both together with the ReLU that often follows.
//!
//! Fusion (`crates/remat/src/fuse/`) puts them in the place of [`BatchNorm`](super::batch_norm::BatchNorm) after
//! autodiff, so they need no gradients. A recompute of the normalised values then reads the kept statistics (a few
//! kilobytes) instead of making them again.

use super::batch_norm::{expect_normalizable, grad_cost};
use super::{
    Calibration, Case, Cost, ElementWise, Example, Fill, Io, NaiveIo, OpDef, Run, expect_inputs, expect_same,
    expect_shape,
};
use crate::graph::Type;
use remat_kernels::fused_batch_norm::{Channels, relu_grad};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{batch_norm as kernels, fused, naive::norm as naive};

/// Mean and biased variance of every channel of `x: [.., C]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchStats {}

impl OpDef for BatchStats {
    fn name() -> &'static str {
        "batch_stats"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_normalizable(x[0])?;
        let channels = Type::f32(&[x[0].last()]).map_err(|e| e.to_string())?;
        Ok(vec![channels.clone(), channels])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 3)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::workspace(x[0].rows(), x[0].last()) as u64
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| Case::floats(BatchStats {}, &[&[rows, columns]])))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, mean, var) = (io.src(0), io.out(0), io.out(1));
        kernels::stats(x, mean, var, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (mean, var) = naive::batch_stats(io.x[0], io.x_types[0].last());
        vec![mean, var]
    }

    fn examples() -> Vec<Example> {
        [&[2, 2, 3, 5][..], &[7, 1], &[4, 66]].map(|shape| Example::normal(BatchStats {}, &[shape])).into()
    }
}

/// `y = (x - mean) / sqrt(var + eps) * weight + bias`; inputs `x: [.., C]`, `mean`, `var`, `weight` and `bias`, all
/// `[C]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchNormApply {
    /// Added to the variance.
    pub eps: f32,
}

impl ElementWise for BatchNormApply {
    fn table_len(&self, x: &[&Type]) -> usize {
        x[0].last()
    }

    fn fill_table(&self, x: &[Src<'_>], table: &mut [f32]) {
        kernels::scales(x[2], x[3], self.eps, table);
    }

    fn compute(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        let &[x, mean, _, _, bias, scale] = x else { unreachable!("five inputs and the table") };
        fused::normalise(x, [mean, scale, bias], y);
    }
}

impl OpDef for BatchNormApply {
    fn name() -> &'static str {
        "batch_norm_apply"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 5)?;
        expect_normalizable(x[0])?;
        for (what, ty) in ["mean", "variance", "weight", "bias"].into_iter().zip(&x[1..]) {
            expect_shape(what, ty, &[x[0].last()])?;
        }
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 3)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn element_wise(&self) -> Option<&dyn ElementWise> {
        Some(self)
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(
                BatchNormApply { eps: 1e-5 },
                &[&[rows, columns], &[columns], &[columns], &[columns], &[columns]],
            )
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, mean, var, weight, bias) = (io.src(0), io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        kernels::apply(x, mean, var, weight, bias, self.eps, io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let &[x, mean, var, weight, bias] = io.x else { unreachable!("the type rule takes five inputs") };
        let normalised = |(i, x): (usize, &f64)| {
            let c = i % mean.len();
            (x - mean[c]) / (var[c] + f64::from(self.eps)).sqrt() * weight[c] + bias[c]
        };
        vec![x.iter().enumerate().map(normalised).collect()]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], channels: usize| {
            let shapes: [&[usize]; 5] = [shape, &[channels], &[channels], &[channels], &[channels]];
            Example::normal(BatchNormApply { eps: 1e-5 }, &shapes).fill(2, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 2, 3, 5], 5), example(&[4, 66], 66)]
    }
}

/// Gradients of `relu(batch_norm(x))` from the gradient of its output, `dz`.
///
/// Inputs `x`, `dz`, `weight`, `bias`, and the mean and variance of the batch; outputs `dx`, `dweight` and `dbias`.
/// Where the ReLU was on follows from `x`, so its output need not be kept.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchNormReluGrad {
    /// As in the forward op.
    pub eps: f32,
}

impl OpDef for BatchNormReluGrad {
    fn name() -> &'static str {
        "batch_norm_relu_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 6)?;
        expect_normalizable(x[0])?;
        expect_same("x and dz", x[0], x[1])?;
        for (what, ty) in ["weight", "bias", "mean", "variance"].into_iter().zip(&x[2..]) {
            expect_shape(what, ty, &[x[0].last()])?;
        }
        Ok(vec![x[0].clone(), x[2].clone(), x[2].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        grad_cost(x, y, 15)
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
                BatchNormReluGrad { eps: 1e-5 },
                &[&[rows, columns], &[rows, columns], &[columns], &[columns], &[columns], &[columns]],
            )
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (weight, bias, mean, var) = (io.f32(2), io.f32(3), io.f32(4), io.f32(5));
        let channels = Channels { mean, var, weight, bias, eps: self.eps };
        let (dx, dweight, dbias) = (io.dst(0), io.out(1), io.out(2));
        relu_grad(io.src(0), io.src(1), channels, dx, dweight, dbias, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let &[x, dz, weight, bias, mean, var] = io.x else { unreachable!("the type rule takes six inputs") };
        let apply = BatchNormApply { eps: self.eps };
        let y = apply.naive(&NaiveIo { x: &[x, mean, var, weight, bias], ..*io }).remove(0);
        let dy: Vec<f64> = y.iter().zip(dz).map(|(&y, &dz)| if y > 0.0 { dz } else { 0.0 }).collect();
        let (dx, dweight, dbias) = naive::batch_norm_grad(x, &dy, weight, (mean, var), f64::from(self.eps));
        vec![dx, dweight, dbias]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], channels: usize| {
            let row: &[usize] = &[channels];
            let shapes: [&[usize]; 6] = [shape, shape, row, row, row, row];
            Example::normal(BatchNormReluGrad { eps: 1e-5 }, &shapes).fill(5, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 2, 3, 5], 5), example(&[4, 66], 66)]
    }
}
