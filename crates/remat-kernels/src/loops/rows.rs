//! Sums over rows and columns of matrices, with a fixed order of additions.
//!
//! A few terms at a time are added in `f32`, because conversions take longer than additions, and their sums in `f64`. That
//! is accurate where terms do not cancel, so kernels subtract a typical element before they square or multiply: then one
//! pass over the data suffices where plain `f32` sums would need two.

use std::ops::Range;

use crate::base::cache::{LINE, prefetch};
use crate::base::par;
use crate::base::raw::Src;
use crate::base::scratch::with_scratch;
use crate::base::simd::wide;

/// Sums kept side by side along a row.
pub(crate) const LANES: usize = 16;
/// Sums in `f32` along a row: more, because each waits for the one before it.
pub(crate) const WIDE: usize = 2 * LANES;
/// Elements of a row that are added in `f32`: eight terms for every sum.
pub(crate) const BLOCK: usize = 8 * WIDE;
/// Columns whose sums are read, changed and written together.
pub(crate) const COLUMNS: usize = 32;
/// Rows whose terms are added in `f32` before they join the `f64` sums of the columns.
const NEAR_ROWS: usize = 16;
/// Rows that are read side by side, a divisor of `NEAR_ROWS`, so that sums are read and written once for all of them.
const TOGETHER: usize = 4;
/// Columns up to which the processor foresees what rows side by side need; places further apart must be asked for.
pub(crate) const CLOSE: usize = 128;
/// Elements of a chunk of rows: enough to pay for a task.
const CHUNK_ELEMENTS: usize = 1 << 15;
/// Bounds the workspace; more chunks than this help no machine.
const MAX_CHUNKS: usize = 64;

/// Runs `task` over ranges of rows that are worth a task each.
pub(crate) fn for_each_rows(rows: usize, cols: usize, task: impl Fn(Range<usize>) + Sync + Send) {
    par::for_each_range(rows, (par::ELEMENTS_PER_TASK / cols.max(1)).max(1), task);
}

/// `K` sums over a row, to which `f` adds the terms of an element of every input; every input's row starts at its own
/// offset. Sums are made in `f32` within a block and in `f64` beyond it.
#[inline(always)]
pub(crate) fn sum_row<const N: usize, const K: usize>(
    inputs: [(Src<'_>, usize); N],
    cols: usize,
    f: impl Fn([f32; N], [f32; K]) -> [f32; K],
) -> [f64; K] {
    let mut sums = [[0.0f64; LANES]; K];
    let whole = cols / WIDE * WIDE;
    for first in (0..whole).step_by(BLOCK) {
        let mut partial = [[0.0f32; WIDE]; K];
        for at in (first..whole.min(first + BLOCK)).step_by(WIDE) {
            // Loops rather than `map`, which is not always compiled into the vector code around it.
            let mut blocks = [[0.0; WIDE]; N];
            for (block, (input, start)) in blocks.iter_mut().zip(inputs) {
                *block = input.array(start + at);
            }
            for lane in 0..WIDE {
                let (mut x, mut old) = ([0.0; N], [0.0; K]);
                for (x, block) in x.iter_mut().zip(&blocks) {
                    *x = block[lane];
                }
                for (old, partial) in old.iter_mut().zip(&partial) {
                    *old = partial[lane];
                }
                for (partial, new) in partial.iter_mut().zip(f(x, old)) {
                    partial[lane] = new;
                }
            }
        }
        for (sums, partial) in sums.iter_mut().zip(&partial) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += f64::from(partial[lane] + partial[lane + LANES]);
            }
        }
    }
    for at in whole..cols {
        let mut x = [0.0; N];
        for (x, (input, start)) in x.iter_mut().zip(inputs) {
            [*x] = input.array(start + at);
        }
        let terms = f(x, [0.0; K]);
        for (sum, term) in sums.iter_mut().zip(terms) {
            sum[at % LANES] += f64::from(term);
        }
    }
    sums.map(sum_of_lanes)
}

