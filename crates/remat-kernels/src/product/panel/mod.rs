//! Packing the operands of a product into the panels that `micro` reads.
//!
//! In: a matrix with any strides. Out: panels of `COLS` columns of the right operand or `ROWS` rows of the left one,
//! step after step. Columns and rows beyond the matrix are zeros, so the kernel needs no special case for them. Time
//! O(steps · columns) and O(steps · rows).

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::base::cache::{first_level_ways, second_level_has_room};
use crate::base::simd::wide;
use crate::product::micro::{COLS, DEPTH, MAX_ROWS, ROWS};

/// Elements from one panel of the right operand to the next: an odd number of vectors of one cache line each, because
/// panels that are written side by side must not fall into the same sets of the cache.
pub(crate) fn right_stride(len: usize) -> usize {
    (len | 1) * COLS
}

/// Elements from one panel of the left operand to the next: room for the longest panel, and again apart in the cache.
pub(crate) const LEFT_STRIDE: usize = DEPTH * ROWS + 64;

/// Elements between the rows or steps of a left operand from which on they are copied: lines so far apart fall into few
/// sets of the caches.
pub(crate) const FAR_APART: usize = 512;

/// Whether `n` rows that lie `stride` elements apart need not be copied: the first-level cache has a way for each row of a
/// tile, however far apart they are, and the second-level one has room for all of them. Measured on a Xeon with 12 and 16 ways: products
/// of 1,024 columns take 4 to 8 % less time where they lie; those of 4,096 columns, of whose lines 18 share a set, 8 % more.
pub(crate) fn rows_keep_apart(n: usize, stride: usize) -> bool {
    first_level_ways() >= MAX_ROWS && second_level_has_room(n, stride * size_of::<f32>())
}

/// Elements from one element to its neighbour along the steps of a product and across them.
#[derive(Clone, Copy)]
pub(crate) struct Strides {
    pub(crate) step: usize,
    pub(crate) across: usize,
}

/// Elements of a vector.
const VECTOR: usize = 8;

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
                for half in [0, VECTOR] {
                    transpose::<VECTOR, COLS>(
                        &from[half * strides.across..],
                        strides.across,
                        len,
                        &mut panel[half..],
                    );
                }
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
            let from = &from[block * ROWS * strides.across..];
            if strides.step == 1 {
                transpose::<ROWS, ROWS>(from, strides.across, len, panel);
            } else {
                pack_part::<ROWS>(from, strides, ROWS, &mut panel[..len * ROWS]);
            }
        }
    }
    if rest > 0 {
        let panel = &mut panels[whole * LEFT_STRIDE..][..len * ROWS];
        let from = &from[whole * ROWS * strides.across..];
        match (strides.across, rest) {
            (1, 1) => copy_rest::<1>(from, strides.step, panel),
            (1, 2) => copy_rest::<2>(from, strides.step, panel),
            (1, 3) => copy_rest::<3>(from, strides.step, panel),
            (1, 4) => copy_rest::<4>(from, strides.step, panel),
            (1, 5) => copy_rest::<5>(from, strides.step, panel),
            _ => pack_part::<ROWS>(from, strides, rest, panel),
        }
    }
}

/// Pointers to the rows of a left operand whose rows are neighbours and whose steps are `step` elements apart; returns the
/// elements from one step to the next. Rows are read where they lie unless steps are far apart: then they are packed into
/// `space`, as [`pack_left`] does.
pub(crate) fn point_at_neighbours(
    from: &[f32],
    step: usize,
    len: usize,
    n_rows: usize,
    pointers: &mut [[*const f32; ROWS]],
    space: &mut [f32],
) -> usize {
    if step < FAR_APART {
        for (block, pointers) in pointers.iter_mut().enumerate() {
            // Rows beyond the last are the last.
            *pointers = std::array::from_fn(|i| from[(block * ROWS + i).min(n_rows - 1)..].as_ptr());
        }
        return step;
    }
    pack_left(from, Strides { step, across: 1 }, len, n_rows, space);
    point_at_panels(pointers, space)
}

/// Pointers to the rows of packed panels; returns the elements from one step to the next.
pub(crate) fn point_at_panels(pointers: &mut [[*const f32; ROWS]], panels: &[f32]) -> usize {
    for (pointers, panel) in pointers.iter_mut().zip(panels.chunks_exact(LEFT_STRIDE)) {
        *pointers = std::array::from_fn(|i| panel[i..].as_ptr());
    }
    ROWS
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

/// Like [`pack_part`] for `USED` rows that are neighbours: a number that the compiler knows makes it several times as
/// fast, and a layer of 64 channels has such a rest.
fn copy_rest<const USED: usize>(from: &[f32], step: usize, panel: &mut [f32]) {
    for (k, vector) in panel.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
        *vector = [0.0; ROWS];
        vector[..USED].copy_from_slice(&from[k * step..][..USED]);
    }
}

/// Rows are neighbours. A few steps at a time over all panels, so that every line of the source is read once.
fn copy_rows(from: &[f32], step: usize, len: usize, n_panels: usize, panels: &mut [f32]) {
    if n_panels == 0 {
        return;
    }
    assert!(from.len() >= (len - 1) * step + n_panels * ROWS, "the source has all elements");
    assert!(panels.len() >= (n_panels - 1) * LEFT_STRIDE + len * ROWS, "the target has room for all panels");
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if step >= ROWS && crate::base::isa::has_avx2() {
        done = len / avx2::STEPS * avx2::STEPS;
        // SAFETY: the processor has what was chosen; the assertions are those that the function wants.
        unsafe { avx2::copy_rows(from, step, done, n_panels, panels) };
    }
    for k in done..len {
        let (rows, _) = from[k * step..][..n_panels * ROWS].as_chunks::<ROWS>();
        for (panel, rows) in rows.iter().enumerate() {
            panels[panel * LEFT_STRIDE + k * ROWS..][..ROWS].copy_from_slice(rows);
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

/// Steps are neighbours: `to[k · W + i] = from[k + i · across]` for `i` below `N` and `k` below `len`.
///
/// Whole vectors are written: what lies behind the last of the `N` elements of a step changes, if it is not an element of
/// a step itself.
fn transpose<const N: usize, const W: usize>(from: &[f32], across: usize, len: usize, to: &mut [f32]) {
    assert!(from.len() >= (N - 1) * across + len, "the source has all elements");
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if len >= VECTOR && crate::base::isa::has_avx2() {
        done = len / VECTOR * VECTOR;
        assert!(to.len() >= (done - 1) * W + VECTOR, "the target has room for all vectors");
        // SAFETY: the processor has what was chosen; the assertions are those that the function wants.
        unsafe { avx2::transpose::<N, W>(from, across, done, to) };
    }
    for k in done..len {
        for i in 0..N {
            to[k * W + i] = from[k + i * across];
        }
    }
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
