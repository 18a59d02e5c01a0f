//! Layer normalisation over the last dimension.

use super::{
    Calibration, Case, Cost, Example, Fill, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs,
    expect_same, expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{layer_norm as kernels, naive::norm as naive};

/// Normalises every row of `x: [.., C]`; inputs `x`, `weight: [C]` and `bias: [C]`, outputs `y` and per row the mean and
/// the inverse deviation.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
}

impl OpDef for LayerNorm {
    fn name() -> &'static str {
        "layer_norm"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 3)?;
        let rows = rows_type(x[0])?;
        expect_shape("weight", x[1], &[x[0].last()])?;
        expect_shape("bias", x[2], &[x[0].last()])?;
        Ok(vec![x[0].clone(), rows.clone(), rows])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let inputs = [args.x[0], args.dy0(), args.x[1], args.y[1], args.y[2]];
        Ok(b.add_all(LayerNormGrad {}, &inputs)?.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 7)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(LayerNorm { eps: 1e-5 }, &[&[rows, columns], &[columns], &[columns]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, weight, bias) = (io.src(0), io.f32(1), io.f32(2));
        kernels::forward(x, weight, bias, self.eps, io.dst(0), io.out(1), io.out(2));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let eps = f64::from(self.eps);
        let (mean, rstd) = naive::layer_stats(io.x[0], io.x[1].len(), eps);
        vec![naive::layer_norm(io.x[0], io.x[1], io.x[2], eps), mean, rstd]
    }

    fn examples() -> Vec<Example> {
        let op = LayerNorm { eps: 1e-5 };
        vec![
            Example::normal(op, &[&[2, 3, 5], &[5], &[5]]),
            Example::normal(op, &[&[2, 70], &[70], &[70]]),
            Example::normal(op, &[&[4], &[4], &[4]]),
        ]
    }
}

/// Gradients of [`LayerNorm`], all three in one node because they share the normalised input.
///
/// Inputs `x`, `dy`, `weight`, and per row the mean and the inverse deviation; outputs `dx`, `dweight` and `dbias`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LayerNormGrad {}

impl OpDef for LayerNormGrad {
    fn name() -> &'static str {
        "layer_norm_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 5)?;
        let rows = grad_rows_type(x)?;
        expect_same("mean and rows of x", x[3], &rows)?;
        expect_same("inverse deviation and rows of x", x[4], &rows)?;
        Ok(vec![x[0].clone(), x[2].clone(), x[2].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        grad_cost(x, y, 16)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * kernels::grad_workspace(x[0].rows(), x[0].last()) as u64
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(
                LayerNormGrad {},
                &[&[rows, columns], &[rows, columns], &[columns], &[rows], &[rows]],
            )
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let (x, dy, weight, mean, rstd) = (io.src(0), io.src(1), io.f32(2), io.f32(3), io.f32(4));
        let (dx, dweight, dbias) = (io.dst(0), io.out(1), io.out(2));
        kernels::grad(x, dy, weight, mean, rstd, dx, dweight, dbias, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let &[x, dy, weight, mean, rstd] = io.x else { unreachable!("the type rule takes five inputs") };
        let (dx, dweight, dbias) = naive::layer_norm_grad(x, dy, weight, (mean, rstd));
        vec![dx, dweight, dbias]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], rows: &[usize], cols: usize| {
            let shapes: [&[usize]; 5] = [shape, shape, &[cols], rows, rows];
            Example::normal(LayerNormGrad {}, &shapes).fill(4, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 3, 5], &[2, 3], 5), example(&[4, 70], &[4], 70)]
    }
}

/// What the gradients of layer norm and RMS norm demand of `x`, `dy` and the weight, their first inputs; returns the type
/// of the numbers per row that follow.
pub(super) fn grad_rows_type(x: &[&Type]) -> Result<Type, String> {
    let rows = rows_type(x[0])?;
    expect_same("x and dy", x[0], x[1])?;
    expect_shape("weight", x[2], &[x[0].last()])?;
    Ok(rows)
}

/// The cost of either gradient: both large inputs are read twice, for the columns' sums, then row by row.
pub(super) fn grad_cost(x: &[&Type], y: &[&Type], flops_per_element: u64) -> Cost {
    let once = Cost::element_wise(x, y, flops_per_element);
    Cost { bytes: once.bytes.saturating_add(2 * x[0].bytes()), ..once }
}

/// One number for each row of `x`, which must be a float tensor with a last dimension to normalise.
pub(super) fn rows_type(x: &Type) -> Result<Type, String> {
    expect_float("x", x)?;
    match x.shape().split_last() {
        Some((1.., rows)) => Type::f32(rows).map_err(|e| e.to_string()),
        _ => Err(format!("x must have a last dimension to normalise, got {x}")),
    }
}
