//! Exponential functions and what is made of them, without branches, so that they become vector code.
//!
//! [`exp`] is also a function of one `f32`, and the compiler makes vectors of loops over it. All take any `Lanes`. They are polynomials, after a reduction of the range and a look into a table of eight numbers where there is an
//! exponential. The coefficients interpolate the function at Chebyshev nodes or make the largest error smallest. Not a
//! number in gives not a number out. Multiply-adds are fused everywhere (`mul_add` rounds once on every CPU, in a library
//! call where there is no instruction), so the bits are the same on every CPU. Products have a faster one of their own.
//!
//! **Why by hand.** `libm` is scalar and branches, so loops over it stay scalar; bindings to a C library of vector functions
//! would need a C compiler; and what the standard library calls differs between systems, and so do its bits. Where a
//! function is called once for a row or a step, it is that of `libm`: Rust source, compiled into the program, within a
//! unit in the last place of an `f64`. `clippy.toml` rejects what the standard library passes on to the system.

mod lanes;

pub(crate) use lanes::{BUNDLE, Bundle, Lanes, MANTISSA_BITS};
#[cfg(target_arch = "x86_64")]
pub(crate) use lanes::{ROOT_BITS, SHIFT};

/// `1.5 * 2^23`: adding it rounds a small number to an integer, which the low bits of the sum then are.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts; the first has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;

/// The exponent of the least normal number.
const LEAST_NORMAL: i32 = f32::MIN_EXP - 1;
/// The exponent of the least weight that a softmax gives beside zero.
///
/// Arithmetic on subnormal numbers takes a hundred cycles on many processors, and products of unlikely classes with small
/// numbers are full of them: a classifier with extreme logits took seven times as long. What lies below 2^-100 of the largest
/// weight is far below its rounding error, so it is zero, and what is left has room for factors before it gets subnormal.
const LEAST_WEIGHT: i32 = -100;

/// `e^x`, within 2 units in the last place for `x` in `-87.3..88.3`; below it zero, above it infinity.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    exp_or_zero::<f32, LEAST_NORMAL>(x)
}

/// `e^x` for the weights of a softmax: [`exp`], but zero where that is below 2^-100.
#[inline(always)]
pub(crate) fn exp_of_weight<T: Lanes>(x: T) -> T {
    exp_or_zero::<T, LEAST_WEIGHT>(x)
}

/// `e^x`, or zero where it is below `2^LEAST`.
#[inline(always)]
fn exp_or_zero<T: Lanes, const LEAST: i32>(x: T) -> T {
    // At these ends the factor 2^n below is infinity and zero.
    let x = x.at_most(89.0).at_least((LEAST - 1) as f32 * std::f32::consts::LN_2);
    // x = n ln 2 + r with |r| <= ln(2) / 2. The exponent field of the factor is zero for the first n below LEAST.
    let round = T::splat(ROUND + (1 - LEAST) as f32);
    let shifted = x.mul_add(T::splat(std::f32::consts::LOG2_E), round);
    let n = shifted - round;
    let r = n.mul_add(T::splat(-LN_2_LOW), n.mul_add(T::splat(-LN_2_HIGH), x));
    // e^r = 1 + r + r² q(r); relative error of the approximation 1e-8.
    let q = degree_4(r, [0.5, 0.166_665_77, 0.041_666_553, 0.008_363_233, 0.001_392_625_1]);
    let unit = T::splat(unit::<LEAST>());
    let power = (r * r).mul_add(q, r).mul_add(unit, unit);
    power * shifted.low_bits_as_exponent()
}

/// What a number is multiplied with whose factor `2^n` has the exponent field 1 for `n = LEAST`.
const fn unit<const LEAST: i32>() -> f32 {
    f32::from_bits(((LEAST - LEAST_NORMAL + 127) as u32) << MANTISSA_BITS)
}

/// `x`, or zero where it is smaller than `least`, which is not negative; a zero keeps the sign of `x`. Compares bits, because
/// arithmetic on subnormal numbers may be what is to be avoided.
#[inline(always)]
pub(crate) fn zero_below(least: f32, x: f32) -> f32 {
    const SIGN: u32 = 1 << 31;
    let bits = x.to_bits();
    f32::from_bits(bits & if bits & !SIGN < least.to_bits() { SIGN } else { u32::MAX })
}

