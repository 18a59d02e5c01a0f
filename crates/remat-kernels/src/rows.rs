//! Sums over rows and columns of matrices, in `f64`, with a fixed order of additions.
//!
//! `f64` sums of `f32` products are so accurate that one pass over the data suffices where `f32` would need two:
//! `Σ x²/n - (Σ x/n)²` keeps seven digits even if the mean is ten thousand times the standard deviation.

use std::ops::Range;

use crate::elementwise::{BLOCK, read_block};
use crate::par;
use crate::raw::Src;
use crate::simd::wide;

/// Sums kept side by side along a row.
const LANES: usize = 16;
/// Rows that are added to the sums of the columns together.
const ROWS: usize = 4;
/// Elements of a chunk of rows: enough to pay for a task.
const CHUNK_ELEMENTS: usize = 1 << 15;
/// Bounds the workspace; more chunks than this help no machine.
const MAX_CHUNKS: usize = 64;

/// Runs `task` over ranges of rows that are worth a task each.
pub(crate) fn for_each_rows(rows: usize, cols: usize, task: impl Fn(Range<usize>) + Sync + Send) {
    par::for_each_range(rows, (par::ELEMENTS_PER_TASK / cols.max(1)).max(1), task);
}

/// The sums of the `K` terms that `f` makes of each element of a row; every input's row starts at its own offset.
#[inline(always)]
pub(crate) fn sum_row<const N: usize, const K: usize>(
    inputs: [(Src<'_>, usize); N],
    cols: usize,
    f: impl Fn([f32; N]) -> [f64; K],
) -> [f64; K] {
    let mut sums = [[0.0; LANES]; K];
    let mut blocks = [[0.0; BLOCK]; N];
    for at in (0..cols).step_by(BLOCK) {
        let width = BLOCK.min(cols - at);
        for (block, (input, start)) in blocks.iter_mut().zip(inputs) {
            read_block(input, start + at, block, width);
        }
        let mut add = |i: usize, lane: usize| {
            let mut x = [0.0; N];
            for (x, block) in x.iter_mut().zip(&blocks) {
                *x = block[i];
            }
            for (sum, term) in sums.iter_mut().zip(f(x)) {
                sum[lane] += term;
            }
        };
        let whole = width / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            for lane in 0..LANES {
                add(i + lane, lane);
            }
        }
        for i in whole..width {
            add(i, i - whole);
        }
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// The largest element of a row; not-a-number is passed over.
#[inline(always)]
pub(crate) fn max_row(x: Src<'_>, start: usize, cols: usize) -> f32 {
    let mut block = [0.0; BLOCK];
    let mut maxima = [f32::NEG_INFINITY; BLOCK];
    for at in (0..cols).step_by(BLOCK) {
        let width = BLOCK.min(cols - at);
        read_block(x, start + at, &mut block, width);
        for (maximum, &x) in maxima.iter_mut().zip(&block[..width]) {
            *maximum = if x > *maximum { x } else { *maximum };
        }
    }
    maxima.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// The sums over the rows of a matrix, one element per column.
pub(crate) struct ColumnMoments<'w> {
    /// `Σ_r a[r, c]`.
    pub(crate) sum: &'w [f64],
    /// `Σ_r a[r, c] (b[r, c] - shift_r) factor_r`.
    pub(crate) moment: &'w [f64],
}

/// Elements of workspace that [`column_moments`] needs.
pub(crate) fn column_moments_workspace(rows: usize, cols: usize) -> usize {
    // An f64 takes two elements; one more lets them be aligned.
    2 * 2 * n_chunks(rows, cols) * cols + 1
}

fn n_chunks(rows: usize, cols: usize) -> usize {
    (rows * cols).div_ceil(CHUNK_ELEMENTS).clamp(1, MAX_CHUNKS.min(rows.max(1)))
}

/// Sums over the rows of `a` and of its products with `b`, both `[rows, cols]`; `affine` gives a row's shift and
/// factor. Rows are added in order within chunks of a size fixed by the shape, then the chunks in order.
pub(crate) fn column_moments<'w>(
    a: Src<'_>,
    b: Src<'_>,
    cols: usize,
    affine: impl Fn(usize) -> (f64, f64) + Copy + Send + Sync,
    workspace: &'w mut [f32],
) -> ColumnMoments<'w> {
    let rows = a.len() / cols.max(1);
    assert_eq!((a.len(), b.len()), (rows * cols, rows * cols), "both matrices are [rows, cols]");
    let n_chunks = n_chunks(rows, cols);
    let rows_per_chunk = rows.div_ceil(n_chunks);
    // SAFETY: any bits are a valid f64, and `align_to_mut` sees to the alignment.
    let (_, aligned, _) = unsafe { workspace.align_to_mut::<f64>() };
    let partials = &mut aligned[..2 * n_chunks * cols];
    par::for_each_chunk(partials, 2 * cols.max(1), |chunk, partial| {
        let first = (chunk * rows_per_chunk).min(rows);
        let last = (first + rows_per_chunk).min(rows);
        chunk_moments(a, b, cols, first..last, affine, partial);
    });
    let (total, others) = partials.split_at_mut(2 * cols);
    for partial in others.chunks_exact(2 * cols.max(1)) {
        for (total, partial) in total.iter_mut().zip(partial) {
            *total += partial;
        }
    }
    let (sum, moment) = total.split_at(cols);
    ColumnMoments { sum, moment }
}

wide! {
    fn chunk_moments[F: Fn(usize) -> (f64, f64)](
        a: Src<'_>,
        b: Src<'_>,
        cols: usize,
        rows: Range<usize>,
        affine: F,
        partial: &mut [f64],
    ) {
        partial.fill(0.0);
        let (sums, moments) = partial.split_at_mut(cols);
        let whole = rows.start + rows.len() / ROWS * ROWS;
        for row in (rows.start..whole).step_by(ROWS) {
            let affine: [(f64, f64); ROWS] = std::array::from_fn(|i| affine(row + i));
            add_rows(a, b, cols, row, affine, sums, moments);
        }
        for row in whole..rows.end {
            add_rows(a, b, cols, row, [affine(row)], sums, moments);
        }
    }
}

/// Adds `R` rows to the sums of a chunk: together, so that the sums are read and written once for all of them.
#[inline(always)]
fn add_rows<const R: usize>(
    a: Src<'_>,
    b: Src<'_>,
    cols: usize,
    row: usize,
    affine: [(f64, f64); R],
    sums: &mut [f64],
    moments: &mut [f64],
) {
    let (mut a_block, mut b_block) = ([[0.0; BLOCK]; R], [[0.0; BLOCK]; R]);
    let blocks = sums.chunks_mut(BLOCK).zip(moments.chunks_mut(BLOCK)).enumerate();
    for (block, (sums, moments)) in blocks {
        for i in 0..R {
            let at = (row + i) * cols + block * BLOCK;
            read_block(a, at, &mut a_block[i], sums.len());
            read_block(b, at, &mut b_block[i], sums.len());
        }
        for (c, (sum, moment)) in sums.iter_mut().zip(moments).enumerate() {
            for i in 0..R {
                let (shift, factor) = affine[i];
                let a = f64::from(a_block[i][c]);
                *sum += a;
                *moment += a * ((f64::from(b_block[i][c]) - shift) * factor);
            }
        }
    }
}
