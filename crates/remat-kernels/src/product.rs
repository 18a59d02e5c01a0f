//! The loops around [`crate::micro`] that every product shares: tiles, packing, and the order of the sums.
//!
//! In: [`Operands`], which know where the rows of the left operand lie and how to pack the right one. Out: the output
//! rows they name. A product may be a matrix product or a convolution: its sums run over `taps` times `depth` steps.
//!
//! The output is cut into tiles by its shape, one task each. A task walks over the sums in visits of at most `DEPTH`
//! steps: it packs the tile's part of the right operand, then goes over its rows in groups whose left operand stays in
//! the second-level cache while the packed panels pass by. What a thread keeps is bounded: a packed part of
//! `DEPTH · TILE.1` elements, the left operand of a group and its pointers, about 600 KiB.
//!
//! Invariant: the order of a sum depends on `taps` and `depth` alone, so tiles and threads change no bit.

use std::cell::RefCell;
use std::ops::Range;

use crate::gemm::Write;
use crate::micro::{self, COLS, DEPTH, ROWS, Run, Steps, Target};
use crate::panel::{LEFT_STRIDE, right_stride};
use crate::par;

/// Largest tile of a task, in rows and columns of the output.
const TILE: (usize, usize) = (1024, 256);
/// Tiles wanted when there is enough work, so that a handful of threads is kept busy to the end.
const WANTED_TILES: usize = 8;
/// Tiles are not cut below this many rows and columns: packing would cost more than the threads gain.
const MIN_TILE: (usize, usize) = (120, 128);
/// Multiply-adds below which a tile is not worth a task of its own.
const MIN_TILE_WORK: usize = 1 << 20;
/// Rows of tiles are a multiple of this, a multiple of `ROWS`.
const TILE_STEP: usize = 24;
/// Blocks of `ROWS` rows in a group.
const GROUP: usize = 16;

/// The sizes of a product.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) taps: usize,
    pub(crate) depth: usize,
}

/// Some steps of the sums: these steps of each of these taps.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) taps: Range<usize>,
    pub(crate) steps: Range<usize>,
}

/// The pointers of a block of rows for one tap.
pub(crate) type RowPointers = [*const f32; ROWS];

/// What a product reads and where it writes.
///
/// # Safety
/// [`Operands::left`] leaves pointers that are readable as it says, and [`Operands::target`] gives addresses of rows
/// of `cols` columns `col_stride` apart, writable and different for different rows.
pub(crate) unsafe trait Operands: Sync {
    /// Fills `block` with panels of the columns `cols`, zeros beyond them, for some steps of one tap; panels are
    /// [`right_stride`] apart.
    fn pack_right(&self, tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]);

    /// Fills `pointers`, one entry for every block of rows and tap of the visit, blocks outermost; returns the elements
    /// from one step to the next. Rows beyond the range may point to anything readable. What does not lie well in memory
    /// is copied to `space`, which has room for panels of all rows, [`LEFT_STRIDE`] apart.
    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        space: &mut [f32],
    ) -> usize;

    /// The address of column 0 of a row of the output.
    fn target(&self, row: usize) -> *mut f32;

    /// Elements from one column of the output to the next.
    fn col_stride(&self) -> usize {
        1
    }
}

/// Computes the product on the current pool.
pub(crate) fn product(size: Size, operands: &impl Operands, write: Write, alpha: f32) {
    let tiles = Tiles::of(size);
    par::for_each(tiles.count(), |tile| one_tile(size, operands, tiles.tile(tile), write, alpha));
}

/// Like [`product`], on the current thread; for use inside a task.
pub(crate) fn product_serial(size: Size, operands: &impl Operands, write: Write, alpha: f32) {
    let tiles = Tiles::of(size);
    (0..tiles.count()).for_each(|tile| one_tile(size, operands, tiles.tile(tile), write, alpha));
}

