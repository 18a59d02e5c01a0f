//! Sums over one row of a head, with a fixed number of partial results so that the compiler can use vectors.
//!
//! The number of lanes is part of the arithmetic: element `i` always goes to lane `i % LANES`, and the lanes are
//! combined in order, whatever the CPU. `f32` sums suffice: a row is no longer than a head.

use crate::base::simd::wide;

const LANES: usize = 16;

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
    fn sums_agree_with_the_definition_for_any_length() {
        for len in [0, 1, 15, 16, 17, 100] {
            let (row, other) = (random(len, 1), random(len, 2));
            let want: f32 = row.iter().zip(&other).map(|(a, b)| a * b).sum();
            assert!((dot(&row, &other) - want).abs() < 1e-5);
        }
    }
}
