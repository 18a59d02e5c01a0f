//! Packing the operands of a product into the panels that [`crate::micro`] reads.
//!
//! A right panel holds `COLS` columns, step after step; a left panel holds `ROWS` rows, step after step. Columns and
//! rows beyond the matrix are zeros, so the kernel needs no special case for them.

use crate::micro::{COLS, ROWS};
use crate::simd::wide;

/// Elements from one element to its neighbour along the steps of a product and across them.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) step: usize,
    pub(crate) across: usize,
}

wide! {
    /// `panel[k, j] = from[k · step + j · across]` for `j < n_cols`, else 0; as many steps as the panel holds.
    pub(crate) fn pack_right(from: &[f32], strides: Strides, n_cols: usize, panel: &mut [f32]) {
        let (vectors, _) = panel.as_chunks_mut::<COLS>();
        if n_cols == COLS && strides.across == 1 {
            for (k, vector) in vectors.iter_mut().enumerate() {
                vector.copy_from_slice(&from[k * strides.step..][..COLS]);
            }
        } else if n_cols == COLS && strides.step == 1 {
            // Eight steps of every column at a time: whole lines of the source are used at once.
            let len = vectors.len();
            let whole = len / SQUARE * SQUARE;
            let (blocks, _) = vectors.as_chunks_mut::<SQUARE>();
            for (block, vectors) in blocks.iter_mut().enumerate() {
                for half in [0, SQUARE] {
                    let column = |j: usize| &from[(half + j) * strides.across + block * SQUARE..];
                    let columns: [[f32; SQUARE]; SQUARE] = std::array::from_fn(|j| first_chunk(column(j)));
                    for (vector, row) in vectors.iter_mut().zip(transposed(columns)) {
                        vector[half..half + SQUARE].copy_from_slice(&row);
                    }
                }
            }
            for (k, vector) in vectors.iter_mut().enumerate().skip(whole) {
                for (j, element) in vector.iter_mut().enumerate() {
                    *element = from[k + j * strides.across];
                }
            }
        } else {
            for (k, vector) in vectors.iter_mut().enumerate() {
                vector[n_cols..].fill(0.0);
                for (j, element) in vector[..n_cols].iter_mut().enumerate() {
                    *element = from[k * strides.step + j * strides.across];
                }
            }
        }
    }
}

wide! {
    /// `panel[k, i] = from[k · step + i · across]` for `i < n_rows`, else 0; as many steps as the panel holds.
    pub(crate) fn pack_left(from: &[f32], strides: Strides, n_rows: usize, panel: &mut [f32]) {
        // Six elements are copied as eight where there is room for it: the next step overwrites the two too many.
        const WIDE: usize = 8;
        let len = panel.len() / ROWS;
        let mut k = 0;
        if n_rows == ROWS && strides.across == 1 {
            while (k + 1) * ROWS + (WIDE - ROWS) <= panel.len() && k * strides.step + WIDE <= from.len() {
                let elements: [f32; WIDE] = first_chunk(&from[k * strides.step..]);
                panel[k * ROWS..k * ROWS + WIDE].copy_from_slice(&elements);
                k += 1;
            }
        }
        for k in k..len {
            let group = &mut panel[k * ROWS..(k + 1) * ROWS];
            group[n_rows..].fill(0.0);
            for (i, element) in group[..n_rows].iter_mut().enumerate() {
                *element = from[k * strides.step + i * strides.across];
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

    /// The definition of a panel.
    fn want(from: &[f32], strides: Strides, n: usize, width: usize, len: usize) -> Vec<f32> {
        let element = |k: usize, j: usize| from[k * strides.step + j * strides.across];
        (0..len * width)
            .map(|at| if at % width < n { element(at / width, at % width) } else { 0.0 })
            .collect()
    }

    #[test]
    fn panels_hold_the_operand_and_zeros() {
        for len in [0, 1, 7, 8, 30] {
            for (step, across) in [(1, 31), (40, 1), (33, 2)] {
                let strides = Strides { step, across };
                let from = random(len.max(1) * step + COLS * across, 1);
                for n in [1, 5, ROWS, COLS] {
                    let mut panel = vec![f32::NAN; len * COLS];
                    pack_right(&from, strides, n, &mut panel);
                    assert_eq!(panel, want(&from, strides, n, COLS, len));
                    let mut panel = vec![f32::NAN; len * ROWS];
                    pack_left(&from, strides, n.min(ROWS), &mut panel);
                    assert_eq!(panel, want(&from, strides, n.min(ROWS), ROWS, len));
                }
            }
        }
    }
}
