//! Packing with vector instructions; the compiler needs three times as long for the same exchanges.

use super::{LEFT_STRIDE, VECTOR};
use crate::product::micro::ROWS;
use std::arch::x86_64::{
    __m256, _mm_loadu_ps, _mm256_blend_ps, _mm256_loadu_ps, _mm256_set_m128, _mm256_setzero_ps,
    _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

/// Steps that [`copy_rows`] takes at once: four times six elements are three vectors.
pub(super) const STEPS: usize = 4;

/// See [`super::copy_rows`]; `len` is a multiple of `STEPS`.
///
/// # Safety
/// Source and target are as long as asserted there, and a step is at least `ROWS` elements.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_rows(from: &[f32], step: usize, len: usize, n_panels: usize, panels: &mut [f32]) {
    let (from, panels) = (from.as_ptr(), panels.as_mut_ptr());
    for k in (0..len).step_by(STEPS) {
        for panel in 0..n_panels {
            // SAFETY: a vector that begins before a row or ends behind it reaches into the row before or behind it, which
            // is among the four.
            unsafe {
                let row = |i: usize| from.add((k + i) * step + panel * ROWS);
                let to = panels.add(panel * LEFT_STRIDE + k * ROWS);
                let first =
                    _mm256_blend_ps::<0b1100_0000>(_mm256_loadu_ps(row(0)), _mm256_loadu_ps(row(1).sub(6)));
                let second = _mm256_set_m128(_mm_loadu_ps(row(2)), _mm_loadu_ps(row(1).add(2)));
                let third = _mm256_blend_ps::<0b1111_1100>(
                    _mm256_loadu_ps(row(2).add(4)),
                    _mm256_loadu_ps(row(3).sub(2)),
                );
                _mm256_storeu_ps(to, first);
                _mm256_storeu_ps(to.add(VECTOR), second);
                _mm256_storeu_ps(to.add(2 * VECTOR), third);
            }
        }
    }
}

/// See [`super::transpose`]; `len` is a multiple of `VECTOR`. Squares of eight steps change places in registers: the loads
/// exchange halves, two rounds of shuffles the rest.
///
/// # Safety
/// Source and target are as long as asserted there.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose<const N: usize, const W: usize>(
    from: &[f32],
    across: usize,
    len: usize,
    to: &mut [f32],
) {
    const HALF: usize = VECTOR / 2;
    const { assert!(HALF <= N && N <= VECTOR && N <= W) };
    let (from, to) = (from.as_ptr(), to.as_mut_ptr());
    for k in (0..len).step_by(HALF) {
        let mut rows: [__m256; HALF] = [_mm256_setzero_ps(); HALF];
        for (i, rows) in rows.iter_mut().enumerate() {
            // Rows beyond the last are written behind the others, where nothing counts.
            let other = if i + HALF < N { i + HALF } else { i };
            // SAFETY: four steps of rows below `N`.
            unsafe {
                let (low, high) = (from.add(i * across + k), from.add(other * across + k));
                *rows = _mm256_set_m128(_mm_loadu_ps(high), _mm_loadu_ps(low));
            }
        }
        let [a, b, c, d] = rows;
        let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        let steps = [
            _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
            _mm256_shuffle_ps::<0xee>(ab_low, cd_low),
            _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
        ];
        for (i, step) in steps.into_iter().enumerate() {
            // SAFETY: the vector of a step below `len`.
            unsafe { _mm256_storeu_ps(to.add((k + i) * W), step) };
        }
    }
}
