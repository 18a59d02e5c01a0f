//! What layer norm and RMS norm share: the gradient, in one pass over memory.
//!
//! In: `x, dy: [rows, cols]`, the weight, and every row's centre and inverse deviation. Out: `dx`, and the sums over the
//! rows that are the gradients of bias and weight. `dx` may be `dy` or `x`. Time O(rows · cols).
//!
//! With `x̂ = (x - centre) rstd` and `g = dy weight`: `dx = rstd (g - mean(g) - x̂ mean(g x̂))`, the means being over the
//! row; `dbias = Σ_rows dy`, `dweight = Σ_rows dy x̂`. RMS norm has the centre 0 and no `mean(g)`. A row stays in the
//! first-level cache between its sums and its gradient, and so do the sums of the columns.

use std::ops::Range;

use crate::base::cache::{LINE, prefetch};
use crate::base::raw::{Dst, Src};
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::loops::row_sums::{RowSums, load};
use crate::loops::rows::{COLUMNS, ColumnMoments, ColumnSums, column_moments_workspace, sum_columns};

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

fn grad_rows(inputs: Inputs<'_>, dx: Dst<'_>, rows: Range<usize>, sums: &mut ColumnSums<'_>) {
    if !rows.is_empty() {
        dispatch(GradRows { inputs, dx, rows, sums });
    }
}

struct GradRows<'a, 's> {
    inputs: Inputs<'a>,
    dx: Dst<'a>,
    rows: Range<usize>,
    sums: &'a mut ColumnSums<'s>,
}

impl Kernel for GradRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        // Numbers of vectors cannot be computed from their width where types are written.
        if V::LANES == 16 { self.rows::<V, 2>() } else { self.rows::<V, 4>() }
    }
}

impl GradRows<'_, '_> {
    /// The gradient of a row and the sums of the next one in the same loop: so memory is asked for all the time, and
    /// nothing waits for the constants of a row.
    #[inline(always)]
    fn rows<V: Vector, const K: usize>(self) {
        let GradRows { inputs, dx, rows, sums } = self;
        let cols = inputs.weight.len();
        let whole = cols / COLUMNS * COLUMNS;
        let centre = |row: usize| inputs.mean.map_or(0.0, |mean| mean[row]);
        let place = |row: usize| Place::new(inputs, dx, row);
        let mut of_row = RowSums::<V, K, 2>::new();
        for at in (0..whole).step_by(COLUMNS) {
            // SAFETY: columns of a row.
            unsafe { add_terms(place(rows.start), at, centre(rows.start), &mut of_row) };
        }
        for row in rows.clone() {
            let constants = row_constants(inputs, row, whole, centre(row), of_row);
            // Behind the last row comes the last row once more, for nothing.
            let next = (row + 1).min(rows.end - 1);
            let (this_place, next_place, next_centre) = (place(row), place(next), centre(next));
            of_row = RowSums::new();
            let mut near = sums.next_row();
            let near_places = near.each_mut().map(|near| near[..cols].as_mut_ptr());
            for at in (0..whole).step_by(COLUMNS) {
                // SAFETY: columns of rows, of which the first one belongs to this task alone.
                unsafe {
                    add_terms(next_place, at, next_centre, &mut of_row);
                    grad_vectors::<V, K>(this_place, constants, at, near_places);
                }
                // What the two rows after this one need, a row before it is read and written.
                for line in (at..at + COLUMNS).step_by(LINE) {
                    prefetch(next_place.x.wrapping_add(cols + line));
                    prefetch(next_place.dy.wrapping_add(cols + line));
                    prefetch(next_place.dx.wrapping_add(line));
                }
            }
            for at in whole..cols {
                grad_column(inputs, dx, constants, at, &mut near);
            }
        }
    }
}

/// Where a row lies; every pointer leads to as many elements as the weight has.
#[derive(Clone, Copy)]
struct Place {
    x: *const f32,
    dy: *const f32,
    weight: *const f32,
    dx: *mut f32,
}

