//! Sums over rows and columns of matrices, in `f64`, with a fixed order of additions.
//!
//! `f64` sums of `f32` products are so accurate that one pass over the data suffices where `f32` would need two:
//! `Σ x²/n - (Σ x/n)²` keeps seven digits even if the mean is ten thousand times the standard deviation.
//! Where terms do not cancel, a few at a time are added in `f32` first, because conversions take longer than additions.

use std::ops::Range;

use crate::par;
use crate::raw::Src;
use crate::simd::wide;

/// Sums kept side by side along a row.
const LANES: usize = 16;
/// Elements of a row that are added in `f32`: eight terms for every lane.
const BLOCK: usize = 8 * LANES;
/// Rows that are added to the sums of the columns together.
const ROWS: usize = 8;
/// Rows whose squares are added in `f32`.
const SQUARE_ROWS: usize = 16;
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
    let whole = cols / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        // Loops rather than `map`, which is not always compiled into the vector code around it.
        let mut blocks = [[0.0; LANES]; N];
        for (block, (input, start)) in blocks.iter_mut().zip(inputs) {
            *block = input.array(start + at);
        }
        for lane in 0..LANES {
            let mut x = [0.0; N];
            for (x, block) in x.iter_mut().zip(&blocks) {
                *x = block[lane];
            }
            let terms = f(x);
            for (sum, term) in sums.iter_mut().zip(terms) {
                sum[lane] += term;
            }
        }
    }
    for at in whole..cols {
        let mut x = [0.0; N];
        for (x, (input, start)) in x.iter_mut().zip(inputs) {
            [*x] = input.array(start + at);
        }
        let terms = f(x);
        for (sum, term) in sums.iter_mut().zip(terms) {
            sum[at - whole] += term;
        }
    }
    sums.map(sum_of_lanes)
}

