//! Initial distributions that follow from the size of a layer.

use crate::graph::Init;

/// What PyTorch's `Linear` and `Conv2d` start from, weight and bias alike: uniform within `1 / sqrt(fan_in)`, where the
/// fan-in is the product of `sizes` (input channels and kernel).
pub fn fan_in_uniform(sizes: &[usize]) -> Init {
    Init::Uniform((1.0 / product(sizes).sqrt()) as f32)
}

/// PyTorch's `kaiming_normal_` for ReLU: normal with deviation `sqrt(2 / fan)`, where the fan is the product of `sizes`:
/// outputs and kernel for `mode="fan_out"`, inputs and kernel for `mode="fan_in"`.
pub fn he_normal(sizes: &[usize]) -> Init {
    Init::Normal((2.0 / product(sizes)).sqrt() as f32)
}

/// PyTorch's `xavier_uniform_`: uniform within `sqrt(6 / (inputs + outputs))`.
pub fn glorot_uniform(inputs: usize, outputs: usize) -> Init {
    Init::Uniform((6.0 / inputs.saturating_add(outputs) as f64).sqrt() as f32)
}

/// In floats, so that absurd sizes reach the check of tensor sizes instead of overflowing here. Exact below 2^53.
fn product(sizes: &[usize]) -> f64 {
    sizes.iter().map(|&size| size as f64).product()
}
