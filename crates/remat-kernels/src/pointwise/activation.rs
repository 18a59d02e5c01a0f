//! Activation functions and their gradients. All may write over any input; no workspace.
//!
//! The gradient of `relu` reads its output and so can do without its input; the others read their input.

use crate::base::math::{Lanes, exp_bounded, exp2_bounded, gelu_slope, normal_cdf};
use crate::base::raw::{Dst, Src};
use crate::loops::map::{LanesMap, map, map_lanes};

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
    map_lanes([x], y, Gelu);
}

/// `dx = dy (Φ(x) + x φ(x))`.
pub fn gelu_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map_lanes([x, dy], dx, GeluGrad);
}

/// `y = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`: the approximation of GELU that GPT-2 uses.
pub fn gelu_tanh(x: Src<'_>, y: Dst<'_>) {
    map_lanes([x], y, GeluTanh);
}

/// The gradient of [`gelu_tanh`].
pub fn gelu_tanh_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map_lanes([x, dy], dx, GeluTanhGrad);
}

/// `y = x sigmoid(x)`.
pub fn silu(x: Src<'_>, y: Dst<'_>) {
    map_lanes([x], y, Silu);
}

/// `dx = dy s (1 + x (1 - s))` with `s = sigmoid(x)`.
pub fn silu_grad(x: Src<'_>, dy: Src<'_>, dx: Dst<'_>) {
    map_lanes([x, dy], dx, SiluGrad);
}

#[derive(Clone, Copy)]
struct Gelu;

impl LanesMap<1> for Gelu {
    #[inline(always)]
    fn at<T: Lanes>(self, [x]: [T; 1]) -> T {
        x * normal_cdf(x)
    }
}

#[derive(Clone, Copy)]
struct GeluGrad;

impl LanesMap<2> for GeluGrad {
    #[inline(always)]
    fn at<T: Lanes>(self, [x, dy]: [T; 2]) -> T {
        dy * gelu_slope(x)
    }
}

/// `2 √(2/π)`, since `(1 + tanh(z)) / 2 = sigmoid(2 z)`.
const TANH_SLOPE: f32 = 1.595_769;
const TANH_CUBIC: f32 = 0.044_715;
/// The same slope for powers of two instead of powers of e.
const TANH_SLOPE_2: f32 = 2.302_208_2;
/// `gelu_tanh` does not differ from 0 or its argument beyond this, and the exponentials up to it are finite.
const TANH_END: f32 = 9.9;

/// `e^-w` with `w = 2 √(2/π) (x + 0.044715 x³)` and thus `sigmoid(w) = 1 / (1 + e^-w)`.
#[inline(always)]
fn exp_of_tanh<T: Lanes>(x: T) -> T {
    exp2_bounded(x * (x * x).mul_add(T::splat(-TANH_SLOPE_2 * TANH_CUBIC), T::splat(-TANH_SLOPE_2)))
}

#[derive(Clone, Copy)]
struct GeluTanh;

impl LanesMap<1> for GeluTanh {
    #[inline(always)]
    fn at<T: Lanes>(self, [x]: [T; 1]) -> T {
        let x = x.at_least(-TANH_END);
        x / (T::splat(1.0) + exp_of_tanh(x.at_most(TANH_END)))
    }
}

#[derive(Clone, Copy)]
struct GeluTanhGrad;

impl LanesMap<2> for GeluTanhGrad {
    #[inline(always)]
    fn at<T: Lanes>(self, [x, dy]: [T; 2]) -> T {
        let (x, one) = (x.at_least(-TANH_END).at_most(TANH_END), T::splat(1.0));
        let e = exp_of_tanh(x);
        // s = sigmoid(w); 1 - s is e s, without cancellation.
        let s = (one / (one + e)).in_step();
        let x_slope = x * (x * x).mul_add(T::splat(3.0 * TANH_SLOPE * TANH_CUBIC), T::splat(TANH_SLOPE));
        dy * (s * x_slope.mul_add(e * s, one))
    }
}

/// From here on sigmoid is 0 or 1 for what follows, and the exponentials up to here are finite.
const SIGMOID_END: f32 = 87.0;

#[derive(Clone, Copy)]
struct Silu;

