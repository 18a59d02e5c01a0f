//! `y = x Φ(x)`, exact or with the tanh approximation.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{activation as kernels, naive::elementwise as naive};

/// `y = x Φ(x)` with the normal distribution function `Φ`. Backward reads `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Gelu {
    /// Approximate `Φ` with a tanh, as GPT-2 does; PyTorch's default is exact.
    pub tanh: bool,
}

impl OpDef for Gelu {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(GeluGrad { tanh: self.tanh }, &[args.x[0], args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 40)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        let kernel = if self.tanh { kernels::gelu_tanh } else { kernels::gelu };
        kernel(io.src(0), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let twin = if self.tanh { naive::gelu_tanh } else { naive::gelu };
        vec![twin(io.x[0])]
    }

    fn examples() -> Vec<Example> {
        [false, true].map(|tanh| Example::normal(Gelu { tanh }, &[&[3, 37]])).to_vec()
    }
}

/// `dx = dy (Φ(x) + x Φ'(x))`; inputs `x` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct GeluGrad {
    /// As in the forward op.
    pub tanh: bool,
}

impl OpDef for GeluGrad {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("x", x[0])?;
        expect_same("x and dy", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 45)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(1, 0), (0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        let kernel = if self.tanh { kernels::gelu_tanh_grad } else { kernels::gelu_grad };
        kernel(io.src(0), io.src(1), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let twin = if self.tanh { naive::gelu_tanh_grad } else { naive::gelu_grad };
        vec![twin(io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        [false, true].map(|tanh| Example::normal(GeluGrad { tanh }, &[&[3, 37], &[3, 37]])).to_vec()
    }
}
