//! Dropout without a stored mask: element `i` is kept iff half-word `i` of the key's stream reaches a threshold.
//!
//! In: `x`, the probability of dropping, a key. Out: `y = x / (1 - p)` where kept, else 0; `y` may be `x`. The
//! gradient is the same kernel with the same key applied to `dy`. Time O(n), no workspace.
//!
//! Drawing the numbers takes most of the time, so an element gets 16 random bits. The probability is then a multiple of
//! 1 / 65536, and what is kept is scaled by that multiple, so the expected value stays exactly the same.

use std::ops::Range;

use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::rng::{HALVES, Key, halves_from};
#[cfg(target_arch = "x86_64")]
use crate::base::rng::{VectorDraws, WideDraws};

/// Possible draws.
const DRAWS: u32 = 1 << 16;

/// Draws below this number drop their element. Only `p = 0` drops none and only `p = 1` drops all.
pub fn threshold(p: f32) -> u32 {
    let nearest = (f64::from(p) * f64::from(DRAWS)).round() as u32;
    nearest.clamp(u32::from(p > 0.0), DRAWS - u32::from(p < 1.0))
}

/// What a kept element is multiplied with, so that the expected value stays the same.
pub fn factor(p: f32) -> f32 {
    let n_kept = DRAWS - threshold(p);
    if n_kept > 0 { DRAWS as f32 / n_kept as f32 } else { 0.0 }
}

/// Drops elements with probability `p` and scales the others up.
pub fn dropout(x: Src<'_>, p: f32, key: Key, y: Dst<'_>) {
    dropout_from(x, p, key, 0, y);
}

/// [`dropout`] of a part of a tensor: the first element of `x` and `y` is number `first` of the whole.
pub fn dropout_from(x: Src<'_>, p: f32, key: Key, first: u64, y: Dst<'_>) {
    assert_eq!(x.len(), y.len(), "input and output have the same length");
    par::for_each_range(y.len(), par::ELEMENTS_PER_TASK, |range| dropout_range(x, p, key, first, y, range));
}

fn dropout_range(x: Src<'_>, p: f32, key: Key, first: u64, y: Dst<'_>, range: Range<usize>) {
    let rule = Rule { threshold: threshold(p), factor: factor(p) };
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(x: Src<'_>, rule: Rule, key: Key, first: u64, y: Dst<'_>, range: Range<usize>) {
            let draws = VectorDraws::new(key);
            drop_elements(x, rule, |index| draws.halves_from(index), first, y, range);
        }
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2")]
        fn avx512(x: Src<'_>, rule: Rule, key: Key, first: u64, y: Dst<'_>, range: Range<usize>) {
            let draws = WideDraws::new(key);
            drop_elements(x, rule, |index| draws.halves_from(index), first, y, range);
        }
        if crate::base::isa::has_avx512() {
            // SAFETY: the processor has what was chosen.
            return unsafe { avx512(x, rule, key, first, y, range) };
        }
        if crate::base::isa::has_avx2() {
            // SAFETY: as above.
            return unsafe { avx2(x, rule, key, first, y, range) };
        }
    }
    drop_elements(x, rule, |index| halves_from(key, index), first, y, range);
}

/// The numbers of a few groups are drawn while the elements before them are on their way from memory.
#[inline(always)]
fn drop_elements<const GROUPS: usize>(
    x: Src<'_>,
    rule: Rule,
    draw: impl Fn(u64) -> [[u32; HALVES / 2]; GROUPS],
    first: u64,
    y: Dst<'_>,
    range: Range<usize>,
) {
    let mut at = range.start;
    while at < range.end {
        // The first element may be inside a group.
        let mut skipped = ((first + at as u64) % HALVES as u64) as usize;
        let groups = draw(first + at as u64);
        if skipped == 0 && range.end - at >= GROUPS * HALVES {
            for words in &groups {
                // SAFETY: tasks get disjoint ranges.
                unsafe { y.write(at, &rule.apply(x.array(at), words)) }
                at += HALVES;
            }
            continue;
        }
        for words in &groups {
            // No element is left for groups behind the end.
            let width = (HALVES - skipped).min(range.end - at);
            let mut part = [0.0; HALVES];
            x.read(at, &mut part[skipped..skipped + width]);
            // SAFETY: as above.
            unsafe { y.write(at, &rule.apply(part, words)[skipped..skipped + width]) }
            (at, skipped) = (at + width, 0);
        }
    }
}

/// What becomes of an element and its draw.
#[derive(Clone, Copy)]
struct Rule {
    threshold: u32,
    factor: f32,
}

impl Rule {
    /// A group of elements and the words of its draws. Low and high halves have a loop each, or else the compiler mixes
    /// them in its vectors.
    #[inline(always)]
    fn apply(self, mut x: [f32; HALVES], words: &[u32; HALVES / 2]) -> [f32; HALVES] {
        let (low, high) = x.split_at_mut(HALVES / 2);
        for (x, word) in low.iter_mut().zip(words) {
            *x = self.element(*x, word & 0xffff);
        }
        for (x, word) in high.iter_mut().zip(words) {
            *x = self.element(*x, word >> 16);
        }
        x
    }

    /// A mask rather than a choice, which could become a jump that no processor foresees.
    #[inline(always)]
    fn element(self, x: f32, draw: u32) -> f32 {
        let mask = u32::from(draw >= self.threshold).wrapping_neg();
        f32::from_bits((x * self.factor).to_bits() & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::dropout as naive;
    use crate::testing::{LENGTHS, assert_close, out_of_place_and_in_place, random, wide};

    #[test]
    fn agrees_with_the_definition() {
        for n in LENGTHS {
            for p in [0.0, 0.1, 0.5, 0.9, 1.0] {
                let key = Key::new(1, 2, n as u64);
                let inputs = [random(n, 1)];
                let y = out_of_place_and_in_place(inputs.each_ref(), |[x], y| dropout(x, p, key, y));
                assert_close(&y, &naive::dropout(&wide(&inputs[0]), f64::from(p), key), 1e-6);
            }
        }
    }

    #[test]
    fn the_expected_value_is_kept_for_every_probability() {
        for p in [0.0, 1e-9, 1e-5, 0.1, 0.3, 0.5, 0.9, 1.0 - 1e-7] {
            let kept = f64::from(DRAWS - threshold(p)) / f64::from(DRAWS);
            assert!((kept * f64::from(factor(p)) - 1.0).abs() < 1e-7, "{p}");
            assert!((1.0 - kept - f64::from(p)).abs() <= 1.0 / f64::from(DRAWS), "{p}");
        }
        assert_eq!((threshold(0.0), factor(0.0)), (0, 1.0));
        assert_eq!((threshold(1.0), factor(1.0)), (DRAWS, 0.0));
        assert!(threshold(1e-9) == 1 && threshold(1.0 - 1e-7) == DRAWS - 1);
    }

    #[test]
    fn the_share_of_dropped_elements_is_p() {
        let n = 100_000;
        for p in [0.1, 0.5, 0.9] {
            let mut y = vec![1.0; n];
            let x = y.clone();
            dropout(Src::from(&x[..]), p, Key::new(5, 0, 0), Dst::from(&mut y[..]));
            let dropped = y.iter().filter(|&&y| y == 0.0).count() as f32 / n as f32;
            assert!((dropped - p).abs() < 0.01, "{dropped} dropped, want {p}");
        }
    }
}