/// The tiles of an output, row by row.
struct Tiles {
    rows: usize,
    cols: usize,
    tile: (usize, usize),
}

impl Tiles {
    fn of(size: Size) -> Tiles {
        let Size { rows, cols, taps, depth } = size;
        Tiles { rows, cols, tile: tile_size(rows, cols, taps * depth) }
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.tile.0) * self.cols.div_ceil(self.tile.1)
    }

    fn tile(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.cols.div_ceil(self.tile.1);
        let (row, col) = (index / across * self.tile.0, index % across * self.tile.1);
        (row..self.rows.min(row + self.tile.0), col..self.cols.min(col + self.tile.1))
    }
}

/// What a thread keeps from task to task.
struct Scratch {
    left: Vec<f32>,
    right: Vec<f32>,
    pointers: Vec<RowPointers>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { left: Vec::new(), right: Vec::new(), pointers: Vec::new() }) };
}

fn one_tile(
    size: Size,
    operands: &impl Operands,
    (rows, cols): (Range<usize>, Range<usize>),
    mut write: Write,
    alpha: f32,
) {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.left.resize(GROUP * LEFT_STRIDE, 0.0);
        for visit in visits(size) {
            let len = visit.steps.len();
            let block_len = cols.len().div_ceil(COLS) * right_stride(len);
            let needed = visit.taps.len() * block_len;
            if scratch.right.len() < needed {
                scratch.right.resize(needed, 0.0);
            }
            let blocks = &mut scratch.right[..needed];
            for (tap, block) in visit.taps.clone().zip(blocks.chunks_exact_mut(block_len.max(1))) {
                operands.pack_right(tap, visit.steps.clone(), cols.clone(), block);
            }
            let blocks = &*blocks;
            for row in rows.clone().step_by(GROUP * ROWS) {
                let rows = row..rows.end.min(row + GROUP * ROWS);
                let n_pointers = rows.len().div_ceil(ROWS) * visit.taps.len();
                scratch.pointers.resize(n_pointers, [std::ptr::null(); ROWS]);
                let left_step = operands.left(rows.clone(), &visit, &mut scratch.pointers, &mut scratch.left);
                let steps = Steps { len, left: left_step, right: COLS };
                let group = Group { rows, cols: cols.clone(), write, alpha };
                one_group(operands, group, visit.taps.len(), steps, &scratch.pointers, blocks);
            }
            write = Write::Accumulate;
        }
    });
}

/// The rows of a group, the columns of its tile, and how to write them.
struct Group {
    rows: Range<usize>,
    cols: Range<usize>,
    write: Write,
    alpha: f32,
}

fn one_group(
    operands: &impl Operands,
    group: Group,
    n_taps: usize,
    steps: Steps,
    pointers: &[RowPointers],
    blocks: &[f32],
) {
    let Group { rows, cols, write, alpha } = group;
    let mut targets = [[std::ptr::null_mut(); ROWS]; GROUP];
    for (target, row) in targets.as_flattened_mut().iter_mut().zip(rows.clone()) {
        *target = operands.target(row);
    }
    let col_stride = operands.col_stride();
    let panel_stride = right_stride(steps.len);
    let block_len = cols.len().div_ceil(COLS) * panel_stride;
    for (panel, col) in cols.clone().step_by(COLS).enumerate() {
        for (block, row) in rows.clone().step_by(ROWS).enumerate() {
            let pointers = &pointers[block * n_taps..][..n_taps];
            let run = |r: usize| Run {
                left: pointers[r],
                right: blocks[r * block_len + panel * panel_stride..].as_ptr(),
            };
            let target = Target {
                rows: targets[block].map(|row| row.wrapping_add(col * col_stride)),
                n_rows: ROWS.min(rows.end - row),
                n_cols: COLS.min(cols.end - col),
                col_stride,
                write,
                alpha,
            };
            // SAFETY: the left pointers are readable by the promise of `Operands`; a panel has `COLS` elements for
            // every step of every tap; the target rows are writable, and tiles are disjoint.
            unsafe { micro::tile(n_taps, run, steps, &target) };
        }
    }
}

