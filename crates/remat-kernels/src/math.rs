//! Exponential functions of one `f32`, written so that the compiler turns loops over them into vector code.
//!
//! No branches, no tables, no library calls: range reduction and a polynomial. The coefficients interpolate the
//! function at Chebyshev nodes. Not a number in gives not a number out. The bits are the same on every CPU.

/// `1.5 * 2^23`: adding it rounds a small number to an integer, which then stands in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts; the first has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;
/// `1 / sqrt(2 π)`.
const INVERSE_SQRT_TAU: f32 = 0.398_942_3;

/// `e^x`, within 2 units in the last place; zero and infinity outside the range of `f32`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Comparisons rather than `clamp`, because they let not-a-number through and need no call.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    // x = n ln 2 + r with |r| <= ln(2) / 2.
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    // e^r = 1 + r + r² q(r); relative error of the approximation 1e-8.
    let q = horner(r, [0.5, 0.166_665_77, 0.041_666_553, 0.008_363_233, 0.001_392_625_1]);
    let power = 1.0 + (r + r * r * q);
    // 2^n in two factors: n reaches from -150 to 128, which is more than one exponent field can hold.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    power * power_of_two(half) * power_of_two(n.wrapping_sub(half))
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
    let u = 1.0 / (1.0 + 0.3125 * t);
    // M(t) / u around the middle of the range of u, where the powers stay small.
    let mills = horner(
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

/// `2^n` for `n` in `-126..=127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `c[0] + c[1] x + c[2] x² + …`
#[inline(always)]
fn horner<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum * x + c[i];
    }
    sum
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
        for x in sweep(-87.0, 88.7).chain(sweep(-1.0, 1.0)) {
            let error = ulps(exp(x), libm::exp(f64::from(x)));
            assert!(error <= 2.0, "exp({x}): {error} units");
        }
    }

    #[test]
    fn exp_at_the_ends_of_its_range() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-104.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        let subnormal = exp(-100.0);
        assert!((f64::from(subnormal) - libm::exp(-100.0)).abs() < 2e-45, "exp(-100) = {subnormal:e}");
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
