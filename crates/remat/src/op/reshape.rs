//! The same elements with another shape: a view.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;

/// The elements of `x` in the same order with other extents. Nothing runs: the output is the input's storage.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Reshape {
    /// The new extents.
    pub shape: Vec<usize>,
}

impl OpDef for Reshape {
    fn name() -> &'static str {
        "reshape"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        let y = Type::new(x[0].dtype(), &self.shape).map_err(|e| e.to_string())?;
        if y.numel() != x[0].numel() {
            return Err(format!("{} has {} elements, {y} has {}", x[0], x[0].numel(), y.numel()));
        }
        Ok(vec![y])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let shape = b.ty(args.x[0]).shape().to_vec();
        Ok(vec![Some(b.add(Reshape { shape }, &[args.dy0()])?)])
    }

    fn cost(&self, _x: &[&Type], _y: &[&Type]) -> Cost {
        Cost::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    fn run(&self, _io: &mut Io<'_>) {}

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].to_vec()]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Reshape { shape: vec![2, 6] }, &[&[3, 4]])]
    }
}
