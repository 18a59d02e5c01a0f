//! The innermost loop of every product: a tile of 6 × 16 sums that stays in registers.
//!
//! In: runs of products. In a run, each of the six rows of the left operand has a pointer and the right operand is a
//! sequence of vectors of 16 neighbours; step `k` adds `left[i][k · left_step] · right[k · right_step + j]` to the sum
//! `(i, j)`. Out: the sums, written or added to six rows of the output.
//!
//! The left operand is read where it lies: an image, whose receptive field is one run of channels for every tap.
//!
//! Invariant: a sum depends on the order of its runs and steps alone, not on which other sums share the tile; so how
//! the output is cut into tiles changes no bit. Products are fused into the sums on every processor. Twelve vector
//! sums, two right vectors and a broadcast fill 15 of the 16 registers of AVX2, and 12 multiply-adds hide the 8 loads
//! that feed them. Processors with AVX-512 run the same code.

use crate::base::math::fused_multiply_add;

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;
/// Columns of a tile.
pub(crate) const COLS: usize = 16;
/// Steps that are worth one visit of the output, and few enough for a panel of the right operand to stay in the
/// first-level cache.
pub(crate) const DEPTH: usize = 320;

/// What happens to the old contents of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are not read.
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

/// Where a run reads: one pointer for every row of the left operand, and the first vector of the right one.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) left: [*const f32; ROWS],
    pub(crate) right: *const f32,
}

/// The steps of every run of a call.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Steps of a run.
    pub(crate) len: usize,
    /// Elements from one step to the next along a row of the left operand.
    pub(crate) left: usize,
    /// Elements from one vector of the right operand to the next.
    pub(crate) right: usize,
}

/// Where the sums of a tile go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The first element of every row; those from `n_rows` on are not used.
    pub(crate) rows: [*mut f32; ROWS],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    /// Elements from one column to the next.
    pub(crate) col_stride: usize,
    pub(crate) write: Write,
    /// Factor of the sums.
    pub(crate) alpha: f32,
}

