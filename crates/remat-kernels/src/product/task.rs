//! The loops around `micro` that every product shares: tiles, packing, and the order of the sums.
//!
//! In: [`Operands`], which know where the rows of the left operand lie and how to pack the right one. Out: the output
//! rows they name. A product may be a matrix product or a convolution: its sums run over `taps` times `depth` steps.
//!
//! The output is cut into tiles by its shape (`tiles`), one task each. A task walks over the sums in visits of at most
//! `DEPTH` steps: it packs the tile's part of the right operand, then goes over its rows in groups (`group`) whose left
//! operand stays in the second-level cache while the packed panels pass by. A tile of a single group packs its panels
//! one at a time instead. Meanwhile the task asks for the memory of what comes next (`prefetch`). What a thread keeps is
//! bounded: a packed part of `DEPTH` steps of a tile, the left operand of a group and its pointers, about 500 KiB.
//!
//! Invariant: the order of a sum depends on `taps` and `depth` alone, so tiles and threads change no bit.

use std::cell::RefCell;
use std::ops::Range;

use crate::base::par;
use crate::base::scratch::Lines;
use crate::product::group::{GROUP_ROWS, Group};
use crate::product::micro::{COLS, DEPTH, Panels, Shape, Write};
use crate::product::operands::{Operands, RowPointers, Size, Visit};
use crate::product::panel::right_stride;
use crate::product::prefetch::{Prefetch, Region};
use crate::product::tiles::Tiles;

/// Computes the product on the current pool.
pub(crate) fn product(size: Size, operands: &impl Operands, write: Write, alpha: f32) {
    let shape = Shape::current();
    let tiles = tiles(size, shape);
    par::for_each(tiles.count(), |index| Task::new(size, operands, shape, tiles, index, alpha).run(write));
}

/// Like [`product`], on the current thread; for use inside a task.
pub(crate) fn product_serial(size: Size, operands: &impl Operands, write: Write, alpha: f32) {
    let shape = Shape::current();
    let tiles = tiles(size, shape);
    (0..tiles.count()).for_each(|index| Task::new(size, operands, shape, tiles, index, alpha).run(write));
}

fn tiles(size: Size, shape: Shape) -> Tiles {
    Tiles::of(size.rows, size.cols, size.taps * size.depth, shape)
}

/// What a thread keeps from task to task.
struct Scratch {
    left: Lines,
    right: Lines,
    pointers: Vec<RowPointers>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { left: Lines::new(), right: Lines::new(), pointers: Vec::new() }) };
}

/// One task: the product of a tile.
struct Task<'a, O> {
    operands: &'a O,
    size: Size,
    shape: Shape,
    tiles: Tiles,
    index: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    alpha: f32,
}

impl<'a, O: Operands> Task<'a, O> {
    fn new(size: Size, operands: &'a O, shape: Shape, tiles: Tiles, index: usize, alpha: f32) -> Self {
        let (rows, cols) = tiles.tile(index);
        Task { operands, size, shape, tiles, index, rows, cols, alpha }
    }

