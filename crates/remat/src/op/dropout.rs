//! Dropout whose mask is a function of seed, step and stream, and is never stored.

use super::pointwise::Pointwise;
use super::{GradArgs, InEvaluation, NaiveIo, Run};
use crate::graph::Builder;
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{dropout as kernels, naive::dropout as naive};

/// `y = x / (1 - p)` where kept, else 0. The gradient is the same op, with the same stream, on `dy`; it needs neither
/// `x` nor `y`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Dropout {
    /// Probability of dropping an element.
    pub p: f32,
    /// Names the random numbers: recomputes and the gradient draw the same.
    pub stream: u64,
}

impl Pointwise for Dropout {
    const NAME: &'static str = "dropout";
    const OPERANDS: &'static [&'static str] = &["x"];
    // Ten rounds of the generator for four elements.
    const FLOPS: u64 = 30;
    const HAS_GRADIENT: bool = true;

    fn check(&self) -> Result<(), String> {
        if (0.0..=1.0).contains(&self.p) {
            return Ok(());
        }
        Err(format!("the probability of dropping must be between 0 and 1, got {}", self.p))
    }

    fn gradient(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(*self, &[args.dy0()])?)])
    }

    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, at: usize, run: &Run) {
        kernels::dropout_from(x[0], self.p, run.key(self.stream), at as u64, y);
    }

    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64> {
        naive::dropout(io.x[0], f64::from(self.p), io.run.key(self.stream))
    }

    fn when_evaluating(&self) -> InEvaluation {
        InEvaluation::PassThrough
    }

    fn variants() -> Vec<Dropout> {
        [(0.1, 3), (0.5, 4), (0.0, 5), (1.0, 6)].map(|(p, stream)| Dropout { p, stream }).into()
    }
}