/// Sums the runs `run(0)`, `run(1)`, … `run(n_runs - 1)` into `target`.
///
/// # Safety
/// All steps of all runs are readable (16 elements of the right operand in each), also for rows and columns beyond
/// the target; the used elements of the target are writable and touched by nothing else.
#[inline(always)]
pub(crate) unsafe fn tile(n_runs: usize, run: impl Fn(usize) -> Run, steps: Steps, target: &Target) {
    #[cfg(target_arch = "x86_64")]
    if crate::base::isa::has_avx2() {
        // SAFETY: the processor has what was chosen; the rest is the caller's promise.
        return unsafe {
            match target.n_rows {
                0..=2 => avx2::tile::<2>(n_runs, run, steps, target),
                3..=4 => avx2::tile::<4>(n_runs, run, steps, target),
                _ => avx2::tile::<ROWS>(n_runs, run, steps, target),
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { portable(n_runs, run, steps, target) }
}

/// # Safety
/// See [`tile`].
unsafe fn portable(n_runs: usize, run: impl Fn(usize) -> Run, steps: Steps, target: &Target) {
    let mut sums = [[0.0f32; COLS]; ROWS];
    for r in 0..n_runs {
        let run = run(r);
        for k in 0..steps.len {
            // SAFETY: in range by the caller's promise.
            let right = unsafe { run.right.add(k * steps.right).cast::<[f32; COLS]>().read_unaligned() };
            for (sums, left) in sums.iter_mut().zip(run.left) {
                // SAFETY: as above.
                let left = unsafe { left.add(k * steps.left).read() };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = fused_multiply_add(left, right, *sum);
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { write_part(&sums, target) }
}

/// Writes the sums that belong to the target, one by one.
///
/// # Safety
/// See [`tile`].
unsafe fn write_part(sums: &[[f32; COLS]; ROWS], target: &Target) {
    for (sums, &row) in sums.iter().zip(&target.rows).take(target.n_rows) {
        for (j, sum) in sums.iter().enumerate().take(target.n_cols) {
            // SAFETY: a used element of the target.
            unsafe {
                let out = row.add(j * target.col_stride);
                let product = target.alpha * sum;
                *out = if target.write == Write::Accumulate { *out + product } else { product };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{COLS, ROWS, Run, Steps, Target, Write, write_part};
    use std::arch::x86_64::{
        __m256, _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    const LANES: usize = 8;
    type Sums<const R: usize> = [[__m256; COLS / LANES]; R];

    /// Computes `R` rows, at least as many as the target has: of 64 rows, which many layers have, the last four make a tile.
    ///
    /// # Safety
    /// See [`super::tile`].
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn tile<const R: usize>(
        n_runs: usize,
        run: impl Fn(usize) -> Run,
        steps: Steps,
        target: &Target,
    ) {
        let whole = target.n_rows == R && target.n_cols == COLS && target.col_stride == 1;
        if whole {
            for row in &target.rows[..R] {
                _mm_prefetch::<_MM_HINT_T0>(row.cast());
            }
        }
        let mut sums: Sums<R> = [[_mm256_setzero_ps(); COLS / LANES]; R];
        for r in 0..n_runs {
            let run = run(r);
            let (mut left_at, mut right) = (0, run.right);
            for _ in 0..steps.len {
                // SAFETY: in range by the caller's promise.
                unsafe {
                    let right_0 = _mm256_loadu_ps(right);
                    let right_1 = _mm256_loadu_ps(right.add(LANES));
                    for (sums, left) in sums.iter_mut().zip(run.left) {
                        let left = _mm256_broadcast_ss(&*left.add(left_at));
                        sums[0] = _mm256_fmadd_ps(left, right_0, sums[0]);
                        sums[1] = _mm256_fmadd_ps(left, right_1, sums[1]);
                    }
                }
                left_at += steps.left;
                right = right.wrapping_add(steps.right);
            }
        }
        if whole {
            // SAFETY: all elements of the tile belong to the target.
            unsafe { write_whole(&sums, target) }
        } else {
            let mut part = [[0.0; COLS]; ROWS];
            for (part, sums) in part.iter_mut().zip(sums) {
                for (part, sums) in part.chunks_exact_mut(LANES).zip(sums) {
                    // SAFETY: a chunk has as many elements as a vector.
                    unsafe { _mm256_storeu_ps(part.as_mut_ptr(), sums) };
                }
            }
            // SAFETY: the caller's promise.
            unsafe { write_part(&part, target) }
        }
    }

    /// # Safety
    /// All elements of the tile belong to the target, and its columns are neighbours.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn write_whole<const R: usize>(sums: &Sums<R>, target: &Target) {
        let alpha = _mm256_set1_ps(target.alpha);
        for (sums, row) in sums.iter().zip(target.rows) {
            for (half, &sum) in sums.iter().enumerate() {
                // SAFETY: in range by the caller's promise.
                unsafe {
                    let out = row.add(half * LANES);
                    let product = _mm256_mul_ps(alpha, sum);
                    let new = match target.write {
                        Write::Overwrite => product,
                        Write::Accumulate => _mm256_add_ps(_mm256_loadu_ps(out), product),
                    };
                    _mm256_storeu_ps(out, new);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    /// Both kernels agree with the definition for a tile of any size, and write nothing else.
    #[test]
    fn kernels_agree_with_the_definition() {
        let (n_runs, len, col_stride) = (3, 7, 2);
        let (left, right) = (random(n_runs * ROWS * len, 1), random(n_runs * len * COLS, 2));
        let steps = Steps { len, left: 1, right: COLS };
        for (n_rows, n_cols, col_stride) in
            [(6, 16, 1), (6, 16, col_stride), (6, 5, 1), (4, 16, 1), (3, 16, 1), (2, 16, 1), (1, 1, 1)]
        {
            for write in [Write::Overwrite, Write::Accumulate] {
                let row_len = COLS * col_stride;
                let old = random(ROWS * row_len, 3);
                let mut want: Vec<f64> = old.iter().map(|&x| f64::from(x)).collect();
                for (i, j) in (0..n_rows).flat_map(|i| (0..n_cols).map(move |j| (i, j))) {
                    let mut sum = 0.0;
                    for r in 0..n_runs {
                        for k in 0..len {
                            let left = left[(r * ROWS + i) * len + k];
                            sum += f64::from(left) * f64::from(right[(r * len + k) * COLS + j]);
                        }
                    }
                    let want = &mut want[i * row_len + j * col_stride];
                    *want = 0.5 * sum + if write == Write::Accumulate { *want } else { 0.0 };
                }
                let run = |r: usize| Run {
                    left: std::array::from_fn(|i| left[(r * ROWS + i) * len..].as_ptr()),
                    right: right[r * len * COLS..].as_ptr(),
                };
                for kernel in 0..2 {
                    let mut got = old.clone();
                    let base = got.as_mut_ptr();
                    let rows = std::array::from_fn(|i| base.wrapping_add(i * row_len));
                    let target = Target { rows, n_rows, n_cols, col_stride, write, alpha: 0.5 };
                    // SAFETY: all pointers lead into the vectors above, which have a full tile everywhere.
                    unsafe {
                        if kernel == 0 {
                            tile(n_runs, run, steps, &target);
                        } else {
                            portable(n_runs, run, steps, &target);
                        }
                    }
                    assert_close(&got, &want, 1e-6);
                }
            }
        }
    }
}