    fn run(&self, mut write: Write) {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut visits = visits(self.size).peekable();
            while let Some(visit) = visits.next() {
                if self.group(self.rows.start).end == self.rows.end {
                    self.panel_by_panel(&visit, visits.peek(), write, scratch);
                } else {
                    self.group_by_group(&visit, visits.peek(), write, scratch);
                }
                write = Write::Accumulate;
            }
        });
    }

    /// The rows of the group that begins with `row`.
    fn group(&self, row: usize) -> Range<usize> {
        row..self.rows.end.min(row + GROUP_ROWS)
    }

    /// Columns of a tile of the innermost loop.
    fn panel_cols(&self) -> usize {
        self.shape.tile_cols()
    }

    /// The columns of the panels that begin with `col` and make a tile.
    fn panels(&self, col: usize) -> Range<usize> {
        col..self.cols.end.min(col + self.panel_cols())
    }

    /// Packs the right operand once for all groups.
    fn group_by_group(&self, visit: &Visit, next: Option<&Visit>, write: Write, scratch: &mut Scratch) {
        let Scratch { left, right, pointers } = scratch;
        let panel_len = right_stride(visit.steps.len());
        let n_panels = self.cols.len().div_ceil(COLS);
        // A visit without taps reads no panel, but its panels have a place all the same.
        let blocks = right.get(visit.taps.len().max(1) * n_panels * panel_len);
        for (tap, block) in visit.taps.clone().zip(blocks.chunks_exact_mut((n_panels * panel_len).max(1))) {
            self.operands.pack_right(tap, visit.steps.clone(), self.cols.clone(), block);
        }
        for row in self.rows.clone().step_by(GROUP_ROWS) {
            let rows = self.group(row);
            let group = Group::new(self.operands, self.shape, self.alpha, rows, visit, write, left, pointers);
            let regions = if group.rows.end < self.rows.end {
                [Region::NONE, self.operands.left_region(self.group(group.rows.end), visit)]
            } else {
                self.regions_behind(next, |cols| cols)
            };
            let n_tiles = group.n_tiles() * n_panels.div_ceil(self.shape.panels);
            let mut prefetch = Prefetch::new(regions, n_tiles);
            for col in self.cols.clone().step_by(self.panel_cols()) {
                let panels = Panels {
                    data: &blocks[(col - self.cols.start) / COLS * panel_len..],
                    run_stride: n_panels * panel_len,
                    panel_stride: panel_len,
                };
                group.multiply(panels, self.panels(col), &mut prefetch);
            }
        }
    }

    /// With one group of rows there is nothing to pack for later: panels of the right operand are packed as a tile needs
    /// them, and stay in the first-level cache until they have been used.
    fn panel_by_panel(&self, visit: &Visit, next: Option<&Visit>, write: Write, scratch: &mut Scratch) {
        let Scratch { left, right, pointers } = scratch;
        let panel_len = right_stride(visit.steps.len());
        let tap_stride = self.shape.panels * panel_len;
        let packed = right.get(visit.taps.len() * tap_stride);
        let rows = self.rows.clone();
        let group = Group::new(self.operands, self.shape, self.alpha, rows, visit, write, left, pointers);
        let [right_behind, left_behind] =
            self.regions_behind(next, |cols| cols.start..cols.end.min(cols.start + self.panel_cols()));
        let n_strips = self.cols.len().div_ceil(self.panel_cols());
        for (strip, col) in self.cols.clone().step_by(self.panel_cols()).enumerate() {
            let cols = self.panels(col);
            for (tap, packed) in visit.taps.clone().zip(packed.chunks_exact_mut(tap_stride.max(1))) {
                self.operands.pack_right(tap, visit.steps.clone(), cols.clone(), packed);
            }
            let region = if cols.end < self.cols.end {
                self.operands.right_region(self.panels(cols.end), visit)
            } else {
                right_behind
            };
            let regions = [region, left_behind.part(strip, n_strips)];
            let mut prefetch = Prefetch::new(regions, group.n_tiles());
            let panels = Panels { data: packed, run_stride: tap_stride, panel_stride: panel_len };
            group.multiply(panels, cols, &mut prefetch);
        }
    }

    /// What is read first after a visit, right and left: in the next visit if there is one, else in the first visit of
    /// the next tile, which mostly is the same thread's. `first` are the columns of a tile that are packed first.
    fn regions_behind(
        &self,
        next: Option<&Visit>,
        first: impl Fn(Range<usize>) -> Range<usize>,
    ) -> [Region; 2] {
        let (index, visit) = match next {
            Some(visit) => (self.index, Some(visit.clone())),
            None => {
                (self.index + 1, visits(self.size).next().filter(|_| self.index + 1 < self.tiles.count()))
            }
        };
        let Some(visit) = visit else { return [Region::NONE; 2] };
        let (rows, cols) = self.tiles.tile(index);
        let rows = rows.start..rows.end.min(rows.start + GROUP_ROWS);
        [self.operands.right_region(first(cols), &visit), self.operands.left_region(rows, &visit)]
    }
}

/// The parts of the sums, in order; one without steps if the sums are empty, so that the output is still written.
fn visits(size: Size) -> impl Iterator<Item = Visit> {
    let Size { taps, depth, .. } = size;
    let len = even_part(depth, DEPTH);
    let n_taps = even_part(taps, DEPTH / len);
    let step_starts = (0..depth.max(1)).step_by(len);
    step_starts.flat_map(move |start| {
        let steps = start..depth.min(start + len);
        let tap_starts = (0..taps.max(1)).step_by(n_taps);
        tap_starts.map(move |tap| Visit { taps: tap..taps.min(tap + n_taps), steps: steps.clone() })
    })
}

/// Size of the parts when `len` is cut as evenly as possible into parts of at most `limit`.
fn even_part(len: usize, limit: usize) -> usize {
    let parts = len.div_ceil(limit.max(1)).max(1);
    len.div_ceil(parts).max(1)
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
}