impl LanesMap<1> for Silu {
    #[inline(always)]
    fn at<T: Lanes>(self, [x]: [T; 1]) -> T {
        let x = x.at_least(-SIGMOID_END);
        let e = exp_bounded(T::splat(0.0) - x.at_most(SIGMOID_END));
        x / (T::splat(1.0) + e)
    }
}

#[derive(Clone, Copy)]
struct SiluGrad;

impl LanesMap<2> for SiluGrad {
    #[inline(always)]
    fn at<T: Lanes>(self, [x, dy]: [T; 2]) -> T {
        let (x, one) = (x.at_least(-SIGMOID_END).at_most(SIGMOID_END), T::splat(1.0));
        let e = exp_bounded(T::splat(0.0) - x);
        // 1 - s is e s, without cancellation.
        let s = (one / (one + e)).in_step();
        dy * (s * x.mul_add(e * s, one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::elementwise as naive;
    use crate::testing::{LENGTHS, assert_close, out_of_place_and_in_place, random, wide};

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

    /// Values from -6 to 6, where the functions bend. The first is not in a tail, where errors are small only in relation
    /// to the function's larger values.
    fn spread(n: usize) -> Vec<f32> {
        let first = std::iter::once(0.9);
        first.chain(random(n - 1, 1).iter().map(|x| 6.0 * x)).collect()
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
        for (name, kernel, _) in BACKWARD.into_iter().filter(|(name, ..)| *name != "relu_grad") {
            let mut dx = [0.0];
            kernel(Src::from(&[f32::NAN][..]), Src::from(&[1.0][..]), Dst::from(&mut dx[..]));
            assert!(dx[0].is_nan(), "{name}");
        }
    }

    #[test]
    fn far_arguments_give_the_limits() {
        for (name, kernel, _) in FORWARD {
            let mut y = [f32::NAN; 4];
            kernel(Src::from(&[-1e30, -100.0, 100.0, 1e30][..]), Dst::from(&mut y[..]));
            assert!(y[0].abs() < 1e-30 && y[1].abs() < 1e-30 && y[2..] == [100.0, 1e30], "{name}: {y:?}");
        }
        for (name, kernel, _) in BACKWARD {
            let mut dx = [f32::NAN; 4];
            let x = [-1e30, -100.0, 100.0, 1e30];
            kernel(Src::from(&x[..]), Src::from(&[1.0; 4][..]), Dst::from(&mut dx[..]));
            assert!(dx[0].abs() < 1e-30 && dx[1].abs() < 1e-30 && dx[2..] == [1.0; 2], "{name}: {dx:?}");
        }
    }

    /// One number at a time, as on a CPU without vectors.
    fn one_by_one<const N: usize>(f: impl LanesMap<N>, x: [&[f32]; N]) -> Vec<f32> {
        (0..x[0].len()).map(|i| f.at(x.map(|x| x[i]))).collect()
    }

    #[test]
    fn vectors_give_the_bits_of_single_numbers() {
        let (x, dy) = (spread(1000), random(1000, 2));
        let check = |name: &str, portable: Vec<f32>, kernel: &dyn Fn(Dst<'_>)| {
            let mut y = vec![f32::NAN; x.len()];
            kernel(Dst::from(&mut y[..]));
            assert!(y.iter().map(|y| y.to_bits()).eq(portable.iter().map(|y| y.to_bits())), "{name}");
        };
        let (sx, sdy) = (Src::from(&x[..]), Src::from(&dy[..]));
        check("gelu", one_by_one(Gelu, [&x]), &|y| gelu(sx, y));
        check("gelu_tanh", one_by_one(GeluTanh, [&x]), &|y| gelu_tanh(sx, y));
        check("silu", one_by_one(Silu, [&x]), &|y| silu(sx, y));
        check("gelu_grad", one_by_one(GeluGrad, [&x, &dy]), &|y| gelu_grad(sx, sdy, y));
        check("gelu_tanh_grad", one_by_one(GeluTanhGrad, [&x, &dy]), &|y| gelu_tanh_grad(sx, sdy, y));
        check("silu_grad", one_by_one(SiluGrad, [&x, &dy]), &|y| silu_grad(sx, sdy, y));
    }
}
