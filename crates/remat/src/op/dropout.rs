//! Dropout whose mask is a function of seed, step and stream, and is never stored.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
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

impl OpDef for Dropout {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        if !(0.0..=1.0).contains(&self.p) {
            return Err(format!("the probability of dropping must be between 0 and 1, got {}", self.p));
        }
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(*self, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        // Ten rounds of the generator for four elements.
        Cost::element_wise(x, y, 30)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::dropout(io.src(0), self.p, io.run().key(self.stream), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::dropout(io.x[0], f64::from(self.p), io.run.key(self.stream))]
    }

    fn examples() -> Vec<Example> {
        [(0.1, 3), (0.5, 4), (0.0, 5), (1.0, 6)]
            .map(|(p, stream)| Example::normal(Dropout { p, stream }, &[&[3, 37]]))
            .to_vec()
    }
}
