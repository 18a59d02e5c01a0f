//! Twins of the element-wise kernels and activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};

/// `a + b`, where `b` repeats every `b.len()` elements.
pub fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().enumerate().map(|(i, a)| a + b[i % b.len()]).collect()
}

/// `a * b`.
pub fn mul(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

/// `factor * x`.
pub fn scale(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| factor * x).collect()
}

/// `max(x, 0)`.
pub fn relu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.max(0.0)).collect()
}

/// `dy` where `y > 0`, else 0.
pub fn relu_grad(y: &[f64], dy: &[f64]) -> Vec<f64> {
    y.iter().zip(dy).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect()
}

/// `x Φ(x)`.
pub fn gelu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| x * normal_cdf(x)).collect()
}

/// `dy (Φ(x) + x φ(x))`.
pub fn gelu_grad(x: &[f64], dy: &[f64]) -> Vec<f64> {
    let slope = |x: f64| normal_cdf(x) + x * libm::exp(-0.5 * x * x) / TAU.sqrt();
    x.iter().zip(dy).map(|(&x, dy)| dy * slope(x)).collect()
}

/// `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`.
pub fn gelu_tanh(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| 0.5 * x * (1.0 + libm::tanh(tanh_argument(x)))).collect()
}

/// The gradient of [`gelu_tanh`].
pub fn gelu_tanh_grad(x: &[f64], dy: &[f64]) -> Vec<f64> {
    let slope = |x: f64| {
        let tanh = libm::tanh(tanh_argument(x));
        let inner = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
    };
    x.iter().zip(dy).map(|(&x, dy)| dy * slope(x)).collect()
}

/// `x sigmoid(x)`.
pub fn silu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| x * sigmoid(x)).collect()
}

/// The gradient of [`silu`].
pub fn silu_grad(x: &[f64], dy: &[f64]) -> Vec<f64> {
    let slope = |x: f64| sigmoid(x) + x * sigmoid(x) * (1.0 - sigmoid(x));
    x.iter().zip(dy).map(|(&x, dy)| dy * slope(x)).collect()
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

fn tanh_argument(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}
