//! Clipping gradients by their common norm, as PyTorch's `clip_grad_norm_` does.
//!
//! The norm needs every gradient, so with clipping all of them are alive when the last is made: the planner sees that,
//! since it is in the graph. The factor is applied inside the updates, which saves a pass over every gradient.

use super::{Cost, Example, Fill, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_shape};
use crate::graph::Type;

/// Keeps the factor finite for gradients that are all zero; PyTorch's constant.
const EPS: f64 = 1e-6;

/// Inputs: the sum of squares of each gradient. Outputs: the factor `min(1, max_norm / (norm + 1e-6))` that the updates
/// multiply gradients with, and the norm.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ClipFactor {
    /// The largest norm that is left alone.
    pub max_norm: f64,
}

impl ClipFactor {
    fn outputs(&self, squares: impl Iterator<Item = f64>) -> [f64; 2] {
        let norm = squares.sum::<f64>().sqrt();
        [(self.max_norm / (norm + EPS)).min(1.0), norm]
    }
}

impl OpDef for ClipFactor {
    fn name() -> &'static str {
        "clip_factor"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.is_empty() {
            return Err("takes one sum of squares for each gradient, got none".to_owned());
        }
        for ty in x {
            expect_shape("a sum of squares", ty, &[])?;
        }
        if !(self.max_norm > 0.0 && self.max_norm.is_finite()) {
            return Err(format!("the largest norm must be above zero, got {}", self.max_norm));
        }
        Ok(vec![Type::scalar(); 2])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, x.len() as u64)
    }

    fn run(&self, io: &mut Io<'_>) {
        let [factor, norm] = self.outputs((0..io.n_inputs()).map(|i| f64::from(io.f32(i)[0])));
        io.out(0)[0] = factor as f32;
        io.out(1)[0] = norm as f32;
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        self.outputs(io.x.iter().map(|x| x[0])).map(|y| vec![y]).into()
    }

    fn examples() -> Vec<Example> {
        let example = |max_norm| {
            let squares: [&[usize]; 3] = [&[]; 3];
            let positive = Fill::Uniform(0.0, 4.0);
            Example::normal(ClipFactor { max_norm }, &squares)
                .fill(0, positive)
                .fill(1, positive)
                .fill(2, positive)
        };
        vec![example(0.5), example(100.0)]
    }
}

/// Checks the inputs of an update: `n` of the parameter's kind, then perhaps the factor of the gradient.
pub(super) fn expect_update_inputs(x: &[&Type], n: usize) -> Result<(), String> {
    if x.len() == n + 1 {
        expect_shape("the factor of the gradient", x[n], &[])?;
    } else {
        expect_inputs(x, n)?;
    }
    expect_float("the parameter", x[0])
}

/// The factor of the gradient at input `i` of an update, 1 where nothing is clipped.
pub(super) fn gradient_scale(io: &Io<'_>, i: usize) -> f32 {
    if i < io.n_inputs() { io.f32(i)[0] } else { 1.0 }
}
