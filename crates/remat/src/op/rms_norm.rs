//! Root-mean-square normalisation over the last dimension.

use super::layer_norm::{grad_cost, grad_rows_type, rows_type};
use super::{
    Calibration, Case, Cost, Example, Fill, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_same,
    expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive::norm as naive, rms_norm as kernels};

/// `y = x rstd weight` with `rstd = 1 / sqrt(mean(x²) + eps)` of each row of `x: [.., C]`; inputs `x` and `weight: [C]`,
/// outputs `y` and `rstd`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

impl OpDef for RmsNorm {
    fn name() -> &'static str {
        "rms_norm"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let rows = rows_type(x[0])?;
        expect_shape("weight", x[1], &[x[0].last()])?;
        Ok(vec![x[0].clone(), rows])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let inputs = [args.x[0], args.dy0(), args.x[1], args.y[1]];
        Ok(b.add_all(RmsNormGrad {}, &inputs)?.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 4)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(RmsNorm { eps: 1e-5 }, &[&[rows, columns], &[columns]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::forward(io.src(0), io.f32(1), self.eps, io.dst(0), io.out(1));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let eps = f64::from(self.eps);
        vec![naive::rms_norm(io.x[0], io.x[1], eps), naive::rms_stats(io.x[0], io.x[1].len(), eps)]
    }

    fn examples() -> Vec<Example> {
        let op = RmsNorm { eps: 1e-6 };
        vec![
            Example::normal(op, &[&[2, 3, 5], &[5]]),
            Example::normal(op, &[&[2, 70], &[70]]),
            Example::normal(op, &[&[4], &[4]]),
        ]
    }
}

/// Gradients of [`RmsNorm`], both in one node because they share the normalised input.
///
/// Inputs `x`, `dy`, `weight` and `rstd`; outputs `dx` and `dweight`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RmsNormGrad {}

impl OpDef for RmsNormGrad {
    fn name() -> &'static str {
        "rms_norm_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 4)?;
        let rows = grad_rows_type(x)?;
        expect_same("inverse root mean square and rows of x", x[3], &rows)?;
        Ok(vec![x[0].clone(), x[2].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        grad_cost(x, y, 12)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::grad_workspace(x[0].rows(), x[0].last()) as u64
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(RmsNormGrad {}, &[&[rows, columns], &[rows, columns], &[columns], &[rows]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, dy, weight, rstd) = (io.src(0), io.src(1), io.f32(2), io.f32(3));
        kernels::grad(x, dy, weight, rstd, io.dst(0), io.out(1), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (dx, dweight) = naive::rms_norm_grad(io.x[0], io.x[1], io.x[2], io.x[3]);
        vec![dx, dweight]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], rows: &[usize], cols: usize| {
            let shapes: [&[usize]; 4] = [shape, shape, &[cols], rows];
            Example::normal(RmsNormGrad {}, &shapes).fill(3, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 3, 5], &[2, 3], 5), example(&[4, 70], &[4], 70)]
    }
}