/// The parts of the sums, in order; one without steps if the sums are empty, so that the output is still written.
fn visits(size: Size) -> impl Iterator<Item = Visit> {
    let Size { taps, depth, .. } = size;
    let len = even_part(depth, DEPTH, 1);
    let n_taps = even_part(taps, DEPTH / len, 1);
    let step_starts = (0..depth.max(1)).step_by(len);
    step_starts.flat_map(move |start| {
        let steps = start..depth.min(start + len);
        let tap_starts = (0..taps.max(1)).step_by(n_taps);
        tap_starts.map(move |tap| Visit { taps: tap..taps.min(tap + n_taps), steps: steps.clone() })
    })
}

/// Rows and columns of a tile: the largest allowed, halved along the longer side while that yields useful tasks.
fn tile_size(rows: usize, cols: usize, depth: usize) -> (usize, usize) {
    let (mut tile_rows, mut tile_cols) = (even_part(rows, TILE.0, TILE_STEP), even_part(cols, TILE.1, COLS));
    loop {
        let n_tiles = rows.div_ceil(tile_rows) * cols.div_ceil(tile_cols);
        let work = tile_rows.saturating_mul(tile_cols).saturating_mul(depth);
        let (cut_rows, cut_cols) = (tile_rows >= 2 * MIN_TILE.0, tile_cols >= 2 * MIN_TILE.1);
        if n_tiles >= WANTED_TILES || work < 2 * MIN_TILE_WORK || !(cut_rows || cut_cols) {
            return (tile_rows, tile_cols);
        }
        if cut_rows && (tile_rows >= tile_cols || !cut_cols) {
            tile_rows = even_part(rows, tile_rows / 2, TILE_STEP);
        } else {
            tile_cols = even_part(cols, tile_cols / 2, COLS);
        }
    }
}

/// Size of the parts when `len` is cut as evenly as possible into parts of about `limit`, in whole steps.
fn even_part(len: usize, limit: usize, step: usize) -> usize {
    let parts = len.div_ceil(limit.max(1)).max(1);
    len.div_ceil(parts).max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_cover_every_step_of_every_tap_once_and_stay_bounded() {
        for (taps, depth) in [(1, 1), (9, 64), (9, 3), (1, 5000), (49, 20), (9, 400), (1, 384)] {
            let mut seen = vec![0; taps * depth];
            for visit in visits(Size { rows: 1, cols: 1, taps, depth }) {
                assert!(visit.taps.len() * visit.steps.len() <= DEPTH);
                for tap in visit.taps {
                    visit.steps.clone().for_each(|step| seen[tap * depth + step] += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{taps} taps of {depth}");
        }
        for (taps, depth) in [(0, 5), (1, 0)] {
            let steps = visits(Size { rows: 1, cols: 1, taps, depth }).map(|v| v.taps.len() * v.steps.len());
            assert_eq!(steps.collect::<Vec<_>>(), [0]);
        }
    }

    #[test]
    fn tiles_stay_bounded_and_large_work_is_shared() {
        for (rows, cols, depth) in
            [(1, 1, 1), (5000, 64, 64), (64, 576, 100_000), (83, 50_257, 768), (7, 0, 3)]
        {
            let (tile_rows, tile_cols) = tile_size(rows, cols, depth);
            assert!((1..=TILE.0 + TILE_STEP).contains(&tile_rows), "{tile_rows} rows");
            assert!((1..=TILE.1 + COLS).contains(&tile_cols), "{tile_cols} columns");
            let n_tiles = rows.div_ceil(tile_rows) * cols.div_ceil(tile_cols);
            assert!(rows * cols < MIN_TILE.0 * MIN_TILE.1 * 4 || n_tiles >= 4, "{n_tiles} tiles");
        }
    }
}
