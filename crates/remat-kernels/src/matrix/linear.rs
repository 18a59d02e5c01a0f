//! The linear layer `y = x · weightᵀ + bias` and its gradients, all plain matrix products.
//!
//! In: `x: [rows, inputs]`, `weight: [outputs, inputs]` (the layout of PyTorch), `bias: [outputs]`. The bias gradient
//! is [`crate::sum_rows`]. No workspace.

use crate::base::par;
use crate::product::gemm::{Mat, MatMut, Write, gemm};

/// The sizes of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Rows of `x` and `y`: all leading dimensions together.
    pub rows: usize,
    /// Width of a row of `x`.
    pub inputs: usize,
    /// Width of a row of `y`.
    pub outputs: usize,
}

/// `y = x · weightᵀ (+ bias)`.
pub fn linear(shape: LinearShape, x: &[f32], weight: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
    let LinearShape { rows, inputs, outputs } = shape;
    let write = start_from_bias(bias, y);
    let weight = Mat::new(weight, outputs, inputs).t();
    gemm(write, 1.0, Mat::new(x, rows, inputs), weight, MatMut::new(y, rows, outputs));
}

/// `dx = dy · weight`.
pub fn linear_grad_input(shape: LinearShape, dy: &[f32], weight: &[f32], dx: &mut [f32]) {
    let LinearShape { rows, inputs, outputs } = shape;
    let weight = Mat::new(weight, outputs, inputs);
    gemm(Write::Overwrite, 1.0, Mat::new(dy, rows, outputs), weight, MatMut::new(dx, rows, inputs));
}

/// `dweight = dyᵀ · x`.
pub fn linear_grad_weight(shape: LinearShape, dy: &[f32], x: &[f32], dweight: &mut [f32]) {
    let LinearShape { rows, inputs, outputs } = shape;
    let dy = Mat::new(dy, rows, outputs).t();
    gemm(Write::Overwrite, 1.0, dy, Mat::new(x, rows, inputs), MatMut::new(dweight, outputs, inputs));
}

/// Writes the bias to every row of `y`, if there is one, and says how the product has to be written then.
///
/// Starting from the bias saves a second pass over `y` after the product.
pub(crate) fn start_from_bias(bias: Option<&[f32]>, y: &mut [f32]) -> Write {
    let Some(bias) = bias.filter(|bias| !bias.is_empty()) else { return Write::Overwrite };
    let rows_per_task = par::ELEMENTS_PER_TASK.div_ceil(bias.len());
    par::for_each_chunk(y, rows_per_task * bias.len(), |_, rows| {
        for row in rows.chunks_exact_mut(bias.len()) {
            row.copy_from_slice(bias);
        }
    });
    Write::Accumulate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::linear as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn forward_and_gradients_agree_with_the_definition() {
        for (rows, inputs, outputs) in [(1, 1, 1), (5, 3, 7), (130, 65, 33), (700, 48, 210), (33, 900, 1)] {
            let shape = LinearShape { rows, inputs, outputs };
            let (x, weight) = (random(rows * inputs, 1), random(outputs * inputs, 2));
            let (bias, dy) = (random(outputs, 3), random(rows * outputs, 4));
            let (x64, weight64, dy64) = (wide(&x), wide(&weight), wide(&dy));

            let y = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; rows * outputs];
                linear(shape, &x, &weight, Some(&bias), &mut y);
                y
            });
            assert_close(&y, &naive::linear(&x64, &weight64, &wide(&bias), rows, inputs), 1e-5);

            let plain = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; rows * outputs];
                linear(shape, &x, &weight, None, &mut y);
                y
            });
            assert_close(&plain, &naive::linear(&x64, &weight64, &vec![0.0; outputs], rows, inputs), 1e-5);

            let dx = same_bits_in_any_pool(|| {
                let mut dx = vec![f32::NAN; rows * inputs];
                linear_grad_input(shape, &dy, &weight, &mut dx);
                dx
            });
            assert_close(&dx, &naive::matmul(&dy64, &weight64, rows, outputs, inputs), 1e-5);

            let dweight = same_bits_in_any_pool(|| {
                let mut dweight = vec![f32::NAN; outputs * inputs];
                linear_grad_weight(shape, &dy, &x, &mut dweight);
                dweight
            });
            let dy_transposed = naive::transpose(&dy64, rows, outputs);
            assert_close(&dweight, &naive::matmul(&dy_transposed, &x64, outputs, rows, inputs), 1e-5);
        }
    }
}
