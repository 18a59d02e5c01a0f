//! Activation functions and their gradients. All may write over any input; no workspace.
//!
//! The gradient of `relu` reads its output and so can do without its input; the others read their input.

use crate::elementwise::{Map, map};
use crate::math::{normal_cdf_pdf, sigmoid, sigmoid_pair};
use crate::raw::{Dst, Src};

/// `y = max(x, 0)`; not-a-number stays.
pub fn relu(x: Src<'_>, y: Dst<'_>) {
    map([x], y, |[x]: [f32; 1]| if x < 0.0 { 0.0 } else { x });
}

/// `dx = dy` where the output `y` was positive, else 0.
pub fn relu_grad(y: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map([y, dy], dx, |[y, dy]: [f32; 2]| if y > 0.0 { dy } else { 0.0 });
}

/// `y = x Φ(x)` with the normal distribution function `Φ`: the exact GELU, PyTorch's default.
pub fn gelu(x: Src<'_>, y: Dst<'_>) {
    map([x], y, Gelu);
}

/// `dx = dy (Φ(x) + x φ(x))`.
pub fn gelu_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map([x, dy], dx, GeluGrad);
}

/// `y = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`: the approximation of GELU that GPT-2 uses.
pub fn gelu_tanh(x: Src<'_>, y: Dst<'_>) {
    map([x], y, GeluTanh);
}

/// The gradient of [`gelu_tanh`].
pub fn gelu_tanh_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map([x, dy], dx, GeluTanhGrad);
}

/// `y = x sigmoid(x)`.
pub fn silu(x: Src<'_>, y: Dst<'_>) {
    map([x], y, Silu);
}

/// `dx = dy s (1 + x (1 - s))` with `s = sigmoid(x)`.
pub fn silu_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map([x, dy], dx, SiluGrad);
}

#[derive(Clone, Copy)]
struct Gelu;

impl Map<1> for Gelu {
    #[inline(always)]
    fn at(self, [x]: [f32; 1]) -> f32 {
        x * normal_cdf_pdf(x).0
    }
}

#[derive(Clone, Copy)]
struct GeluGrad;

impl Map<2> for GeluGrad {
    #[inline(always)]
    fn at(self, [x, dy]: [f32; 2]) -> f32 {
        let (cdf, pdf) = normal_cdf_pdf(x);
        dy * (cdf + x * pdf)
    }
}

/// `2 √(2/π)`, since `(1 + tanh(z)) / 2 = sigmoid(2 z)`.
const TANH_SLOPE: f32 = 1.595_769;
const TANH_CUBIC: f32 = 0.044_715;

#[derive(Clone, Copy)]
struct GeluTanh;

impl Map<1> for GeluTanh {
    #[inline(always)]
    fn at(self, [x]: [f32; 1]) -> f32 {
        x * sigmoid(TANH_SLOPE * (x + TANH_CUBIC * x * x * x))
    }
}

#[derive(Clone, Copy)]
struct GeluTanhGrad;

impl Map<2> for GeluTanhGrad {
    #[inline(always)]
    fn at(self, [x, dy]: [f32; 2]) -> f32 {
        let (s, rest) = sigmoid_pair(TANH_SLOPE * (x + TANH_CUBIC * x * x * x));
        let slope = TANH_SLOPE * (1.0 + 3.0 * TANH_CUBIC * x * x);
        dy * (s + x * s * rest * slope)
    }
}

#[derive(Clone, Copy)]
struct Silu;

impl Map<1> for Silu {
    #[inline(always)]
    fn at(self, [x]: [f32; 1]) -> f32 {
        x * sigmoid(x)
    }
}

#[derive(Clone, Copy)]
struct SiluGrad;

impl Map<2> for SiluGrad {
    #[inline(always)]
    fn at(self, [x, dy]: [f32; 2]) -> f32 {
        let (s, rest) = sigmoid_pair(x);
        dy * (s * (1.0 + x * rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::tests::{LENGTHS, out_of_place_and_in_place};
    use crate::naive::elementwise as naive;
    use crate::testing::{assert_close, random, wide};

    type Forward = (&'static str, fn(Src<'_>, Dst<'_>), fn(&[f64]) -> Vec<f64>);
    type Backward = (&'static str, fn(Src<'_>, Src<'_>, Dst<'_>), fn(&[f64], &[f64]) -> Vec<f64>);

    const FORWARD: [Forward; 4] = [
        ("relu", relu, naive::relu),
        ("gelu", gelu, naive::gelu),
        ("gelu_tanh", gelu_tanh, naive::gelu_tanh),
        ("silu", silu, naive::silu),
    ];
    const BACKWARD: [Backward; 4] = [
        ("relu_grad", relu_grad, naive::relu_grad),
        ("gelu_grad", gelu_grad, naive::gelu_grad),
        ("gelu_tanh_grad", gelu_tanh_grad, naive::gelu_tanh_grad),
        ("silu_grad", silu_grad, naive::silu_grad),
    ];

    /// Values from -6 to 6, where the functions bend.
    fn spread(n: usize) -> Vec<f32> {
        random(n, 1).iter().map(|x| 6.0 * x).collect()
    }

    #[test]
    fn functions_agree_with_their_definitions() {
        for n in LENGTHS {
            for (name, kernel, oracle) in FORWARD {
                println!("{name}, {n} elements");
                let inputs = [spread(n)];
                let y = out_of_place_and_in_place(inputs.each_ref(), |[x], y| kernel(x, y));
                assert_close(&y, &oracle(&wide(&inputs[0])), 1e-6);
            }
        }
    }

    #[test]
    fn gradients_agree_with_their_definitions() {
        for n in LENGTHS {
            for (name, kernel, oracle) in BACKWARD {
                println!("{name}, {n} elements");
                let inputs = [spread(n), random(n, 2)];
                let dx = out_of_place_and_in_place(inputs.each_ref(), |[x, dy], dx| kernel(x, dy, dx));
                assert_close(&dx, &oracle(&wide(&inputs[0]), &wide(&inputs[1])), 1e-6);
            }
        }
    }

    #[test]
    fn not_a_number_is_passed_on() {
        for (name, kernel, _) in FORWARD {
            let mut y = [0.0];
            kernel(Src::from(&[f32::NAN][..]), Dst::from(&mut y[..]));
            assert!(y[0].is_nan(), "{name}");
        }
    }
}
