//! A part of a tensor along one axis, as a copy.

use super::pad::Pad;
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, around_axis, expect_inputs, with_axis};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive, shape};

/// `y = x[.., start..end, ..]` along `axis`. Its gradient is a [`Pad`].
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Slice {
    /// The dimension that is cut.
    pub axis: usize,
    /// First index that is kept.
    pub start: usize,
    /// First index that is not kept any more.
    pub end: usize,
}

impl OpDef for Slice {
    fn name() -> &'static str {
        "slice"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        let axis = around_axis(x[0], self.axis)?.axis;
        if self.start > self.end || self.end > axis {
            return Err(format!(
                "{}..{} is not a part of dimension {} of {}",
                self.start, self.end, self.axis, x[0]
            ));
        }
        Ok(vec![with_axis(x[0], self.axis, self.end - self.start)?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let after = b.ty(args.x[0]).shape()[self.axis] - self.end;
        let pad = Pad { axis: self.axis, before: self.start, after };
        Ok(vec![Some(b.add(pad, &[args.dy0()])?)])
    }

    fn cost(&self, _x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(y, y, 0)
    }

    fn run(&self, io: &mut Io<'_>) {
        let axis =
            around_axis(io.x_type(0), self.axis).expect("the types were checked when the node was made");
        shape::slice(axis, io.f32(0), self.start, self.end - self.start, io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let s = around_axis(io.x_types[0], self.axis).expect("the types were checked");
        vec![naive::shape::slice(io.x[0], s.outer, s.axis, s.inner, self.start, self.end - self.start)]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Slice { axis: 0, start: 1, end: 3 }, &[&[4, 3]]),
            Example::normal(Slice { axis: 1, start: 0, end: 2 }, &[&[2, 5, 3]]),
            Example::normal(Slice { axis: 2, start: 2, end: 3 }, &[&[2, 2, 3]]),
        ]
    }
}
