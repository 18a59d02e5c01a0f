//! Packing the operands of a product into the panels that [`crate::micro`] reads.
//!
//! In: a matrix with any strides. Out: panels of `COLS` columns of the right operand or `ROWS` rows of the left one,
//! step after step. Columns and rows beyond the matrix are zeros, so the kernel needs no special case for them. Time
//! O(steps · columns) and O(steps · rows).

use crate::micro::{COLS, DEPTH, ROWS};
use crate::simd::wide;

/// Elements from one panel of the right operand to the next: an odd number of vectors of one cache line each, because
/// panels that are written side by side must not fall into the same sets of the cache.
pub(crate) fn right_stride(len: usize) -> usize {
    (len | 1) * COLS
}

/// Elements from one panel of the left operand to the next: room for the longest panel, and again apart in the cache.
pub(crate) const LEFT_STRIDE: usize = DEPTH * ROWS + 64;

/// Elements from one element to its neighbour along the steps of a product and across them.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) step: usize,
    pub(crate) across: usize,
}

/// `block[panel, k, j] = from[k · step + (panel · COLS + j) · across]` for columns below `n_cols`, else 0; panels are
/// [`right_stride`] apart.
pub(crate) fn pack_right(from: &[f32], strides: Strides, len: usize, n_cols: usize, block: &mut [f32]) {
    if len == 0 {
        return;
    }
    let (whole, rest) = (n_cols / COLS, n_cols % COLS);
    if strides.across == 1 {
        copy_columns(from, strides.step, len, whole, block);
    } else {
        for (panel, block) in block.chunks_mut(right_stride(len)).enumerate().take(whole) {
            let (from, panel) = (&from[panel * COLS * strides.across..], &mut block[..len * COLS]);
            if strides.step == 1 {
                transpose_columns(from, strides.across, panel);
            } else {
                pack_part::<COLS>(from, strides, COLS, panel);
            }
        }
    }
    if rest > 0 {
        let panel = &mut block[whole * right_stride(len)..][..len * COLS];
        pack_part::<COLS>(&from[whole * COLS * strides.across..], strides, rest, panel);
    }
}

/// `panels[block, k, i] = from[k · step + (block · ROWS + i) · across]` for rows below `n_rows`, else 0; panels are
/// [`LEFT_STRIDE`] apart.
pub(crate) fn pack_left(from: &[f32], strides: Strides, len: usize, n_rows: usize, panels: &mut [f32]) {
    if len == 0 {
        return;
    }
    let (whole, rest) = (n_rows / ROWS, n_rows % ROWS);
    if strides.across == 1 {
        copy_rows(from, strides.step, len, whole, panels);
    } else {
        for (block, panel) in panels.chunks_mut(LEFT_STRIDE).enumerate().take(whole) {
            pack_part::<ROWS>(
                &from[block * ROWS * strides.across..],
                strides,
                ROWS,
                &mut panel[..len * ROWS],
            );
        }
    }
    if rest > 0 {
        let panel = &mut panels[whole * LEFT_STRIDE..][..len * ROWS];
        pack_part::<ROWS>(&from[whole * ROWS * strides.across..], strides, rest, panel);
    }
}

/// A panel of `W` rows or columns, of which `used` exist.
fn pack_part<const W: usize>(from: &[f32], strides: Strides, used: usize, panel: &mut [f32]) {
    for (k, vector) in panel.chunks_exact_mut(W).enumerate() {
        vector[used..].fill(0.0);
        for (i, element) in vector[..used].iter_mut().enumerate() {
            *element = from[k * strides.step + i * strides.across];
        }
    }
}

wide! {
    /// Rows are neighbours. Step by step over all panels, so that every line of the source is read once.
    fn copy_rows(from: &[f32], step: usize, len: usize, n_panels: usize, panels: &mut [f32]) {
        for k in 0..len {
            let (rows, _) = from[k * step..][..n_panels * ROWS].as_chunks::<ROWS>();
            for (panel, rows) in rows.iter().enumerate() {
                panels[panel * LEFT_STRIDE + k * ROWS..][..ROWS].copy_from_slice(rows);
            }
        }
    }
}

wide! {
    /// Columns are neighbours. Step by step over all panels, so that every line of the source is read once.
    fn copy_columns(from: &[f32], step: usize, len: usize, n_panels: usize, block: &mut [f32]) {
        for k in 0..len {
            let (columns, _) = from[k * step..][..n_panels * COLS].as_chunks::<COLS>();
            for (panel, columns) in columns.iter().enumerate() {
                block[panel * right_stride(len) + k * COLS..][..COLS].copy_from_slice(columns);
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
    fn left_panels_hold_the_operand_and_zeros() {
        for len in [0, 1, 7, 30] {
            for (step, across) in [(60, 1), (1, 31), (99, 2)] {
                let strides = Strides { step, across };
                let from = random(len.max(1) * step + 4 * ROWS * across, 1);
                for n in [1, 5, ROWS, 3 * ROWS + 2] {
                    let mut panels = vec![f32::NAN; n.div_ceil(ROWS) * LEFT_STRIDE];
                    pack_left(&from, strides, len, n, &mut panels);
                    for (panel, got) in panels.chunks_exact(LEFT_STRIDE).enumerate() {
                        assert_eq!(got[..len * ROWS], want(&from, strides, panel * ROWS, n, ROWS, len));
                    }
                }
            }
        }
    }

    #[test]
    fn panels_hold_the_operand_and_zeros() {
        for len in [0, 1, 7, 8, 30] {
            for (step, across) in [(1, 31), (60, 1), (99, 2)] {
                let strides = Strides { step, across };
                let from = random(len.max(1) * step + 3 * COLS * across, 1);
                for n in [1, 5, COLS, 2 * COLS + 3] {
                    let n_panels = n.div_ceil(COLS);
                    let mut block = vec![f32::NAN; n_panels * right_stride(len)];
                    pack_right(&from, strides, len, n, &mut block);
                    for (panel, got) in block.chunks_exact(right_stride(len)).enumerate() {
                        assert_eq!(got[..len * COLS], want(&from, strides, panel * COLS, n, COLS, len));
                    }
                }
            }
        }
    }
}
