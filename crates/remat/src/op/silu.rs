//! `y = x sigmoid(x)`.

use super::pointwise::Pointwise;
use super::{GradArgs, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{activation as kernels, naive::elementwise as naive};

/// `y = x sigmoid(x)`. Backward reads `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Silu {}

impl Pointwise for Silu {
    const NAME: &'static str = "silu";
    const OPERANDS: &'static [&'static str] = &["x"];
    const FLOPS: u64 = 20;
    const HAS_GRADIENT: bool = true;

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(SiluGrad {}, &[args.x[0], args.dy0()])?)])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::silu(x[0], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        naive::silu(io.x[0])
    }

    fn variants() -> Vec<Silu> {
        vec![Silu {}]
    }
}

/// `dx = dy s (1 + x (1 - s))` with `s = sigmoid(x)`; inputs `x` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SiluGrad {}

impl Pointwise for SiluGrad {
    const NAME: &'static str = "silu_grad";
    const OPERANDS: &'static [&'static str] = &["x", "dy"];
    const FLOPS: u64 = 25;
    const HAS_GRADIENT: bool = false;

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::silu_grad(x[0], x[1], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        naive::silu_grad(io.x[0], io.x[1])
    }

    fn variants() -> Vec<SiluGrad> {
        vec![SiluGrad {}]
    }
}