/// The sum of sums that were kept side by side.
#[inline(always)]
pub(crate) fn sum_of_lanes<const N: usize>(lanes: [f64; N]) -> f64 {
    fold_lanes(lanes, |a, b| a + b)
}

/// One result of those that were kept side by side: pairwise, because what follows waits for it. `N` is a power of two.
#[inline(always)]
pub(crate) fn fold_lanes<T: Copy, const N: usize>(mut lanes: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The larger one; the first if one is not a number.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
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
            *maximum = larger(*maximum, x);
        }
    }
    for at in whole..cols {
        let [x] = x.array(start + at);
        maxima[at - whole] = larger(maxima[at - whole], x);
    }
    fold_lanes(maxima, larger)
}

/// The sums over the rows of a matrix, two for every column.
pub(crate) struct ColumnMoments<'w> {
    /// `Σ_r a[r, c]`, where the kernel says what `a` is.
    pub(crate) sum: &'w [f64],
    /// `Σ_r a[r, c] b[r, c]`.
    pub(crate) moment: &'w [f64],
}

/// Elements of workspace that [`sum_columns`] needs.
pub(crate) fn column_moments_workspace(rows: usize, cols: usize) -> usize {
    // An f64 takes two elements; one more lets them be aligned.
    2 * 2 * n_chunks(rows, cols) * cols + 1
}

fn n_chunks(rows: usize, cols: usize) -> usize {
    (rows * cols).div_ceil(CHUNK_ELEMENTS).clamp(1, MAX_CHUNKS.min(rows.max(1)))
}

