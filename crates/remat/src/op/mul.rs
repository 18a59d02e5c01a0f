//! `y = a * b`, element by element.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{elementwise as kernels, naive::elementwise as naive};

/// `y = a * b` for tensors of the same shape. The gradients are products too.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mul {}

impl OpDef for Mul {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("a", x[0])?;
        expect_same("a and b", x[0], x[1])?;
        Ok(vec![x[0].clone()])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let dy = args.dy0();
        let mut times = |wanted: bool, other| wanted.then(|| b.add(Mul {}, &[dy, other])).transpose();
        Ok(vec![times(args.wants[0], args.x[1])?, times(args.wants[1], args.x[0])?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0), (1, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::mul(io.src(0), io.src(1), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::mul(io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Mul {}, &[&[3, 37], &[3, 37]])]
    }
}
