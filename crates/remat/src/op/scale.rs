//! `y = factor * x`.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{elementwise as kernels, naive::elementwise as naive};

/// `y = factor * x`. The gradient is the same op on `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Scale {
    /// The constant.
    pub factor: f32,
}

impl OpDef for Scale {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_float("x", x[0])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(*self, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::scale(io.src(0), self.factor, io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::scale(io.x[0], f64::from(self.factor))]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Scale { factor: -0.3 }, &[&[3, 37]])]
    }
}