/// Calls `task(rows, sums)` for chunks of rows whose number depends on the shape alone, each with sums of its own, which
/// start at zero; then adds the sums of the chunks in order.
pub(crate) fn sum_columns(
    rows: usize,
    cols: usize,
    workspace: &mut [f32],
    task: impl Fn(Range<usize>, &mut ColumnSums<'_>) + Send + Sync,
) -> ColumnMoments<'_> {
    let n_chunks = n_chunks(rows, cols);
    let rows_per_chunk = rows.div_ceil(n_chunks);
    // SAFETY: any bits are a valid f64, and `align_to_mut` sees to the alignment.
    let (_, aligned, _) = unsafe { workspace.align_to_mut::<f64>() };
    let partials = &mut aligned[..2 * n_chunks * cols];
    par::for_each_chunk(partials, 2 * cols.max(1), |chunk, far| {
        with_scratch(2 * cols, |near| {
            let first = (chunk * rows_per_chunk).min(rows);
            let mut sums = ColumnSums::new(near, far);
            task(first..(first + rows_per_chunk).min(rows), &mut sums);
            sums.widen();
        });
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

/// Two sums for every column, over rows that come in order: in `f32` over a few of them and in `f64` beyond.
pub(crate) struct ColumnSums<'a> {
    /// The sums of the last rows, then their moments.
    near: &'a mut [f32],
    /// The sums over all earlier rows.
    far: &'a mut [f64],
    n_near_rows: usize,
}

impl<'a> ColumnSums<'a> {
    fn new(near: &'a mut [f32], far: &'a mut [f64]) -> Self {
        near.fill(0.0);
        far.fill(0.0);
        ColumnSums { near, far, n_near_rows: 0 }
    }

    fn widen(&mut self) {
        widen(self.near, self.far);
        self.n_near_rows = 0;
    }

    /// Sums and moments to which another row is to be added.
    #[inline(always)]
    pub(crate) fn next_row(&mut self) -> [&mut [f32]; 2] {
        self.next_rows(1)
    }

    /// Sums and moments to which so many rows are to be added; as many are left before sums are widened.
    #[inline(always)]
    fn next_rows(&mut self, n: usize) -> [&mut [f32]; 2] {
        if self.n_near_rows == NEAR_ROWS {
            self.widen();
        }
        self.n_near_rows += n;
        let (sums, moments) = self.near.split_at_mut(self.near.len() / 2);
        [sums, moments]
    }

    /// Adds rows of matrices: `f` makes new sums of an element of every input, the constants of its column and the sums
    /// before.
    #[inline(always)]
    pub(crate) fn add<const N: usize, const K: usize>(
        &mut self,
        rows: Range<usize>,
        inputs: [Src<'_>; N],
        constants: [Src<'_>; K],
        f: impl Fn([f32; N], [f32; K], [f32; 2]) -> [f32; 2],
    ) {
        let cols = self.near.len() / 2;
        let whole = cols / COLUMNS * COLUMNS;
        let mut row = rows.start;
        while row < rows.end {
            // A chunk begins with no rows before it, so those that are left are a multiple until the last few rows.
            let is_whole = rows.end - row >= TOGETHER && self.n_near_rows.is_multiple_of(TOGETHER);
            let n_rows = if is_whole { TOGETHER } else { 1 };
            let mut near = self.next_rows(n_rows);
            for at in (0..whole).step_by(COLUMNS) {
                if is_whole {
                    add_block::<N, K, COLUMNS, TOGETHER>(inputs, row, cols, constants, at, &mut near, &f);
                    if cols > CLOSE {
                        ask_for_rows(inputs, row + TOGETHER, cols, at);
                    }
                } else {
                    add_block::<N, K, COLUMNS, 1>(inputs, row, cols, constants, at, &mut near, &f);
                }
            }
            for at in whole..cols {
                if is_whole {
                    add_block::<N, K, 1, TOGETHER>(inputs, row, cols, constants, at, &mut near, &f);
                } else {
                    add_block::<N, K, 1, 1>(inputs, row, cols, constants, at, &mut near, &f);
                }
            }
            row += n_rows;
        }
    }
}

/// Asks for the block of columns from `at` of the `TOGETHER` rows from `row` on.
#[inline(always)]
fn ask_for_rows<const N: usize>(inputs: [Src<'_>; N], row: usize, cols: usize, at: usize) {
    for input in inputs {
        for r in row..row + TOGETHER {
            for line in (at..at + COLUMNS).step_by(LINE) {
                prefetch(input.address().wrapping_add(r * cols + line));
            }
        }
    }
}

/// Adds `W` elements of `R` rows of every input, row after row, which are in the columns from `at`.
#[inline(always)]
fn add_block<const N: usize, const K: usize, const W: usize, const R: usize>(
    inputs: [Src<'_>; N],
    row: usize,
    cols: usize,
    constants: [Src<'_>; K],
    at: usize,
    [sums, moments]: &mut [&mut [f32]; 2],
    f: &impl Fn([f32; N], [f32; K], [f32; 2]) -> [f32; 2],
) {
    // Loops rather than `map`, which is not always compiled into the vector code around it.
    let mut columns = [[0.0; W]; K];
    for (block, constants) in columns.iter_mut().zip(constants) {
        *block = constants.array(at);
    }
    // In arrays of their own: the compiler then knows that no input lies where the sums are written.
    let (mut new_sums, mut new_moments) = ([0.0; W], [0.0; W]);
    new_sums.copy_from_slice(&sums[at..at + W]);
    new_moments.copy_from_slice(&moments[at..at + W]);
    for r in 0..R {
        let mut elements = [[0.0; W]; N];
        for (block, input) in elements.iter_mut().zip(inputs) {
            *block = input.array((row + r) * cols + at);
        }
        for c in 0..W {
            let (mut x, mut constant) = ([0.0; N], [0.0; K]);
            for (x, block) in x.iter_mut().zip(&elements) {
                *x = block[c];
            }
            for (constant, block) in constant.iter_mut().zip(&columns) {
                *constant = block[c];
            }
            [new_sums[c], new_moments[c]] = f(x, constant, [new_sums[c], new_moments[c]]);
        }
    }
    sums[at..at + W].copy_from_slice(&new_sums);
    moments[at..at + W].copy_from_slice(&new_moments);
}

wide! {
    /// Moves sums in `f32` to those in `f64`.
    fn widen(near: &mut [f32], far: &mut [f64]) {
        for (near, far) in near.iter_mut().zip(far) {
            *far += f64::from(*near);
            *near = 0.0;
        }
    }
}
