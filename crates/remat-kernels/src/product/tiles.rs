//! Cutting the output of a product into the tiles of its tasks, by shape alone.
//!
//! In: the sizes of a product. Out: a grid of tiles. Many tiles keep many threads busy to the end; few tiles pack less,
//! because every tile packs its own part of both operands. The grid is the one with the least estimated time, summed over
//! some numbers of threads. Tiles change no bit of a product, so this is a matter of speed only. Time O(1).

use crate::product::micro::{COLS, Shape};
use std::ops::Range;

/// Largest tile, in rows and columns: what a thread keeps is bounded, and so is the part of an operand that has to stay
/// in the second-level cache.
const MAX: (usize, usize) = (1024, 256);
/// Tiles are not cut below this many rows and columns.
const MIN: (usize, usize) = (96, 48);
/// More parts than necessary that are tried along each side.
const MORE_PARTS: usize = 8;
/// Numbers of threads that the grid should suit. Beyond them, large products have tiles enough anyway.
const THREADS: [usize; 3] = [1, 2, 4];
/// Cycles that packing an element takes, waiting for memory included. A cycle multiplies with `COLS` elements.
const PACKING: f64 = 0.7;
/// Further cycles that a task costs.
const TASK: f64 = 30_000.0;

/// The tiles of an output, row by row.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    rows: usize,
    cols: usize,
    tile: (usize, usize),
}

impl Tiles {
    /// The tiles of `rows` by `cols` sums of `depth` products. They have whole tiles of the innermost loop below each other, and whole
    /// panels beside each other: the innermost loop is nearly as fast on one panel as on two, and a stem of 147 columns in tasks of 80 and
    /// 67 takes a sixth less time than in tasks of 96 and 51.
    pub(crate) fn of(rows: usize, cols: usize, depth: usize, shape: Shape) -> Tiles {
        let candidates = |len: usize, max: usize, min: usize, step: usize| {
            let fewest = len.div_ceil(max).max(1);
            let most = (fewest + MORE_PARTS).min(len / min).max(fewest);
            (fewest..=most).map(move |parts| len.div_ceil(parts).max(1).next_multiple_of(step))
        };
        let mut best = (f64::INFINITY, (1, 1));
        for tile_rows in candidates(rows, MAX.0, MIN.0, shape.tile_rows()) {
            for tile_cols in candidates(cols, MAX.1, MIN.1, COLS) {
                let tiles = Tiles { rows, cols, tile: (tile_rows, tile_cols) };
                let cycles = tiles.cycles(depth);
                if cycles < best.0 {
                    best = (cycles, tiles.tile);
                }
            }
        }
        Tiles { rows, cols, tile: best.1 }
    }

    /// Cycles of all threads, idle ones included, summed over the numbers of threads.
    fn cycles(&self, depth: usize) -> f64 {
        let (rows, cols) = (self.tile.0 as f64, self.tile.1 as f64);
        let tile = TASK + depth as f64 * (rows * cols / COLS as f64 + PACKING * (rows + cols));
        let per_thread = |threads: usize| self.count().div_ceil(threads) * threads;
        tile * THREADS.iter().map(|&threads| per_thread(threads) as f64).sum::<f64>()
    }

    pub(crate) fn count(&self) -> usize {
        self.rows.div_ceil(self.tile.0) * self.cols.div_ceil(self.tile.1)
    }

    /// Rows and columns of a tile.
    pub(crate) fn tile(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.cols.div_ceil(self.tile.1);
        let (row, col) = (index / across * self.tile.0, index % across * self.tile.1);
        (row..self.rows.min(row + self.tile.0), col..self.cols.min(col + self.tile.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_the_output_once_and_stay_bounded() {
        for (rows, cols, depth) in
            [(1, 1, 1), (5000, 64, 64), (64, 576, 100_000), (83, 50_257, 768), (7, 0, 3)]
        {
            let shape = Shape::current();
            let tiles = Tiles::of(rows, cols, depth, shape);
            let mut covered = 0;
            for (tile_rows, tile_cols) in (0..tiles.count()).map(|index| tiles.tile(index)) {
                assert!((1..=MAX.0 + shape.tile_rows()).contains(&tile_rows.len()), "{tile_rows:?}");
                assert!((1..=MAX.1 + shape.tile_cols()).contains(&tile_cols.len()), "{tile_cols:?}");
                covered += tile_rows.len() * tile_cols.len();
            }
            assert_eq!(covered, rows * cols);
        }
    }

    #[test]
    fn large_work_is_shared_evenly_and_small_work_is_not_cut() {
        for (rows, cols, depth) in
            [(64, 576, 12_544), (128, 1152, 3136), (2048, 512, 512), (1024, 1024, 1024)]
        {
            let n_tiles = Tiles::of(rows, cols, depth, Shape::current()).count();
            assert!(n_tiles.is_multiple_of(4), "{rows} x {cols}: {n_tiles} tiles");
        }
        assert_eq!(Tiles::of(100, 100, 10, Shape::current()).count(), 1);
    }
}
