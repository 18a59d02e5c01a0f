//! Softmax over the last dimension.

use super::{
    Calibration, Case, Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive::norm as naive, softmax as kernels};

/// `y = softmax(x)` over the last dimension. Backward reads `y` only, so `x` need not be kept.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Softmax {}

impl OpDef for Softmax {
    fn name() -> &'static str {
        "softmax"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(SoftmaxGrad {}, &[args.y[0], args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 40)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| Case::floats(Softmax {}, &[&[rows, columns]])))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::forward(io.src(0), io.x_type(0).last(), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::softmax(io.x[0], io.x_types[0].last())]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Softmax {}, &[&[2, 3, 5]]), Example::normal(Softmax {}, &[&[2, 67]])]
    }
}

/// `dx = y (dy - Σ y dy)`; inputs `y` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SoftmaxGrad {}

impl OpDef for SoftmaxGrad {
    fn name() -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("y", x[0])?;
        expect_same("y and dy", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 4)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            Case::floats(SoftmaxGrad {}, &[&[rows, columns], &[rows, columns]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::grad(io.src(0), io.src(1), io.x_type(0).last(), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::softmax_grad(io.x[0], io.x[1], io.x_types[0].last())]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(SoftmaxGrad {}, &[&[2, 67], &[2, 67]])]
    }
}
