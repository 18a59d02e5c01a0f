//! The gradient that layer norm and RMS norm share, in one pass over memory.
//!
//! In: `x, dy: [rows, cols]`, the weight, and every row's centre and inverse deviation. Out: `dx`, and the sums over the
//! rows that are the gradients of bias and weight. `dx` may be `dy` or `x`. Time O(rows · cols).
//!
//! With `x̂ = (x - centre) rstd` and `g = dy weight`: `dx = rstd (g - mean(g) - x̂ mean(g x̂))`, the means being over the
//! row; `dbias = Σ_rows dy`, `dweight = Σ_rows dy x̂`. RMS norm has the centre 0 and no `mean(g)`. A few rows at a time
//! stay in the first-level cache between their sums and their gradients. Sums over rows are made in `f32` within such a
//! group and in `f64` beyond it.

use std::ops::Range;

use crate::raw::{Dst, Src};
use crate::rows::{ColumnMoments, sum_chunks, sum_row_in_blocks};
use crate::simd::wide;

/// Rows whose terms are added in `f32` before they join the `f64` sums of the columns.
const GROUP: usize = 4;
/// Columns that are handled together.
const COLUMNS: usize = 16;

/// What the gradient reads; `x` and `dy` may be the memory of `dx`.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) x: Src<'a>,
    pub(crate) dy: Src<'a>,
    pub(crate) weight: &'a [f32],
    /// Layer norm's means; none for RMS norm.
    pub(crate) mean: Option<&'a [f32]>,
    pub(crate) rstd: &'a [f32],
}

/// Writes `dx` and returns `Σ dy` and `Σ dy x̂` of every column.
pub(crate) fn grad<'w>(inputs: Inputs<'_>, dx: Dst<'_>, workspace: &'w mut [f32]) -> ColumnMoments<'w> {
    let (rows, cols) = (inputs.rstd.len(), inputs.weight.len());
    let lengths = [inputs.x.len(), inputs.dy.len(), dx.len()];
    assert_eq!(lengths, [rows * cols; 3], "x, dy and dx are [rows, cols]");
    sum_chunks(rows, cols, workspace, |rows, partial| grad_rows(inputs, dx, rows, partial))
}

/// The constants of a row.
#[derive(Clone, Copy, Default)]
struct Row {
    start: usize,
    centre: f32,
    inverse: f32,
    /// `mean(g)`.
    offset: f32,
    /// `mean(g x̂)`.
    slope: f32,
}

wide! {
    fn grad_rows(inputs: Inputs<'_>, dx: Dst<'_>, rows: Range<usize>, partial: &mut [f64]) {
        let whole = rows.start + rows.len() / GROUP * GROUP;
        for first in (rows.start..whole).step_by(GROUP) {
            // A loop rather than `from_fn`, which is not compiled into the vector code around it.
            let mut group = [Row::default(); GROUP];
            for (i, row) in group.iter_mut().enumerate() {
                *row = row_constants(inputs, first + i);
            }
            grad_group(inputs, dx, group, partial);
        }
        for row in whole..rows.end {
            grad_group(inputs, dx, [row_constants(inputs, row)], partial);
        }
    }
}

#[inline(always)]
fn row_constants(inputs: Inputs<'_>, row: usize) -> Row {
    let cols = inputs.weight.len();
    let start = row * cols;
    let (centre, inverse) = (inputs.mean.map_or(0.0, |mean| mean[row]), inputs.rstd[row]);
    let operands = [(inputs.x, start), (inputs.dy, start), (Src::from(inputs.weight), 0)];
    let [sum, moment] = sum_row_in_blocks(operands, cols, |[x, dy, weight]| {
        let g = dy * weight;
        [g, g * ((x - centre) * inverse)]
    });
    let offset = if inputs.mean.is_some() { (sum / cols as f64) as f32 } else { 0.0 };
    Row { start, centre, inverse, offset, slope: (moment / cols as f64) as f32 }
}

#[inline(always)]
fn grad_group<const R: usize>(inputs: Inputs<'_>, dx: Dst<'_>, rows: [Row; R], partial: &mut [f64]) {
    let cols = inputs.weight.len();
    let (sums, moments) = partial.split_at_mut(cols);
    let whole = cols / COLUMNS * COLUMNS;
    for at in (0..whole).step_by(COLUMNS) {
        grad_columns::<R, COLUMNS>(inputs, dx, rows, at, sums, moments);
    }
    for at in whole..cols {
        grad_columns::<R, 1>(inputs, dx, rows, at, sums, moments);
    }
}

/// Columns `at..at + W` of a group of rows.
#[inline(always)]
fn grad_columns<const R: usize, const W: usize>(
    inputs: Inputs<'_>,
    dx: Dst<'_>,
    rows: [Row; R],
    at: usize,
    sums: &mut [f64],
    moments: &mut [f64],
) {
    let weight: [f32; W] = Src::from(inputs.weight).array(at);
    let (mut sum, mut moment) = ([0.0; W], [0.0; W]);
    for row in rows {
        let (x, dy): ([f32; W], [f32; W]) = (inputs.x.array(row.start + at), inputs.dy.array(row.start + at));
        let mut out = [0.0; W];
        for c in 0..W {
            let normalised = (x[c] - row.centre) * row.inverse;
            sum[c] += dy[c];
            moment[c] += dy[c] * normalised;
            out[c] = row.inverse * (dy[c] * weight[c] - row.offset - normalised * row.slope);
        }
        // SAFETY: the row belongs to this task alone, and its elements here have been read.
        unsafe { dx.write(row.start + at, &out) }
    }
    for (total, part) in sums[at..at + W].iter_mut().zip(sum) {
        *total += f64::from(part);
    }
    for (total, part) in moments[at..at + W].iter_mut().zip(moment) {
        *total += f64::from(part);
    }
}