impl Place {
    #[inline(always)]
    fn new(inputs: Inputs<'_>, dx: Dst<'_>, row: usize) -> Place {
        let cols = inputs.weight.len();
        let [x, dy] = [inputs.x, inputs.dy].map(|input| input.part(row * cols, cols).address());
        Place { x, dy, weight: inputs.weight.as_ptr(), dx: dx.part(row * cols, cols).address().cast_mut() }
    }
}

/// Adds the terms of `COLUMNS` columns to the sums of a row.
///
/// # Safety
/// The row has so many columns from `at` on.
#[inline(always)]
unsafe fn add_terms<V: Vector, const K: usize>(
    place: Place,
    at: usize,
    centre: f32,
    of_row: &mut RowSums<V, K, 2>,
) {
    // SAFETY: the caller's promise.
    let [x, dy, weight] = unsafe { [place.x, place.dy, place.weight].map(|from| load::<V, K>(from.add(at))) };
    let centre = V::splat(centre);
    let [sums, moments] = &mut of_row.partial;
    for i in 0..K {
        let g = dy[i] * weight[i];
        sums[i] = sums[i] + g;
        moments[i] = g.mul_add(x[i] - centre, moments[i]);
    }
    of_row.added(at);
}

/// The constants of a row, from the sums over its columns below `whole`.
#[inline(always)]
fn row_constants<V: Vector, const K: usize>(
    inputs: Inputs<'_>,
    row: usize,
    whole: usize,
    centre: f32,
    of_row: RowSums<V, K, 2>,
) -> Row {
    let cols = inputs.weight.len();
    let (start, inverse) = (row * cols, inputs.rstd[row]);
    let rest = (whole..cols).map(|at| {
        let ([x], [dy]) = (inputs.x.array(start + at), inputs.dy.array(start + at));
        let g: f32 = dy * inputs.weight[at];
        [0.0 + g, g.mul_add(x - centre, 0.0)]
    });
    let [sum, moment] = of_row.finish(whole, rest);
    let mean = |sum: f64| (sum / cols as f64) as f32;
    let offset = if inputs.mean.is_some() { mean(sum) } else { 0.0 };
    Row { start, centre, inverse, offset, slope: mean(moment * f64::from(inverse)) }
}

/// Columns `at..at + COLUMNS` of a row.
///
/// # Safety
/// The row and the sums have so many columns from `at` on, and nothing else touches them.
#[inline(always)]
unsafe fn grad_vectors<V: Vector, const K: usize>(
    place: Place,
    row: Row,
    at: usize,
    [sums, moments]: [*mut f32; 2],
) {
    // SAFETY: the caller's promise.
    let [x, dy, weight] = unsafe { [place.x, place.dy, place.weight].map(|from| load::<V, K>(from.add(at))) };
    let (centre, inverse) = (V::splat(row.centre), V::splat(row.inverse));
    let (minus_offset, slope) = (V::splat(-row.offset), V::splat(row.slope));
    for i in 0..K {
        let normalised = (x[i] - centre) * inverse;
        let g = dy[i].mul_add(weight[i], minus_offset);
        let at = at + i * V::LANES;
        // SAFETY: as above; all elements that are written have been read.
        unsafe {
            let (sum, moment) = (sums.add(at), moments.add(at));
            (V::load(sum) + dy[i]).store(sum);
            dy[i].mul_add(normalised, V::load(moment)).store(moment);
            (inverse * normalised.neg_mul_add(slope, g)).store(place.dx.add(at));
        }
    }
}

/// One column of a row.
#[inline(always)]
fn grad_column(inputs: Inputs<'_>, dx: Dst<'_>, row: Row, at: usize, [sums, moments]: &mut [&mut [f32]; 2]) {
    let ([x], [dy]): ([f32; 1], [f32; 1]) = (inputs.x.array(row.start + at), inputs.dy.array(row.start + at));
    let normalised = (x - row.centre) * row.inverse;
    sums[at] += dy;
    moments[at] = dy.mul_add(normalised, moments[at]);
    let g = dy.mul_add(inputs.weight[at], -row.offset);
    // SAFETY: the row belongs to this task alone, and its element here has been read.
    unsafe { dx.write(row.start + at, &[row.inverse * normalised.mul_add(-row.slope, g)]) }
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
