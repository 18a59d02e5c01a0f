//! `y = max(x, 0)`.

use super::pointwise::Pointwise;
use super::{GradArgs, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::activation as kernels;
use remat_kernels::raw::{Dst, Src};

/// `y = max(x, 0)`. Backward reads `y` only, so `x` need not be kept.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Relu {}

impl Pointwise for Relu {
    const NAME: &'static str = "relu";
    const OPERANDS: &'static [&'static str] = &["x"];
    const FLOPS: u64 = 1;
    const HAS_GRADIENT: bool = true;

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(ReluGrad {}, &[args.y[0], args.dy0()])?)])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::relu(x[0], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        io.x[0].iter().map(|&x| x.max(0.0)).collect()
    }

    fn variants() -> Vec<Relu> {
        vec![Relu {}]
    }
}

/// `dx = dy where y > 0, else 0`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReluGrad {}

impl Pointwise for ReluGrad {
    const NAME: &'static str = "relu_grad";
    const OPERANDS: &'static [&'static str] = &["y", "dy"];
    const FLOPS: u64 = 1;
    const HAS_GRADIENT: bool = false;

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::relu_grad(x[0], x[1], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        io.x[0].iter().zip(io.x[1]).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect()
    }

    fn variants() -> Vec<ReluGrad> {
        vec![ReluGrad {}]
    }
}