/// `a * b + c`, rounded once, like [`f32::mul_add`], in vector code where the target has no instruction for it. There
/// `mul_add` is a call for every element, which takes more than twice as long.
///
/// In `f64` the product is exact and only the sum is rounded. If that lost something, the sum is made to end in an odd bit
/// ("rounding to odd"), which keeps the second rounding, to `f32`, from taking it for a tie.
#[inline(always)]
pub(crate) fn fused_multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        return a.mul_add(b, c);
    }
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum: f64 = product + c;
    let from_c = sum - product;
    let lost = (product - (sum - from_c)) + (c - from_c);
    let bits = sum.to_bits();
    // Integers rather than conditions, which would not become vector code. Not-a-number compares as nothing lost.
    let is_inexact = u64::from(lost > 0.0) | u64::from(lost < 0.0);
    let is_larger = u64::from((lost > 0.0) == (sum > 0.0));
    let is_even = is_inexact & !bits;
    f64::from_bits(bits.wrapping_sub(is_even).wrapping_add((is_even & is_larger) << 1)) as f32
}

/// `1.5 * 2^20`: adding it rounds a small number to eighths, which the low bits of the sum then are.
const ROUND_TO_EIGHTHS: f32 = 1_572_864.0;

/// `2^y` for `y` in `-126.0..=127.0`, within 2e-7 (relative).
#[inline(always)]
pub(crate) fn exp2_bounded<T: Lanes>(y: T) -> T {
    let round = T::splat(round_to_eighths::<LEAST_NORMAL>());
    let shifted = (y + round).in_step();
    exp2_of_parts::<T, LEAST_NORMAL>(shifted, y - (shifted - round))
}

/// `e^x` for `x` in `-87.0..=88.0`, within 2e-7 + 1.4e-8 |x| (relative): faster than [`exp`], because
/// nothing is done about other `x` and about the error of the constant `log2 e`.
#[inline(always)]
pub(crate) fn exp_bounded<T: Lanes>(x: T) -> T {
    exp_of_bounded::<T, LEAST_NORMAL>(x)
}

/// [`exp_of_weight`] for `x` that are not above zero, with the error of [`exp_bounded`].
#[inline(always)]
pub(crate) fn exp_of_weight_bounded<T: Lanes>(x: T) -> T {
    exp_of_bounded::<T, LEAST_WEIGHT>(x.at_least((LEAST_WEIGHT - 1) as f32 * std::f32::consts::LN_2))
}

/// `e^x` for `x` in `LEAST ln 2..=88.0`, 0 at `(LEAST - 1) ln 2`, and something between 0 and `2^LEAST` between them.
#[inline(always)]
fn exp_of_bounded<T: Lanes, const LEAST: i32>(x: T) -> T {
    let (log2_e, round) = (T::splat(std::f32::consts::LOG2_E), T::splat(round_to_eighths::<LEAST>()));
    let shifted = x.mul_add(log2_e, round).in_step();
    exp2_of_parts::<T, LEAST>(shifted, x.mul_add(log2_e, round - shifted))
}

/// Rounds to eighths and adds what makes the exponent field 1 for `LEAST`.
const fn round_to_eighths<const LEAST: i32>() -> f32 {
    ROUND_TO_EIGHTHS + (1 - LEAST) as f32
}

/// `2^(n + r)` of `r` in `-1/16..=1/16` and a number of eighths, which is given as `n` plus [`round_to_eighths`].
///
/// A table of eight numbers is a vector, so looking one up is an instruction, and it saves half of the polynomial.
#[inline(always)]
fn exp2_of_parts<T: Lanes, const LEAST: i32>(shifted: T, r: T) -> T {
    // 2^r = 1 + r q(r); relative error of the approximation 4e-8.
    let unit = unit::<LEAST>();
    let c = [std::f32::consts::LN_2, 0.240_264_07, 0.055_509_318].map(|c| T::splat(unit * c));
    let q = c[2].mul_add(r, c[1]).mul_add(r, c[0]).in_step();
    (q.mul_add(r, T::splat(unit)) * shifted.low_bits_as_eighths()).in_step()
}

/// The standard normal distribution function `Φ(x)`, within 2e-7 (absolute).
///
/// `Φ - 1/2` is odd: `x` times a polynomial in `x²`, which is shifted and scaled to `-1..=1`, where the powers stay small.
/// From `|x| = 5.5` on the result is 0 or 1. Like `(1 + erf(x / √2)) / 2` it does not keep the relative accuracy of the
/// left tail; that would take an exponential and a division.
#[inline(always)]
pub(crate) fn normal_cdf<T: Lanes>(x: T) -> T {
    half_plus_odd(
        x,
        5.5,
        [
            0.128_551_93,
            -0.064_172_47,
            0.047_736_965,
            -0.038_787_246,
            0.032_082_204,
            -0.026_112_655,
            0.020_284_895,
            -0.014_670_663_5,
            0.010_478_309,
            -0.007_675_946_7,
            0.004_220_898,
            -0.001_228_296_3,
            0.001_036_025_6,
            -0.001_369_194_6,
            0.000_534_334_9,
        ],
    )
}

