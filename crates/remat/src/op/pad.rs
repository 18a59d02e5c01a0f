//! A tensor with zeros around it along one axis.

use super::slice::Slice;
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, around_axis, expect_inputs, with_axis};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive, shape};

/// `before` zeros, `x`, and `after` zeros along `axis`. Its gradient is a [`Slice`].
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Pad {
    /// The dimension that grows.
    pub axis: usize,
    /// Zeros before `x`.
    pub before: usize,
    /// Zeros behind `x`.
    pub after: usize,
}

impl OpDef for Pad {
    fn name() -> &'static str {
        "pad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        let axis = around_axis(x[0], self.axis)?.axis;
        let padded = axis.checked_add(self.before).and_then(|padded| padded.checked_add(self.after));
        Ok(vec![with_axis(x[0], self.axis, padded.ok_or("the padded size overflows")?)?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let end = self.before + b.ty(args.x[0]).shape()[self.axis];
        let slice = Slice { axis: self.axis, start: self.before, end };
        Ok(vec![Some(b.add(slice, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, 0)
    }

    fn run(&self, io: &mut Io<'_>) {
        let axis =
            around_axis(io.x_type(0), self.axis).expect("the types were checked when the node was made");
        shape::pad(axis, io.f32(0), self.before, self.after, io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let s = around_axis(io.x_types[0], self.axis).expect("the types were checked");
        vec![naive::shape::pad(io.x[0], s.outer, s.axis, s.inner, self.before, self.after)]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Pad { axis: 0, before: 1, after: 0 }, &[&[2, 3]]),
            Example::normal(Pad { axis: 1, before: 2, after: 1 }, &[&[2, 2, 3]]),
        ]
    }
}