/// Like [`sum_row`] for terms that do not cancel: they are added in `f32` within a block and in `f64` beyond it, because
/// the conversions would take longer than everything else.
#[inline(always)]
pub(crate) fn sum_row_in_blocks<const N: usize, const K: usize>(
    inputs: [(Src<'_>, usize); N],
    cols: usize,
    f: impl Fn([f32; N]) -> [f32; K],
) -> [f64; K] {
    let mut sums = [[0.0f64; LANES]; K];
    let whole = cols / LANES * LANES;
    for first in (0..whole).step_by(BLOCK) {
        let mut partial = [[0.0f32; LANES]; K];
        for at in (first..whole.min(first + BLOCK)).step_by(LANES) {
            let mut blocks = [[0.0; LANES]; N];
            for (block, (input, start)) in blocks.iter_mut().zip(inputs) {
                *block = input.array(start + at);
            }
            for lane in 0..LANES {
                let mut x = [0.0; N];
                for (x, block) in x.iter_mut().zip(&blocks) {
                    *x = block[lane];
                }
                let terms = f(x);
                for (sum, term) in partial.iter_mut().zip(terms) {
                    sum[lane] += term;
                }
            }
        }
        for (sums, partial) in sums.iter_mut().zip(&partial) {
            for (sum, &partial) in sums.iter_mut().zip(partial) {
                *sum += f64::from(partial);
            }
        }
    }
    for at in whole..cols {
        let mut x = [0.0; N];
        for (x, (input, start)) in x.iter_mut().zip(inputs) {
            [*x] = input.array(start + at);
        }
        let terms = f(x);
        for (sum, term) in sums.iter_mut().zip(terms) {
            sum[at - whole] += f64::from(term);
        }
    }
    sums.map(sum_of_lanes)
}

/// The sum of sums that were kept side by side.
#[inline(always)]
fn sum_of_lanes(lanes: [f64; LANES]) -> f64 {
    fold_lanes(lanes, |a, b| a + b)
}

/// One result of those that were kept side by side: pairwise, because what follows waits for it. `N` is a power of two.
#[inline(always)]
fn fold_lanes<T: Copy, const N: usize>(mut lanes: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element of a row; not-a-number is passed over.
#[inline(always)]
pub(crate) fn max_row(x: Src<'_>, start: usize, cols: usize) -> f32 {
    const LANES: usize = 32;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let whole = cols / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let x: [f32; LANES] = x.array(start + at);
        for (maximum, x) in maxima.iter_mut().zip(x) {
            *maximum = larger(*maximum, x);
        }
    }
    for at in whole..cols {
        let [x] = x.array(start + at);
        maxima[at - whole] = larger(maxima[at - whole], x);
    }
    fold_lanes(maxima, larger)
}

/// The sums over the rows of a matrix, one element per column.
pub(crate) struct ColumnMoments<'w> {
    /// `Σ_r a[r, c]`.
    pub(crate) sum: &'w [f64],
    /// `Σ_r a[r, c] b[r, c]`.
    pub(crate) moment: &'w [f64],
}

/// Elements of workspace that [`column_moments`] and [`column_squares`] need.
pub(crate) fn column_moments_workspace(rows: usize, cols: usize) -> usize {
    // An f64 takes two elements; one more lets them be aligned.
    2 * 2 * n_chunks(rows, cols) * cols + 1
}

fn n_chunks(rows: usize, cols: usize) -> usize {
    (rows * cols).div_ceil(CHUNK_ELEMENTS).clamp(1, MAX_CHUNKS.min(rows.max(1)))
}

/// Calls `task(rows, partial)` for chunks of rows whose number depends on the shape alone, each with `2 cols` sums of its
/// own, which start at zero; then adds the sums of the chunks in order.
pub(crate) fn sum_chunks(
    rows: usize,
    cols: usize,
    workspace: &mut [f32],
    task: impl Fn(Range<usize>, &mut [f64]) + Send + Sync,
) -> ColumnMoments<'_> {
    let n_chunks = n_chunks(rows, cols);
    let rows_per_chunk = rows.div_ceil(n_chunks);
    // SAFETY: any bits are a valid f64, and `align_to_mut` sees to the alignment.
    let (_, aligned, _) = unsafe { workspace.align_to_mut::<f64>() };
    let partials = &mut aligned[..2 * n_chunks * cols];
    par::for_each_chunk(partials, 2 * cols.max(1), |chunk, partial| {
        partial.fill(0.0);
        let first = (chunk * rows_per_chunk).min(rows);
        task(first..(first + rows_per_chunk).min(rows), partial);
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

/// Sums over the rows of `a` and of its products with `b`; both are `[rows, cols]`.
pub(crate) fn column_moments<'w>(
    a: Src<'_>,
    b: Src<'_>,
    cols: usize,
    workspace: &'w mut [f32],
) -> ColumnMoments<'w> {
    let rows = a.len() / cols.max(1);
    assert_eq!((a.len(), b.len()), (rows * cols, rows * cols), "both matrices are [rows, cols]");
    sum_chunks(rows, cols, workspace, |rows, partial| {
        // SAFETY: nothing is written before all sums are taken.
        let (a, b) = unsafe { (a.slice(), b.slice()) };
        let of_chunk = rows.start * cols..rows.end * cols;
        chunk_moments(&a[of_chunk.clone()], &b[of_chunk], cols, partial);
    })
}

/// Sums over the rows of `x - pivot` and of their squares; `x` is `[rows, cols]`, and there is a pivot for every column.
///
/// With pivots that are typical elements the terms do not cancel, and few of them at a time can be added in `f32`.
pub(crate) fn column_squares<'w>(x: Src<'_>, pivots: &[f32], workspace: &'w mut [f32]) -> ColumnMoments<'w> {
    let cols = pivots.len();
    let rows = x.len() / cols.max(1);
    assert_eq!(x.len(), rows * cols, "the matrix is [rows, cols]");
    sum_chunks(rows, cols, workspace, |rows, partial| {
        chunk_squares(x.part(rows.start * cols, rows.len() * cols), pivots, partial);
    })
}

wide! {
    /// Adds the rows of a chunk and their products to its sums, `2 cols` of them.
    pub(crate) fn chunk_moments(a: &[f32], b: &[f32], cols: usize, partial: &mut [f64]) {
        let (sums, moments) = partial.split_at_mut(cols);
        let (mut a_groups, mut b_groups) = (a.chunks_exact(ROWS * cols), b.chunks_exact(ROWS * cols));
        for (a, b) in (&mut a_groups).zip(&mut b_groups) {
            let row = |i: usize| (&a[i * cols..][..cols], &b[i * cols..][..cols]);
            add_rows::<ROWS>(std::array::from_fn(row), sums, moments);
        }
        let rest = a_groups.remainder().chunks_exact(cols).zip(b_groups.remainder().chunks_exact(cols));
        for row in rest {
            add_rows([row], sums, moments);
        }
    }
}

wide! {
    /// Adds what [`column_squares`] sums over the rows of a chunk to its sums, `2 cols` of them.
    fn chunk_squares(x: Src<'_>, pivots: &[f32], partial: &mut [f64]) {
        let cols = pivots.len();
        let (sums, moments) = partial.split_at_mut(cols);
        for first in (0..x.len()).step_by(SQUARE_ROWS * cols.max(1)) {
            let group = x.part(first, (SQUARE_ROWS * cols).min(x.len() - first));
            let whole = cols / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                square_columns::<LANES>(group, pivots, at, sums, moments);
            }
            for at in whole..cols {
                square_columns::<1>(group, pivots, at, sums, moments);
            }
        }
    }
}

/// Columns `at..at + W` of a few rows.
#[inline(always)]
fn square_columns<const W: usize>(
    rows: Src<'_>,
    pivots: &[f32],
    at: usize,
    sums: &mut [f64],
    moments: &mut [f64],
) {
    let pivot: [f32; W] = Src::from(pivots).array(at);
    let (mut sum, mut moment) = ([0.0f32; W], [0.0f32; W]);
    for start in (0..rows.len()).step_by(pivots.len()) {
        let x: [f32; W] = rows.array(start + at);
        for c in 0..W {
            let distance = x[c] - pivot[c];
            sum[c] += distance;
            moment[c] = distance.mul_add(distance, moment[c]);
        }
    }
    for (total, part) in sums[at..at + W].iter_mut().zip(sum) {
        *total += f64::from(part);
    }
    for (total, part) in moments[at..at + W].iter_mut().zip(moment) {
        *total += f64::from(part);
    }
}

/// Adds `R` rows to the sums of a chunk: together, so that the sums are read and written once for all of them.
#[inline(always)]
fn add_rows<const R: usize>(rows: [(&[f32], &[f32]); R], sums: &mut [f64], moments: &mut [f64]) {
    for (c, (sum, moment)) in sums.iter_mut().zip(moments).enumerate() {
        for (a, b) in rows {
            let a = f64::from(a[c]);
            *sum += a;
            *moment = a.mul_add(f64::from(b[c]), *moment);
        }
    }
}
