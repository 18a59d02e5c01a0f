//! `y = a * b`, element by element.

use super::pointwise::Pointwise;
use super::{GradArgs, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{elementwise as kernels, naive::elementwise as naive};

/// `y = a * b` for tensors of the same shape. The gradients are products too.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mul {}

impl Pointwise for Mul {
    const NAME: &'static str = "mul";
    const OPERANDS: &'static [&'static str] = &["a", "b"];
    const FLOPS: u64 = 1;
    const HAS_GRADIENT: bool = true;

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let dy = args.dy0();
        let mut times = |wanted: bool, other| wanted.then(|| b.add(Mul {}, &[dy, other])).transpose();
        Ok(vec![times(args.wants[0], args.x[1])?, times(args.wants[1], args.x[0])?])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::mul(x[0], x[1], y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        naive::mul(io.x[0], io.x[1])
    }

    fn variants() -> Vec<Mul> {
        vec![Mul {}]
    }
}
