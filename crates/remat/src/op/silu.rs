//! `y = x sigmoid(x)`.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{activation as kernels, naive::elementwise as naive};

/// `y = x sigmoid(x)`. Backward reads `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Silu {}

impl OpDef for Silu {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(SiluGrad {}, &[args.x[0], args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 20)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::silu(io.src(0), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::silu(io.x[0])]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Silu {}, &[&[3, 37]])]
    }
}

/// `dx = dy s (1 + x (1 - s))` with `s = sigmoid(x)`; inputs `x` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SiluGrad {}

impl OpDef for SiluGrad {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("x", x[0])?;
        expect_same("x and dy", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 25)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::silu_grad(io.src(0), io.src(1), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::silu_grad(io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(SiluGrad {}, &[&[3, 37], &[3, 37]])]
    }
}
