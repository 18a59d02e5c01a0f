//! Column sums of a matrix: the gradient of a bias and of every broadcast over leading dimensions.
//!
//! In: `x: [rows, cols]`. Out: `[cols]`. Rows are summed in chunks of a fixed size and the chunks' sums are added
//! pairwise, so the result does not depend on the number of threads and the error grows with the logarithm of the
//! number of chunks. Time O(rows · cols), workspace one row for every chunk.

use crate::base::cache::prefetch;
use crate::base::par;
use crate::base::vector::{Kernel, Vector, dispatch};
use crate::loops::rows::CLOSE;

/// Rows that one task adds up in order.
const CHUNK: usize = 256;
/// Columns that one task handles.
const COLUMNS: usize = 1024;
/// Columns of narrow rows whose sums are kept in registers.
const TOGETHER: usize = 64;

/// Elements of workspace that [`sum_rows`] needs.
pub fn workspace(rows: usize, cols: usize) -> usize {
    if rows <= CHUNK { 0 } else { rows.div_ceil(CHUNK) * cols }
}

/// `out[c] = Σ_r x[r, c]`.
pub fn sum_rows(x: &[f32], out: &mut [f32], workspace: &mut [f32]) {
    let cols = out.len();
    if cols == 0 {
        return;
    }
    let rows = x.len() / cols;
    assert_eq!(x.len(), rows * cols, "x is not a whole number of rows");
    if rows <= CHUNK {
        par::for_each_chunk(out, COLUMNS, |i, out| sum_chunk(x, rows, cols, i * COLUMNS, out));
        return;
    }
    let n_chunks = rows.div_ceil(CHUNK);
    let partials = &mut workspace[..n_chunks * cols];
    par::for_each_chunk(partials, cols, |chunk, partial| {
        let x = &x[chunk * CHUNK * cols..];
        let rows = CHUNK.min(rows - chunk * CHUNK);
        par::for_each_chunk(partial, COLUMNS, |i, partial| sum_chunk(x, rows, cols, i * COLUMNS, partial));
    });
    // Pairwise: chunk i takes chunk i + step in, for steps 1, 2, 4, …
    let mut step = 1;
    while step < n_chunks {
        par::for_each_chunk(partials, 2 * step * cols, |_, pair| {
            if pair.len() > step * cols {
                let (left, right) = pair.split_at_mut(step * cols);
                for (left, right) in left[..cols].iter_mut().zip(&right[..cols]) {
                    *left += right;
                }
            }
        });
        step *= 2;
    }
    out.copy_from_slice(&partials[..cols]);
}

/// Adds up `rows` rows of width `cols`, for the columns from `first` that `out` stands for.
fn sum_chunk(x: &[f32], rows: usize, cols: usize, first: usize, out: &mut [f32]) {
    if cols <= CLOSE {
        dispatch(NarrowRows { x: &x[..rows * cols], cols, out });
    } else {
        dispatch(WideRows { x: &x[first..], rows, cols, out });
    }
}

/// Sums of rows with many columns: four rows at a time, so that `out` is read and written once for four additions. The
/// processor does not foresee places so far apart, so the next rows are asked for meanwhile.
struct WideRows<'a> {
    x: &'a [f32],
    rows: usize,
    cols: usize,
    out: &'a mut [f32],
}

impl Kernel for WideRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let WideRows { x, rows, cols, out } = self;
        let width = out.len();
        assert!(
            width <= cols && (rows == 0 || x.len() >= (rows - 1) * cols + width),
            "columns of whole rows"
        );
        out.fill(0.0);
        let whole = rows / 4 * 4;
        for r in 0..rows {
            if r < whole && !r.is_multiple_of(4) {
                continue;
            }
            for at in (0..width).step_by(V::LANES) {
                let n = V::LANES.min(width - at);
                // SAFETY: `n` columns from `at` on exist in every row and in `out`.
                unsafe {
                    let of = |from: *const f32| {
                        if n == V::LANES { V::load(from) } else { V::load_first(from, n) }
                    };
                    let row = |r: usize| of(x.as_ptr().add(r * cols + at));
                    let terms = if r < whole {
                        (r + 4..r + 8).for_each(|r| prefetch(x.as_ptr().wrapping_add(r * cols + at)));
                        (row(r) + row(r + 1)) + (row(r + 2) + row(r + 3))
                    } else {
                        row(r)
                    };
                    let to = out.as_mut_ptr().add(at);
                    let sum = of(to) + terms;
                    if n == V::LANES { sum.store(to) } else { sum.store_first(to, n) }
                }
            }
        }
    }
}

