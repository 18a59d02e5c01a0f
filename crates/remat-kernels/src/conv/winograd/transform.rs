//! The transforms of `F(4×4, 3×3)`: polynomials are multiplied by their values at six points.
//!
//! Four outputs of a kernel of three taps on a line are the coefficients of a product of polynomials. It is known from its
//! values at the points 0, ±5/8, ±3/2 and ∞, where it takes one multiplication each: 6 instead of 12, and in two dimensions 36
//! instead of 144. With `d` six inputs, `g` three weights and `m` the six products, `y = Aᵀ[(G g) · (Bᵀ d)]`; the gradient of
//! the weights is `Gᵀ[(Bᵀ d) · (A dy)]`.
//!
//! The points are chosen for accuracy: with them the error of a convolution of 256 channels is 1.5 times that of the
//! plain sum, with the usual 0, ±1, ±2 and ∞ it is 3.7 times that. Multiples of 1/8 make `Aᵀ` and `Bᵀ` exact in `f32`.
//!
//! All functions work lane by lane, so vectors of any width give the same bits.

use crate::base::vector::Vector;

/// Inputs of a tile along a side.
pub(super) const INPUTS: usize = 6;
/// Outputs of a tile along a side.
pub(super) const OUTPUTS: usize = 4;
/// Taps of the kernel along a side.
pub(super) const TAPS: usize = 3;
/// Products of a tile.
pub(super) const PRODUCTS: usize = INPUTS * INPUTS;

/// The points.
const A: f64 = 0.625;
const B: f64 = 1.5;
/// What `G` divides by at 0, ±A and ±B.
const AT_0: f64 = A * A * B * B;
const AT_A: f64 = 2.0 * A * A * (A * A - B * B);
const AT_B: f64 = 2.0 * B * B * (B * B - A * A);

#[inline(always)]
fn number<V: Vector>(x: f64) -> V {
    V::splat(x as f32)
}

/// A transform along a line, from `I` numbers to `O`.
pub(super) trait Transform<const I: usize, const O: usize> {
    fn line<V: Vector>(x: [V; I]) -> [V; O];
}

/// `Bᵀ d`.
pub(super) struct Input;

impl Transform<INPUTS, INPUTS> for Input {
    #[inline(always)]
    fn line<V: Vector>(d: [V; INPUTS]) -> [V; INPUTS] {
        let (a2, b2) = (number::<V>(A * A), number::<V>(B * B));
        let (product, sum) = (number::<V>(A * A * B * B), number::<V>(A * A + B * B));
        let (even_a, odd_a) = (d[2].neg_mul_add(b2, d[4]), d[1].neg_mul_add(b2, d[3]));
        let (even_b, odd_b) = (d[2].neg_mul_add(a2, d[4]), d[1].neg_mul_add(a2, d[3]));
        [
            d[0].mul_add(product, d[2].neg_mul_add(sum, d[4])),
            odd_a.mul_add(number(A), even_a),
            odd_a.neg_mul_add(number(A), even_a),
            odd_b.mul_add(number(B), even_b),
            odd_b.neg_mul_add(number(B), even_b),
            d[1].mul_add(product, d[3].neg_mul_add(sum, d[5])),
        ]
    }
}

/// `G g`.
pub(super) struct Weight;

impl Transform<TAPS, INPUTS> for Weight {
    #[inline(always)]
    fn line<V: Vector>(g: [V; TAPS]) -> [V; INPUTS] {
        let even_a = g[2].mul_add(number(A * A / AT_A), g[0] * number(1.0 / AT_A));
        let even_b = g[2].mul_add(number(B * B / AT_B), g[0] * number(1.0 / AT_B));
        [
            g[0] * number(1.0 / AT_0),
            g[1].mul_add(number(A / AT_A), even_a),
            g[1].neg_mul_add(number(A / AT_A), even_a),
            g[1].mul_add(number(B / AT_B), even_b),
            g[1].neg_mul_add(number(B / AT_B), even_b),
            g[2],
        ]
    }
}

/// `Aᵀ m`.
pub(super) struct Output;

impl Transform<INPUTS, OUTPUTS> for Output {
    #[inline(always)]
    fn line<V: Vector>(m: [V; INPUTS]) -> [V; OUTPUTS] {
        let (sum_a, difference_a) = (m[1] + m[2], m[1] - m[2]);
        let (sum_b, difference_b) = (m[3] + m[4], m[3] - m[4]);
        [
            m[0] + (sum_a + sum_b),
            difference_b.mul_add(number(B), difference_a * number(A)),
            sum_b.mul_add(number(B * B), sum_a * number(A * A)),
            difference_b.mul_add(number(B * B * B), difference_a.mul_add(number(A * A * A), m[5])),
        ]
    }
}

/// `A dy`.
pub(super) struct OutputGrad;

impl Transform<OUTPUTS, INPUTS> for OutputGrad {
    #[inline(always)]
    fn line<V: Vector>(y: [V; OUTPUTS]) -> [V; INPUTS] {
        let even_a = y[2].mul_add(number(A * A), y[0]);
        let even_b = y[2].mul_add(number(B * B), y[0]);
        let odd_a = y[3].mul_add(number(A * A), y[1]);
        let odd_b = y[3].mul_add(number(B * B), y[1]);
        [
            y[0],
            odd_a.mul_add(number(A), even_a),
            odd_a.neg_mul_add(number(A), even_a),
            odd_b.mul_add(number(B), even_b),
            odd_b.neg_mul_add(number(B), even_b),
            y[3],
        ]
    }
}

/// `Gᵀ m`.
pub(super) struct WeightGrad;

impl Transform<INPUTS, TAPS> for WeightGrad {
    #[inline(always)]
    fn line<V: Vector>(m: [V; INPUTS]) -> [V; TAPS] {
        let (sum_a, difference_a) = (m[1] + m[2], m[1] - m[2]);
        let (sum_b, difference_b) = (m[3] + m[4], m[3] - m[4]);
        let first = sum_a.mul_add(number(1.0 / AT_A), m[0] * number(1.0 / AT_0));
        [
            sum_b.mul_add(number(1.0 / AT_B), first),
            difference_b.mul_add(number(B / AT_B), difference_a * number(A / AT_A)),
            sum_b.mul_add(number(B * B / AT_B), sum_a.mul_add(number(A * A / AT_A), m[5])),
        ]
    }
}

/// A transform along the columns and then along the rows.
#[inline(always)]
pub(super) fn both_ways<T: Transform<I, O>, V: Vector, const I: usize, const O: usize>(
    x: &[[V; I]; I],
) -> [[V; O]; O] {
    let zero = V::splat(0.0);
    let mut half = [[zero; I]; O];
    for j in 0..I {
        let mut column = [zero; I];
        for (element, row) in column.iter_mut().zip(x) {
            *element = row[j];
        }
        for (row, element) in half.iter_mut().zip(T::line(column)) {
            row[j] = element;
        }
    }
    let mut out = [[zero; O]; O];
    for (out, half) in out.iter_mut().zip(half) {
        *out = T::line(half);
    }
    out
}