/// The derivative of `x Φ(x)`, `Φ(x) + x φ(x)`, within 3.5e-7 (absolute); 0 or 1 from `|x| = 6` on.
///
/// It is also 1/2 plus an odd function, so it needs no density.
#[inline(always)]
pub(crate) fn gelu_slope<T: Lanes>(x: T) -> T {
    half_plus_odd(
        x,
        6.0,
        [
            0.117_897_78,
            -0.059_342_656,
            0.046_055_466,
            -0.042_373_575,
            0.044_619_48,
            -0.050_812_423,
            0.057_997_35,
            -0.065_161_385,
            0.070_657_86,
            -0.062_683_74,
            0.042_893_592,
            -0.042_592_07,
            0.052_015_79,
            -0.025_748_866,
            -0.005_353_344,
            -0.002_770_736_3,
            0.013_824_779,
            -0.005_789_957,
        ],
    )
}

/// `1/2 + x p(2 (x / end)² - 1)` for `x` in `-end..=end`, the values at the ends beyond.
#[inline(always)]
fn half_plus_odd<T: Lanes, const N: usize>(x: T, end: f32, p: [f32; N]) -> T {
    let x = x.at_most(end).at_least(-end);
    let s = (x * x).mul_add(T::splat(2.0 / (end * end)), T::splat(-1.0));
    // Not fused, because the rounded product is exactly 1/2 at the ends.
    T::splat(0.5) + x * polynomial_in_parts(s, p)
}

/// `c[0] + c[1] x + … + c[4] x⁴`; in short chains of dependent operations, which limit the speed
/// more than the number of operations does.
#[inline(always)]
fn degree_4<T: Lanes>(x: T, c: [f32; 5]) -> T {
    let x2 = x * x;
    let low = T::splat(c[1]).mul_add(x, T::splat(c[0]));
    let high = T::splat(c[3]).mul_add(x, T::splat(c[2]));
    T::splat(c[4]).mul_add(x2, high).mul_add(x2, low)
}

