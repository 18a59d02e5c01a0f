//! A tensor of one number: the gradient that starts the backward pass.

use super::{Cost, Example, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::Type;
use remat_kernels::elementwise as kernels;

/// `y = value` everywhere.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Constant {
    /// The number.
    pub value: f32,
    /// Extents of the tensor.
    pub shape: Vec<usize>,
}

impl OpDef for Constant {
    fn name() -> &'static str {
        "constant"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 0)?;
        Ok(vec![Type::f32(&self.shape).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, 0)
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::fill(self.value, io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![vec![f64::from(self.value); io.y_types[0].numel()]]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Constant { value: 1.5, shape: vec![3, 5] }, &[])]
    }
}
