//! `y = max(x, 0)`.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::activation as kernels;

/// `y = max(x, 0)`. Backward reads `y` only, so `x` need not be kept.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Relu {}

impl OpDef for Relu {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(ReluGrad {}, &[args.y[0], args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::relu(io.src(0), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().map(|&x| x.max(0.0)).collect()]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Relu {}, &[&[3, 37]])]
    }
}

/// `dx = dy where y > 0, else 0`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReluGrad {}

impl OpDef for ReluGrad {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("y", x[0])?;
        expect_same("y and dy", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::relu_grad(io.src(0), io.src(1), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().zip(io.x[1]).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect()]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(ReluGrad {}, &[&[3, 37], &[3, 37]])]
    }
}
