//! `y = factor * x`.

use super::pointwise::Pointwise;
use super::{GradArgs, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{elementwise as kernels, naive::elementwise as naive};

/// `y = factor * x`. The gradient is the same op on `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Scale {
    /// The constant.
    pub factor: f32,
}

impl Pointwise for Scale {
    const NAME: &'static str = "scale";
    const OPERANDS: &'static [&'static str] = &["x"];
    const FLOPS: u64 = 1;
    const HAS_GRADIENT: bool = true;

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(*self, &[args.dy0()])?)])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::scale(x[0], self.factor, y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        naive::scale(io.x[0], f64::from(self.factor))
    }

    fn variants() -> Vec<Scale> {
        vec![Scale { factor: -0.3 }]
    }
}
