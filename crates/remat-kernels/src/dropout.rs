//! Dropout without a stored mask: element `i` is kept iff half-word `i` of the key's stream reaches a threshold.
//!
//! In: `x`, the probability of dropping, a key. Out: `y = x / (1 - p)` where kept, else 0; `y` may be `x`. The
//! gradient is the same kernel with the same key applied to `dy`. Time O(n), no workspace.
//!
//! Drawing the numbers takes most of the time, so an element gets 16 random bits. The probability is then a multiple of
//! 1 / 65536, and what is kept is scaled by that multiple, so the expected value stays exactly the same.

use std::ops::Range;

use crate::par;
use crate::raw::{Dst, Src};
use crate::rng::{Key, MOST_HALVES, fill_u16};
use crate::simd::wide;

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

/// Elements whose random numbers are drawn together.
const BLOCK: usize = MOST_HALVES;

wide! {
    fn dropout_range(x: Src<'_>, p: f32, key: Key, first: u64, y: Dst<'_>, range: Range<usize>) {
        let (threshold, factor) = (threshold(p), factor(p));
        let mut block = [0.0; BLOCK];
        let mut draws = [0; BLOCK];
        for at in range.clone().step_by(BLOCK) {
            let width = BLOCK.min(range.end - at);
            x.read(at, &mut block[..width]);
            fill_u16(key, first + at as u64, &mut draws[..width]);
            for (x, &draw) in block.iter_mut().zip(&draws) {
                *x = if draw >= threshold { *x * factor } else { 0.0 };
            }
            // SAFETY: tasks get disjoint ranges, and this task has read the block already.
            unsafe { y.write(at, &block[..width]) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::tests::{LENGTHS, out_of_place_and_in_place};
    use crate::naive::dropout as naive;
    use crate::testing::{assert_close, random, wide};

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
