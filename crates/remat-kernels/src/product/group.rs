//! A group of rows of a product in one visit of its sums: the piece of work whose left operand stays in the second-level
//! cache.
//!
//! In: the rows, and panels of the right operand one after the other. Out: the sums of all rows with each panel, in the
//! output. Time O(rows · columns · steps).

use std::ops::Range;

use crate::base::scratch::Lines;
use crate::product::micro::{self, COLS, ROWS, Run, Shape, Steps, Target, Write};
use crate::product::operands::{Operands, RowPointers, Visit};
use crate::product::panel::LEFT_STRIDE;
use crate::product::prefetch::Prefetch;

/// Blocks of `ROWS` rows in a group.
const BLOCKS: usize = 24;
/// Most rows of a group.
pub(crate) const GROUP_ROWS: usize = BLOCKS * ROWS;

/// Panels of the right operand for every tap of a visit, as many as a tile has.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    pub(crate) first: &'a [f32],
    /// Elements from a tap to the next.
    pub(crate) tap_stride: usize,
    /// Elements from a panel to the next.
    pub(crate) panel_stride: usize,
}

/// A group of rows in one visit: where its left operand lies and where its sums go.
pub(crate) struct Group<'a> {
    pub(crate) rows: Range<usize>,
    shape: Shape,
    n_taps: usize,
    steps: Steps,
    pointers: &'a [RowPointers],
    targets: [[*mut f32; ROWS]; BLOCKS],
    col_stride: usize,
    write: Write,
    alpha: f32,
}

impl<'a> Group<'a> {
    /// Finds the left operand of the rows, and copies it to `left` where it does not lie well.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        operands: &impl Operands,
        shape: Shape,
        alpha: f32,
        rows: Range<usize>,
        visit: &Visit,
        write: Write,
        left: &'a mut Lines,
        pointers: &'a mut Vec<RowPointers>,
    ) -> Group<'a> {
        let n_taps = visit.taps.len();
        pointers.resize(rows.len().div_ceil(ROWS) * n_taps, [std::ptr::null(); ROWS]);
        let left_step = operands.left(rows.clone(), visit, pointers, left.get(BLOCKS * LEFT_STRIDE));
        let mut targets = [[std::ptr::null_mut(); ROWS]; BLOCKS];
        for (target, row) in targets.as_flattened_mut().iter_mut().zip(rows.clone()) {
            *target = operands.target(row);
        }
        let steps = Steps { len: visit.steps.len(), left: left_step, right: COLS };
        let col_stride = operands.col_stride();
        Group { rows, shape, n_taps, steps, pointers, targets, col_stride, write, alpha }
    }

    /// Calls of the innermost loop for the panels of a tile.
    pub(crate) fn n_calls(&self) -> usize {
        self.rows.len().div_ceil(self.shape.blocks * ROWS)
    }

    /// Multiplies all rows with the panels of the columns `cols`, of which a tile has as many, and asks for some memory before
    /// each block.
    pub(crate) fn multiply(
        &self,
        panels: Panels<'_>,
        cols: Range<usize>,
        mut prefetches: [&mut Prefetch; 2],
    ) {
        let last_panel = cols.len().div_ceil(COLS) - 1;
        for row in self.rows.clone().step_by(self.shape.blocks * ROWS) {
            let block = (row - self.rows.start) / ROWS;
            let n_rows = (self.shape.blocks * ROWS).min(self.rows.end - row);
            // What lies beyond the last block or panel is not used, but is something.
            let blocks = [block, block + n_rows.div_ceil(ROWS) - 1];
            let pointers = blocks.map(|block| &self.pointers[block * self.n_taps..][..self.n_taps]);
            let run = |r: usize| {
                let right = &panels.first[r * panels.tap_stride..];
                let of_panels = [right.as_ptr(), right[last_panel * panels.panel_stride..].as_ptr()];
                Run::new([&pointers[0][r], &pointers[1][r]], of_panels)
            };
            let targets = self.targets.as_flattened()[block * ROWS..][..n_rows].iter();
            let mut rows = [std::ptr::null_mut(); 2 * ROWS];
            for (row, target) in rows.iter_mut().zip(targets) {
                *row = target.wrapping_add(cols.start * self.col_stride);
            }
            let target = Target {
                rows,
                n_rows,
                n_cols: cols.len(),
                col_stride: self.col_stride,
                write: self.write,
                alpha: self.alpha,
            };
            prefetches.iter_mut().for_each(|prefetch| prefetch.next_part());
            // SAFETY: the left pointers are readable by the promise of `Operands`; a panel has `COLS` elements for
            // every step of every tap; the target rows are writable, and tiles are disjoint.
            unsafe { micro::tile(self.shape, self.n_taps, run, self.steps, &target) };
        }
    }
}
