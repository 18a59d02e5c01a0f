//! `y = x Φ(x)`, exact or with the tanh approximation.

use super::pointwise::Pointwise;
use super::{GradArgs, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{activation as kernels, naive::elementwise as naive};

/// `y = x Φ(x)` with the normal distribution function `Φ`. Backward reads `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Gelu {
    /// Approximate `Φ` with a tanh, as GPT-2 does; PyTorch's default is exact.
    pub tanh: bool,
}

impl Pointwise for Gelu {
    const NAME: &'static str = "gelu";
    const OPERANDS: &'static [&'static str] = &["x"];
    const FLOPS: u64 = 40;
    const HAS_GRADIENT: bool = true;

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(GeluGrad { tanh: self.tanh }, &[args.x[0], args.dy0()])?)])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        let kernel = if self.tanh { kernels::gelu_tanh } else { kernels::gelu };
        kernel(x[0], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        let twin = if self.tanh { naive::gelu_tanh } else { naive::gelu };
        twin(io.x[0])
    }

    fn variants() -> Vec<Gelu> {
        [false, true].map(|tanh| Gelu { tanh }).into()
    }
}

/// `dx = dy (Φ(x) + x Φ'(x))`; inputs `x` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct GeluGrad {
    /// As in the forward op.
    pub tanh: bool,
}

impl Pointwise for GeluGrad {
    const NAME: &'static str = "gelu_grad";
    const OPERANDS: &'static [&'static str] = &["x", "dy"];
    const FLOPS: u64 = 45;
    const HAS_GRADIENT: bool = false;

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        let kernel = if self.tanh { kernels::gelu_tanh_grad } else { kernels::gelu_grad };
        kernel(x[0], x[1], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        let twin = if self.tanh { naive::gelu_tanh_grad } else { naive::gelu_grad };
        twin(io.x[0], io.x[1])
    }

    fn variants() -> Vec<GeluGrad> {
        [false, true].map(|tanh| GeluGrad { tanh }).into()
    }
}