/// `c[0] + c[1] x + … + c[N - 1] x^(N - 1)`, more than eight terms: eight in one chain and the rest in another. Even and
/// odd powers in a chain each would be faster; but where the signs alternate, neighbouring powers cancel as they are
/// added, and less is lost to rounding.
#[inline(always)]
fn polynomial_in_parts<T: Lanes, const N: usize>(x: T, c: [f32; N]) -> T {
    const LOW: usize = 8;
    let (mut low, mut high) = (T::splat(c[LOW - 1]), T::splat(c[N - 1]));
    for step in 2..=LOW.max(N - LOW) {
        if step <= LOW {
            low = low.mul_add(x, T::splat(c[LOW - step])).in_step();
        }
        if step <= N - LOW {
            high = high.mul_add(x, T::splat(c[N - step])).in_step();
        }
    }
    let x2 = x * x;
    let x4 = x2 * x2;
    high.mul_add(x4 * x4, low)
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
    fn weights_are_exponentials_or_zero() {
        let end = LEAST_WEIGHT as f32 * std::f32::consts::LN_2;
        for x in sweep(end + 0.01, 0.5) {
            assert_eq!(exp_of_weight(x).to_bits(), exp(x).to_bits(), "{x}");
        }
        for x in sweep(end + 0.01, 0.0) {
            assert_eq!(exp_of_weight_bounded(x).to_bits(), exp_bounded(x).to_bits(), "{x}");
        }
        for x in sweep(end - 0.7, end + 0.01) {
            assert!((0.0..=1.02 * exp(end)).contains(&exp_of_weight(x)), "{x}");
            assert!((0.0..=1.02 * exp(end)).contains(&exp_of_weight_bounded(x)), "{x}");
        }
        for x in sweep(-200.0, end - 0.7).chain([f32::MIN, f32::NEG_INFINITY]) {
            assert_eq!((exp_of_weight(x), exp_of_weight_bounded(x)), (0.0, 0.0), "{x}");
        }
        assert!(exp_of_weight(f32::NAN).is_nan() && exp_of_weight_bounded(f32::NAN).is_nan());
    }

    #[test]
    fn small_numbers_become_zero_and_nothing_else_changes() {
        for least in [f32::MIN_POSITIVE, 1e-18] {
            for x in [0.0, least, 1.0, f32::MAX, f32::INFINITY, f32::NAN] {
                for x in [x, -x] {
                    assert_eq!(zero_below(least, x).to_bits(), x.to_bits());
                    assert_eq!(zero_below(0.0, x).to_bits(), x.to_bits());
                }
            }
            for x in [f32::from_bits(1), f32::from_bits(least.to_bits() - 1)] {
                assert_eq!(zero_below(least, x).to_bits(), 0.0f32.to_bits());
                assert_eq!(zero_below(least, -x).to_bits(), (-0.0f32).to_bits());
                assert_eq!(zero_below(0.0, x).to_bits(), x.to_bits());
            }
        }
    }

    #[test]
    fn multiply_adds_are_rounded_once() {
        let key = crate::base::rng::Key::new(1, 2, 3);
        let any = |index: u64| f32::from_bits(crate::base::rng::uniform_u32(key, index));
        let check = |a: f32, b: f32, c: f32| {
            let (got, want) = (fused_multiply_add(a, b, c), a.mul_add(b, c));
            let is_same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(is_same, "{a:e} * {b:e} + {c:e} is {want:e}, not {got:e}");
        };
        for i in 0..if cfg!(miri) { 300 } else { 1_000_000 } {
            let (a, b) = (any(3 * i), any(3 * i + 1));
            check(a, b, any(3 * i + 2));
            // Terms that cancel all but the last bits of the product, and terms near the end of its last bits.
            let bits = (a * b).to_bits() ^ 0x8000_0000;
            check(a, b, f32::from_bits(bits.wrapping_add(any(3 * i + 2).to_bits() % 5).wrapping_sub(2)));
            check(a, b, f32::from_bits(bits.wrapping_sub((any(3 * i + 2).to_bits() % 60) << MANTISSA_BITS)));
        }
        let special =
            [0.0, -0.0, 1.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, f32::INFINITY, f32::NAN];
        let signed = || special.into_iter().flat_map(|x: f32| [x, -x]);
        for a in signed() {
            for b in signed() {
                signed().for_each(|c| check(a, b, c));
            }
        }
    }

    #[test]
    fn bounded_exponentials_are_within_their_stated_error() {
        for x in sweep(-87.0, 88.0).chain(sweep(-1.0, 1.0)) {
            let error = f64::from(exp_bounded(x)) / libm::exp(f64::from(x)) - 1.0;
            assert!(error.abs() < 2e-7 + 1.4e-8 * f64::from(x.abs()), "exp({x}): {error:e}");
        }
        for y in sweep(-126.0, 127.0).chain(sweep(-1.0, 1.0)) {
            let error = f64::from(exp2_bounded(y)) / libm::exp2(f64::from(y)) - 1.0;
            assert!(error.abs() < 2e-7, "2^{y}: {error:e}");
        }
        assert_eq!((exp_bounded(0.0), exp2_bounded(0.0), exp_bounded(-88.0)), (1.0, 1.0, 0.0));
        assert!(exp_bounded(f32::NAN).is_nan() && exp2_bounded(f32::NAN).is_nan());
    }

    #[test]
    fn normal_distribution_and_slope_are_within_their_stated_error() {
        let cdf = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        let slope = |x: f64| cdf(x) + x * libm::exp(-0.5 * x * x) / libm::sqrt(std::f64::consts::TAU);
        let mut worst = (0.0f64, 0.0f64);
        for x in sweep(-15.0, 15.0).chain(sweep(-6.0, 6.0)).chain(sweep(-1.0, 1.0)) {
            let wide = f64::from(x);
            let errors = (f64::from(normal_cdf(x)) - cdf(wide), f64::from(gelu_slope(x)) - slope(wide));
            worst = (worst.0.max(errors.0.abs()), worst.1.max(errors.1.abs()));
        }
        assert!(worst.0 < 2e-7 && worst.1 < 3.5e-7, "{worst:?}");
        for (function, end) in [(normal_cdf::<f32> as fn(f32) -> f32, 5.5), (gelu_slope::<f32>, 6.0)] {
            assert_eq!([function(end), function(1e30), function(f32::INFINITY)], [1.0; 3]);
            assert_eq!([function(-end), function(-1e30), function(f32::NEG_INFINITY)], [0.0; 3]);
            assert!(function(f32::NAN).is_nan());
        }
    }
}
