//! Packing the right operand of a product into the panels that [`crate::micro`] reads.
//!
//! In: a matrix with any strides. Out: panels of `COLS` columns each, step after step. Columns beyond the matrix are
//! zeros, so the kernel needs no special case for them. Time O(steps · columns).

use crate::micro::COLS;
use crate::simd::wide;

/// Elements from one element to its neighbour along the steps of a product and across them.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) step: usize,
    pub(crate) across: usize,
}

/// `block[panel, k, j] = from[k · step + (panel · COLS + j) · across]` for columns below `n_cols`, else 0.
pub(crate) fn pack_right(from: &[f32], strides: Strides, len: usize, n_cols: usize, block: &mut [f32]) {
    if len == 0 {
        return;
    }
    let (panels, rest) = (n_cols / COLS, n_cols % COLS);
    let (whole, last) = block.split_at_mut(panels * len * COLS);
    if strides.across == 1 {
        copy_columns(from, strides.step, len, whole);
    } else if strides.step == 1 {
        for (panel, block) in whole.chunks_exact_mut(len * COLS).enumerate() {
            transpose_columns(&from[panel * COLS * strides.across..], strides.across, block);
        }
    } else {
        for (panel, block) in whole.chunks_exact_mut(len * COLS).enumerate() {
            pack_part(&from[panel * COLS * strides.across..], strides, COLS, block);
        }
    }
    if rest > 0 {
        pack_part(&from[panels * COLS * strides.across..], strides, rest, &mut last[..len * COLS]);
    }
}

fn pack_part(from: &[f32], strides: Strides, n_cols: usize, panel: &mut [f32]) {
    for (k, vector) in panel.chunks_exact_mut(COLS).enumerate() {
        vector[n_cols..].fill(0.0);
        for (j, element) in vector[..n_cols].iter_mut().enumerate() {
            *element = from[k * strides.step + j * strides.across];
        }
    }
}

wide! {
    /// Columns are neighbours. Step by step over all panels, so that every line of the source is read once.
    fn copy_columns(from: &[f32], step: usize, len: usize, block: &mut [f32]) {
        let (vectors, _) = block.as_chunks_mut::<COLS>();
        let n_panels = vectors.len() / len;
        for k in 0..len {
            let (columns, _) = from[k * step..][..n_panels * COLS].as_chunks::<COLS>();
            for (panel, columns) in columns.iter().enumerate() {
                vectors[panel * len + k] = *columns;
            }
        }
    }
}

wide! {
    /// Steps are neighbours: squares of eight columns by eight steps change places in registers.
    fn transpose_columns(from: &[f32], across: usize, panel: &mut [f32]) {
        let (vectors, _) = panel.as_chunks_mut::<COLS>();
        let (squares, rest) = vectors.as_chunks_mut::<SQUARE>();
        let n_squares = squares.len();
        for (square, vectors) in squares.iter_mut().enumerate() {
            for half in [0, SQUARE] {
                let column = |j: usize| first_chunk(&from[(half + j) * across + square * SQUARE..]);
                let rows = transposed(std::array::from_fn(column));
                for (vector, row) in vectors.iter_mut().zip(rows) {
                    vector[half..half + SQUARE].copy_from_slice(&row);
                }
            }
        }
        for (k, vector) in rest.iter_mut().enumerate() {
            for (j, element) in vector.iter_mut().enumerate() {
                *element = from[n_squares * SQUARE + k + j * across];
            }
        }
    }
}

/// Side of the squares that are transposed in registers.
const SQUARE: usize = 8;

#[inline(always)]
fn first_chunk<const N: usize>(from: &[f32]) -> [f32; N] {
    *from.first_chunk().expect("the caller asks for elements that are there")
}

/// Three rounds of exchanges, in which element `(i, j)` moves by the bits in which `i` and `j` differ; written so that
/// each round becomes a handful of vector shuffles.
#[inline(always)]
fn transposed(rows: [[f32; SQUARE]; SQUARE]) -> [[f32; SQUARE]; SQUARE] {
    let mut pairs = [[0.0; SQUARE]; SQUARE];
    for i in (0..SQUARE).step_by(2) {
        let (a, b) = (rows[i], rows[i + 1]);
        pairs[i] = [a[0], b[0], a[1], b[1], a[4], b[4], a[5], b[5]];
        pairs[i + 1] = [a[2], b[2], a[3], b[3], a[6], b[6], a[7], b[7]];
    }
    let mut quads = [[0.0; SQUARE]; SQUARE];
    for i in (0..SQUARE).step_by(4) {
        for half in 0..2 {
            let (a, b) = (pairs[i + half], pairs[i + 2 + half]);
            quads[i + 2 * half] = [a[0], a[1], b[0], b[1], a[4], a[5], b[4], b[5]];
            quads[i + 2 * half + 1] = [a[2], a[3], b[2], b[3], a[6], a[7], b[6], b[7]];
        }
    }
    let mut columns = [[0.0; SQUARE]; SQUARE];
    for i in 0..SQUARE / 2 {
        let (a, b) = (quads[i], quads[i + 4]);
        columns[i] = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
        columns[i + 4] = [a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[7]];
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    /// The definition of a panel of columns from `first` on.
    fn want(from: &[f32], strides: Strides, first: usize, n: usize, width: usize, len: usize) -> Vec<f32> {
        let element = |k: usize, j: usize| from[k * strides.step + (first + j) * strides.across];
        let at = |i: usize| if first + i % width < n { element(i / width, i % width) } else { 0.0 };
        (0..len * width).map(at).collect()
    }

    #[test]
    fn panels_hold_the_operand_and_zeros() {
        for len in [0, 1, 7, 8, 30] {
            for (step, across) in [(1, 31), (60, 1), (99, 2)] {
                let strides = Strides { step, across };
                let from = random(len.max(1) * step + 3 * COLS * across, 1);
                for n in [1, 5, COLS, 2 * COLS + 3] {
                    let n_panels = n.div_ceil(COLS);
                    let mut block = vec![f32::NAN; n_panels * len * COLS];
                    pack_right(&from, strides, len, n, &mut block);
                    for (panel, got) in block.chunks_exact((len * COLS).max(1)).enumerate() {
                        assert_eq!(got, want(&from, strides, panel * COLS, n, COLS, len));
                    }
                }
            }
        }
    }
}
