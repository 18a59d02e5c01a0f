//! Exponential functions of one `f32`, written so that the compiler turns loops over them into vector code.
//!
//! No branches, no tables: range reduction and a polynomial. The coefficients interpolate the function at Chebyshev
//! nodes. Not a number in gives not a number out. Multiply-adds are fused everywhere (`mul_add` rounds once on every
//! CPU, in a library call where there is no instruction), so the bits are the same on every CPU.

/// `1.5 * 2^23 + 127`: adding it rounds a small number `n` to an integer, and the low bits of the sum are then `n + 127`,
/// the exponent field of `2^n`.
const ROUND: f32 = 12_583_039.0;
/// Bits of an `f32` below its exponent field.
const MANTISSA_BITS: u32 = 23;
/// `ln 2` in two parts; the first has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;
/// `1 / sqrt(2 π)`.
const INVERSE_SQRT_TAU: f32 = 0.398_942_3;

/// `e^x`, within 2 units in the last place for `x` in `-87.3..88.3`; below it zero, above it infinity.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons rather than `clamp`, because they let not-a-number through and need no call. At these ends the factor
    // 2^n below is infinity and zero.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -88.0 { -88.0 } else { x };
    // x = n ln 2 + r with |r| <= ln(2) / 2.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    // e^r = 1 + r + r² q(r); relative error of the approximation 1e-8.
    let q = degree_4(r, [0.5, 0.166_665_77, 0.041_666_553, 0.008_363_233, 0.001_392_625_1]);
    let power = 1.0 + (r * r).mul_add(q, r);
    power * f32::from_bits(shifted.to_bits() << MANTISSA_BITS)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `sigmoid(x)` and `1 - sigmoid(x)`, both with small relative error.
#[inline(always)]
pub fn sigmoid_pair(x: f32) -> (f32, f32) {
    let e = exp(-x.abs());
    let large = 1.0 / (1.0 + e);
    let small = e * large;
    if x < 0.0 { (small, large) } else { (large, small) }
}

/// The standard normal distribution function `Φ(x)` and its density `φ(x)`, within 2e-7 (absolute).
///
/// For `t >= 0`, `Φ(-t) = e^(-t²/2) M(t)`, where `M` falls slowly and smoothly: it is `u` times a polynomial in
/// `u = 1 / (1 + 0.3125 t)`. Density and distribution thus share one exponential, and there is no cancellation on the
/// negative side, where `(1 + erf(x / √2)) / 2` loses all its digits.
#[inline(always)]
pub fn normal_cdf_pdf(x: f32) -> (f32, f32) {
    let t = x.abs();
    let u = 1.0 / t.mul_add(0.3125, 1.0);
    // M(t) / u around the middle of the range of u, where the powers stay small.
    let mills = degree_9(
        u - 0.625,
        [
            0.277_217_57,
            0.425_212_76,
            0.399_305_47,
            0.167_917_96,
            -0.060_129_34,
            -0.079_031_35,
            0.023_066_496,
            0.038_235_54,
            -0.015_224_608,
            -0.018_037_781,
        ],
    );
    let bell = exp(-0.5 * t * t);
    let tail = bell * (u * mills);
    (if x < 0.0 { tail } else { 1.0 - tail }, bell * INVERSE_SQRT_TAU)
}

/// `c[0] + c[1] x + … + c[4] x⁴`; like [`degree_9`], in short chains of dependent operations, which limit the speed more
/// than the number of operations does.
#[inline(always)]
fn degree_4(x: f32, c: [f32; 5]) -> f32 {
    let x2 = x * x;
    let low = c[1].mul_add(x, c[0]);
    let high = c[3].mul_add(x, c[2]);
    c[4].mul_add(x2, high).mul_add(x2, low)
}

/// `c[0] + c[1] x + … + c[9] x⁹`.
#[inline(always)]
fn degree_9(x: f32, c: [f32; 10]) -> f32 {
    let x2 = x * x;
    let x4 = x2 * x2;
    let low = c[3].mul_add(x, c[2]).mul_add(x2, c[1].mul_add(x, c[0]));
    let middle = c[7].mul_add(x, c[6]).mul_add(x2, c[5].mul_add(x, c[4]));
    let high = c[9].mul_add(x, c[8]);
    high.mul_add(x4, middle).mul_add(x4, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the (normal) `f32` nearest to `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        let nearest = (want as f32).abs().max(f32::MIN_POSITIVE);
        let unit = f32::from_bits(nearest.to_bits() + 1) - nearest;
        (f64::from(got) - want).abs() / f64::from(unit)
    }

    fn sweep(from: f32, to: f32) -> impl Iterator<Item = f32> {
        let n = 200_000;
        (0..=n).map(move |i| from + (to - from) * (i as f32 / n as f32))
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for x in sweep(-87.3, 88.3).chain(sweep(-1.0, 1.0)) {
            let error = ulps(exp(x), libm::exp(f64::from(x)));
            assert!(error <= 2.0, "exp({x}): {error} units");
        }
    }

    #[test]
    fn exp_at_the_ends_of_its_range() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::from_bits(0x7fc0_0001)).is_nan());
        // Between the normal range and zero: one of the neighbours of the true value, which is below 2^-126.
        for x in sweep(-104.0, -87.3) {
            assert!((0.0..=f32::MIN_POSITIVE * 1.1).contains(&exp(x)), "exp({x}) = {:e}", exp(x));
        }
        for x in sweep(88.3, 89.5) {
            assert!(exp(x) > 2.2e38, "exp({x}) = {:e}", exp(x));
        }
    }

    #[test]
    fn normal_distribution_is_within_its_stated_error() {
        for x in sweep(-15.0, 15.0).chain(sweep(-1.0, 1.0)) {
            let wide = f64::from(x);
            let (cdf, pdf) = normal_cdf_pdf(x);
            let want_cdf = 0.5 * libm::erfc(-wide * std::f64::consts::FRAC_1_SQRT_2);
            let want_pdf = libm::exp(-0.5 * wide * wide) / libm::sqrt(std::f64::consts::TAU);
            assert!((f64::from(cdf) - want_cdf).abs() < 2e-7, "Φ({x}) = {cdf}, want {want_cdf}");
            assert!((f64::from(pdf) - want_pdf).abs() < 1e-7, "φ({x}) = {pdf}, want {want_pdf}");
            // The tail keeps its relative accuracy, up to the rounding of x² / 2.
            if (-8.0..0.0).contains(&x) {
                assert!(
                    (f64::from(cdf) / want_cdf - 1.0).abs() < 4e-6,
                    "Φ({x}) = {cdf:e}, want {want_cdf:e}"
                );
            }
        }
        assert_eq!(normal_cdf_pdf(f32::INFINITY), (1.0, 0.0));
        assert_eq!(normal_cdf_pdf(f32::NEG_INFINITY), (0.0, 0.0));
        assert!(normal_cdf_pdf(f32::NAN).0.is_nan());
    }

    #[test]
    fn sigmoid_is_accurate_on_both_sides() {
        for x in sweep(-80.0, 80.0) {
            let want = |x: f32| 1.0 / (1.0 + libm::exp(-f64::from(x)));
            let (s, rest) = sigmoid_pair(x);
            let error = ulps(sigmoid(x), want(x)).max(ulps(s, want(x))).max(ulps(rest, want(-x)));
            assert!(error <= 3.0, "sigmoid({x}): {error} units");
        }
    }
}
