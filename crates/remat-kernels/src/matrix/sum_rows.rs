//! Column sums of a matrix: the gradient of a bias and of every broadcast over leading dimensions.
//!
//! In: `x: [rows, cols]`. Out: `[cols]`. Rows are summed in chunks of a fixed size and the chunks' sums are added
//! pairwise, so the result does not depend on the number of threads and the error grows with the logarithm of the
//! number of chunks. Time O(rows · cols), workspace one row for every chunk.

use crate::base::par;
use crate::base::simd::wide;

/// Rows that one task adds up in order.
const CHUNK: usize = 256;
/// Columns that one task handles.
const COLUMNS: usize = 1024;

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

wide! {
    /// Adds up `rows` rows of width `cols`, for the columns from `first` that `out` stands for.
    fn sum_chunk(x: &[f32], rows: usize, cols: usize, first: usize, out: &mut [f32]) {
        let width = out.len();
        let row = |r: usize| &x[r * cols + first..][..width];
        // Four rows at a time, so that `out` is read and written once for four additions.
        out.fill(0.0);
        let whole = rows / 4 * 4;
        for r in (0..whole).step_by(4) {
            let (x0, x1, x2, x3) = (row(r), row(r + 1), row(r + 2), row(r + 3));
            for (c, out) in out.iter_mut().enumerate() {
                *out += (x0[c] + x1[c]) + (x2[c] + x3[c]);
            }
        }
        for r in whole..rows {
            for (out, x) in out.iter_mut().zip(row(r)) {
                *out += x;
            }
        }
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
