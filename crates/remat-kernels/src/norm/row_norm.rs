//! What layer norm and RMS norm share: the gradient, in one pass over memory.
//!
//! In: `x, dy: [rows, cols]`, the weight, and every row's centre and inverse deviation. Out: `dx`, and the sums over the
//! rows that are the gradients of bias and weight. `dx` may be `dy` or `x`. Time O(rows · cols).
//!
//! With `x̂ = (x - centre) rstd` and `g = dy weight`: `dx = rstd (g - mean(g) - x̂ mean(g x̂))`, the means being over the
//! row; `dbias = Σ_rows dy`, `dweight = Σ_rows dy x̂`. RMS norm has the centre 0 and no `mean(g)`. A row stays in the
//! first-level cache between its sums and its gradient, and so do the sums of the columns. Rows come one after the other:
//! several at a time would be as many places to read and write, which the processor cannot predict.

use std::ops::Range;

use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::rows::{
    COLUMNS, ColumnMoments, ColumnSums, column_moments_workspace, sum_columns, sum_row,
};

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

/// Elements of workspace that the gradients of layer norm and RMS norm need.
pub fn grad_workspace(rows: usize, cols: usize) -> usize {
    column_moments_workspace(rows, cols)
}

/// Writes `dx` and returns `Σ dy` and `Σ dy x̂` of every column.
pub(crate) fn grad<'w>(inputs: Inputs<'_>, dx: Dst<'_>, workspace: &'w mut [f32]) -> ColumnMoments<'w> {
    let (rows, cols) = (inputs.rstd.len(), inputs.weight.len());
    let lengths = [inputs.x.len(), inputs.dy.len(), dx.len()];
    assert_eq!(lengths, [rows * cols; 3], "x, dy and dx are [rows, cols]");
    sum_columns(rows, cols, workspace, |rows, sums| grad_rows(inputs, dx, rows, sums))
}

/// The constants of a row.
#[derive(Clone, Copy)]
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
    fn grad_rows(inputs: Inputs<'_>, dx: Dst<'_>, rows: Range<usize>, sums: &mut ColumnSums<'_>) {
        let cols = inputs.weight.len();
        let whole = cols / COLUMNS * COLUMNS;
        for row in rows {
            let row = row_constants(inputs, row);
            let mut near = sums.next_row();
            for at in (0..whole).step_by(COLUMNS) {
                grad_columns::<COLUMNS>(inputs, dx, row, at, &mut near);
            }
            for at in whole..cols {
                grad_columns::<1>(inputs, dx, row, at, &mut near);
            }
        }
    }
}

#[inline(always)]
fn row_constants(inputs: Inputs<'_>, row: usize) -> Row {
    let cols = inputs.weight.len();
    let start = row * cols;
    let (centre, inverse) = (inputs.mean.map_or(0.0, |mean| mean[row]), inputs.rstd[row]);
    let operands = [(inputs.x, start), (inputs.dy, start), (Src::from(inputs.weight), 0)];
    let [sum, moment] = sum_row(operands, cols, |[x, dy, weight], [sum, moment]| {
        let g = dy * weight;
        [sum + g, g.mul_add(x - centre, moment)]
    });
    let mean = |sum: f64| (sum / cols as f64) as f32;
    let offset = if inputs.mean.is_some() { mean(sum) } else { 0.0 };
    Row { start, centre, inverse, offset, slope: mean(moment * f64::from(inverse)) }
}

/// Columns `at..at + W` of a row.
#[inline(always)]
fn grad_columns<const W: usize>(
    inputs: Inputs<'_>,
    dx: Dst<'_>,
    row: Row,
    at: usize,
    [sums, moments]: &mut [&mut [f32]; 2],
) {
    let weight: [f32; W] = Src::from(inputs.weight).array(at);
    let (x, dy): ([f32; W], [f32; W]) = (inputs.x.array(row.start + at), inputs.dy.array(row.start + at));
    let (sums, moments) = (&mut sums[at..at + W], &mut moments[at..at + W]);
    let mut out = [0.0; W];
    for c in 0..W {
        let normalised = (x[c] - row.centre) * row.inverse;
        sums[c] += dy[c];
        moments[c] = dy[c].mul_add(normalised, moments[c]);
        let g = dy[c].mul_add(weight[c], -row.offset);
        out[c] = row.inverse * normalised.mul_add(-row.slope, g);
    }
    // SAFETY: the row belongs to this task alone, and its elements here have been read.
    unsafe { dx.write(row.start + at, &out) }
}

/// The test of the gradients that both have.
#[cfg(test)]
pub(super) mod testing {
    use super::grad_workspace;
    use crate::base::raw::{Dst, Src};
    use crate::testing::{out_of_place_and_in_place, random, same_bits_in_any_pool};

    /// Rows and columns around the sizes of blocks and tasks.
    pub(crate) const SHAPES: [(usize, usize); 7] =
        [(1, 4), (3, 5), (10, 64), (7, 65), (100, 768), (3000, 33), (5, 20_000)];

    /// Runs a gradient of `x` and `dy` that writes `dx` and `N` sums over the rows, in place and not, in pools of several
    /// sizes; asserts that all results are the same, bit for bit, and returns them.
    pub(crate) fn gradients<const N: usize>(
        x: &Vec<f32>,
        cols: usize,
        grad: impl Fn([Src<'_>; 2], Dst<'_>, [&mut [f32]; N], &mut [f32]) + Sync,
    ) -> (Vec<f32>, [Vec<f32>; N], Vec<f32>) {
        let (rows, dy) = (x.len() / cols, random(x.len(), 4));
        let run = |inputs: [Src<'_>; 2], dx: Dst<'_>| {
            let mut sums: [Vec<f32>; N] = std::array::from_fn(|_| vec![f32::NAN; cols]);
            let slices = sums.each_mut().map(|sum| &mut sum[..]);
            grad(inputs, dx, slices, &mut vec![f32::NAN; grad_workspace(rows, cols)]);
            sums
        };
        let dx = out_of_place_and_in_place([x, &dy], |inputs, dx| {
            run(inputs, dx);
        });
        let sums = same_bits_in_any_pool(|| {
            let mut dx = vec![0.0; x.len()];
            run([&x[..], &dy[..]].map(Src::from), Dst::from(&mut dx[..])).concat()
        });
        let sums = std::array::from_fn(|i| sums[i * cols..][..cols].to_vec());
        (dx, sums, dy)
    }
}
