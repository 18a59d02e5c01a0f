//! What the slow twins see, and the cases on which ops are tested.

use super::{Op, Run, Type};

/// Inputs of a slow twin: every element as `f64`, whatever its type.
#[derive(Clone, Copy, Debug)]
pub struct NaiveIo<'a> {
    /// The inputs' elements.
    pub x: &'a [&'a [f64]],
    /// The inputs' types.
    pub x_types: &'a [&'a Type],
    /// The outputs' types.
    pub y_types: &'a [&'a Type],
    /// Facts about the running step.
    pub run: &'a Run,
}

impl NaiveIo<'_> {
    /// The elements of an integer input.
    pub fn whole_numbers(&self, i: usize) -> Vec<i32> {
        self.x[i].iter().map(|&x| x as i32).collect()
    }
}

/// How a test fills an input.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// Normal with mean 0 and deviation 1.
    Normal,
    /// Uniform in `[low, high)`.
    Uniform(f64, f64),
    /// Whole numbers in `0..limit`.
    Below(usize),
}

/// One test case of an op.
#[derive(Clone, Debug)]
pub struct Example {
    /// The op with its attributes.
    pub op: Op,
    /// Type and filling of each input.
    pub inputs: Vec<(Type, Fill)>,
}

impl Example {
    /// A case whose inputs are float tensors with normal elements.
    pub fn normal(op: impl Into<Op>, shapes: &[&[usize]]) -> Example {
        let input = |shape: &&[usize]| (Type::f32(shape).expect("a small shape"), Fill::Normal);
        Example { op: op.into(), inputs: shapes.iter().map(input).collect() }
    }

    /// Replaces the filling of input `i`.
    pub fn fill(mut self, i: usize, fill: Fill) -> Example {
        self.inputs[i].1 = fill;
        self
    }

    /// Replaces the type of input `i` and fills it with whole numbers in `0..limit`.
    pub fn ints(mut self, i: usize, ty: Type, limit: usize) -> Example {
        self.inputs[i] = (ty, Fill::Below(limit));
        self
    }
}
