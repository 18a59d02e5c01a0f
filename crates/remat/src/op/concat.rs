//! Tensors one behind the other along one axis.

use super::slice::Slice;
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, around_axis, with_axis};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive, shape};

/// All inputs, one behind the other along `axis`; their other dimensions are equal. The gradients are [`Slice`]s.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Concat {
    /// The dimension along which they are joined.
    pub axis: usize,
}

impl OpDef for Concat {
    fn name() -> &'static str {
        "concat"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        let first = x.first().ok_or("takes at least one input")?;
        let mut total = 0usize;
        for part in x {
            let axis = around_axis(part, self.axis)?.axis;
            if with_axis(part, self.axis, 0)? != with_axis(first, self.axis, 0)? {
                return Err(format!("{first} and {part} differ in more than dimension {}", self.axis));
            }
            total = total.checked_add(axis).ok_or("the joint size overflows")?;
        }
        Ok(vec![with_axis(first, self.axis, total)?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let mut start = 0;
        let mut gradients = Vec::new();
        for (&x, &wanted) in args.x.iter().zip(args.wants) {
            let end = start + b.ty(x).shape()[self.axis];
            let slice = Slice { axis: self.axis, start, end };
            gradients.push(if wanted { Some(b.add(slice, &[args.dy0()])?) } else { None });
            start = end;
        }
        Ok(gradients)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, 0)
    }

    fn run(&self, io: &mut Io<'_>) {
        let axis =
            around_axis(io.y_type(0), self.axis).expect("the types were checked when the node was made");
        let parts: Vec<&[f32]> = (0..io.n_inputs()).map(|i| io.f32(i)).collect();
        shape::concat(axis.outer, axis.inner, &parts, io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let axis = around_axis(io.y_types[0], self.axis).expect("the types were checked");
        let parts: Vec<Vec<f64>> = io.x.iter().map(|part| part.to_vec()).collect();
        vec![naive::shape::concat(axis.outer, &parts)]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Concat { axis: 1 }, &[&[3, 2], &[3, 4], &[3, 1]]),
            Example::normal(Concat { axis: 0 }, &[&[2, 3], &[1, 3]]),
            Example::normal(Concat { axis: 3 }, &[&[1, 2, 2, 3], &[1, 2, 2, 2]]),
        ]
    }
}
