//! Sums over rows and columns of matrices, in `f64`, with a fixed order of additions.
//!
//! `f64` sums of `f32` products are so accurate that one pass over the data suffices where `f32` would need two:
//! `Σ x²/n - (Σ x/n)²` keeps seven digits even if the mean is ten thousand times the standard deviation.

use std::ops::Range;

use crate::par;
use crate::raw::Src;
use crate::simd::wide;

/// Sums kept side by side along a row.
const LANES: usize = 16;
/// Rows that are added to the sums of the columns together.
const ROWS: usize = 8;
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
    sums.map(|lanes| lanes.iter().sum())
}

/// The largest element of a row; not-a-number is passed over.
#[inline(always)]
pub(crate) fn max_row(x: Src<'_>, start: usize, cols: usize) -> f32 {
    const LANES: usize = 32;
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let whole = cols / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let x: [f32; LANES] = x.array(start + at);
        for (maximum, x) in maxima.iter_mut().zip(x) {
            *maximum = if x > *maximum { x } else { *maximum };
        }
    }
    for at in whole..cols {
        let [x] = x.array(start + at);
        maxima[at - whole] = if x > maxima[at - whole] { x } else { maxima[at - whole] };
    }
    maxima.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// The sums over the rows of a matrix, one element per column.
pub(crate) struct ColumnMoments<'w> {
    /// `Σ_r a[r, c]`.
    pub(crate) sum: &'w [f64],
    /// `Σ_r a[r, c] b[r, c]`.
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

/// Sums over the rows of `a` and of its products with `b`, or with itself; both are `[rows, cols]`.
pub(crate) fn column_moments<'w>(
    a: Src<'_>,
    b: Option<Src<'_>>,
    cols: usize,
    workspace: &'w mut [f32],
) -> ColumnMoments<'w> {
    let rows = a.len() / cols.max(1);
    let other = b.unwrap_or(a);
    assert_eq!((a.len(), other.len()), (rows * cols, rows * cols), "both matrices are [rows, cols]");
    sum_chunks(rows, cols, workspace, |rows, partial| {
        // SAFETY: nothing is written before all sums are taken.
        let (a, other) = unsafe { (a.slice(), other.slice()) };
        let of_chunk = rows.start * cols..rows.end * cols;
        match b {
            Some(_) => chunk_moments(&a[of_chunk.clone()], &other[of_chunk], cols, partial),
            None => chunk_squares(&a[of_chunk], cols, partial),
        }
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
    /// Like [`chunk_moments`] with `b` the same as `a`, which is then read and converted once.
    fn chunk_squares(a: &[f32], cols: usize, partial: &mut [f64]) {
        let (sums, moments) = partial.split_at_mut(cols);
        let groups = a.chunks_exact(ROWS * cols);
        let rest = groups.remainder();
        for a in groups {
            let row = |i: usize| (&a[i * cols..][..cols], &a[i * cols..][..cols]);
            add_rows::<ROWS>(std::array::from_fn(row), sums, moments);
        }
        for row in rest.chunks_exact(cols) {
            add_rows([(row, row)], sums, moments);
        }
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