/// Sums of rows with few columns: some columns at a time, whose sums stay in registers over all rows. Rows so short are
/// read in full anyway, whatever the order.
struct NarrowRows<'a> {
    x: &'a [f32],
    cols: usize,
    out: &'a mut [f32],
}

impl Kernel for NarrowRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let NarrowRows { x, cols, out } = self;
        assert!(cols == out.len() && x.len().is_multiple_of(cols.max(1)), "all columns of whole rows");
        let (rows, mut at) = (x.len() / cols.max(1), 0);
        while at < cols {
            let (x, out, left) = (x.as_ptr().wrapping_add(at), out.as_mut_ptr().wrapping_add(at), cols - at);
            // SAFETY: as many columns from `at` on exist in every row and in `out`.
            unsafe {
                if left >= TOGETHER {
                    match V::LANES {
                        16 => sum_columns::<V, { TOGETHER / 16 }>(x, rows, cols, V::LANES, out),
                        _ => sum_columns::<V, { TOGETHER / 8 }>(x, rows, cols, V::LANES, out),
                    }
                    at += TOGETHER;
                } else {
                    sum_columns::<V, 1>(x, rows, cols, left.min(V::LANES), out);
                    at += V::LANES;
                }
            }
        }
    }
}

/// Sums of `N` vectors of columns, of whose last one `n_last` columns exist.
///
/// # Safety
/// So many elements of every row are readable, and of `out` writable.
#[inline(always)]
unsafe fn sum_columns<V: Vector, const N: usize>(
    x: *const f32,
    rows: usize,
    cols: usize,
    n_last: usize,
    out: *mut f32,
) {
    let row = |r: usize| {
        let mut row = [V::splat(0.0); N];
        for (j, row) in row.iter_mut().enumerate() {
            let x = x.wrapping_add(r * cols + j * V::LANES);
            // SAFETY: the caller's promise.
            *row = unsafe {
                if j + 1 < N || n_last == V::LANES { V::load(x) } else { V::load_first(x, n_last) }
            };
        }
        row
    };
    let mut sums = [V::splat(0.0); N];
    let whole = rows / 4 * 4;
    for r in (0..whole).step_by(4) {
        let (x0, x1, x2, x3) = (row(r), row(r + 1), row(r + 2), row(r + 3));
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = *sum + ((x0[j] + x1[j]) + (x2[j] + x3[j]));
        }
    }
    for r in whole..rows {
        for (sum, x) in sums.iter_mut().zip(row(r)) {
            *sum = *sum + x;
        }
    }
    for (j, sum) in sums.into_iter().enumerate() {
        let n = if j + 1 < N { V::LANES } else { n_last };
        // SAFETY: as above.
        unsafe { sum.store_first(out.add(j * V::LANES), n) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::linear as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    #[test]
    fn agrees_with_the_definition_in_any_pool() {
        for (rows, cols) in
            [(1, 1), (3, 5), (256, 7), (257, 7), (1000, 33), (5000, 4), (70, 2500), (600, 1100)]
        {
            let x = random(rows * cols, 3);
            let got = same_bits_in_any_pool(|| {
                let mut out = vec![f32::NAN; cols];
                sum_rows(&x, &mut out, &mut vec![f32::NAN; workspace(rows, cols)]);
                out
            });
            assert_close(&got, &naive::sum_rows(&wide(&x), rows, cols), 1e-6);
        }
    }
}
