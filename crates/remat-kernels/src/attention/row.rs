//! Reductions over one row of a tile, with a fixed number of partial results so that the compiler can use vectors.
//!
//! The number of lanes is part of the arithmetic: element `i` always goes to lane `i % LANES`, and the lanes are
//! combined in order, whatever the CPU. `f32` sums suffice: a row is no longer than a tile or a head.

use crate::base::math::exp;
use crate::base::simd::wide;

const LANES: usize = 16;

wide! {
    /// The largest element, or minus infinity for an empty row.
    pub(super) fn max(row: &[f32]) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for (lane, &value) in lanes.iter_mut().zip(block) {
                *lane = larger(*lane, value);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane = larger(*lane, value);
        }
        lanes.into_iter().fold(f32::NEG_INFINITY, larger)
    }
}

wide! {
    /// Replaces every `x` by `e^(x - shift)` and returns their sum.
    pub(super) fn exp_and_sum(row: &mut [f32], shift: f32) -> f32 {
        let mut lanes = [0.0; LANES];
        let (blocks, rest) = row.as_chunks_mut::<LANES>();
        for block in blocks {
            for (lane, value) in lanes.iter_mut().zip(block) {
                *value = exp(*value - shift);
                *lane += *value;
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            *value = exp(*value - shift);
            *lane += *value;
        }
        lanes.into_iter().sum()
    }
}

wide! {
    /// `Σ a · b`.
    pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
        let mut lanes = [0.0; LANES];
        let ((a_blocks, a_rest), (b_blocks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (a, b) in a_blocks.iter().zip(b_blocks) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += a * b;
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane += a * b;
        }
        lanes.into_iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn reductions_agree_with_the_definition_for_any_length() {
        for len in [0, 1, 15, 16, 17, 100] {
            let (row, other) = (random(len, 1), random(len, 2));
            assert_eq!(max(&row), row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let want: Vec<f32> = row.iter().map(|v| libm::expf(v - 0.5)).collect();
            let mut got = row.clone();
            let sum = exp_and_sum(&mut got, 0.5);
            assert!((sum - want.iter().sum::<f32>()).abs() <= 1e-5 * sum);
            assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-6));
            let want: f32 = row.iter().zip(&other).map(|(a, b)| a * b).sum();
            assert!((dot(&row, &other) - want).abs() < 1e-5);
        }
    }
}
