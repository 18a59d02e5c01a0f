//! A group of rows of a product in one visit of its sums: the piece of work whose left operand stays in the second-level
//! cache.
//!
//! In: the rows, and panels of the right operand one after the other. Out: the sums of all rows with each panel, in the
//! output. Time O(rows · columns · steps).

use std::ops::Range;

use crate::base::scratch::Lines;
use crate::product::micro::{self, Panels, ROWS, Shape, Steps, Strip, Write};
use crate::product::operands::{Operands, RowPointers, Visit};
use crate::product::panel::LEFT_STRIDE;
use crate::product::prefetch::Prefetch;

/// Blocks of `ROWS` rows in a group.
const BLOCKS: usize = 24;
/// Most rows of a group.
pub(crate) const GROUP_ROWS: usize = BLOCKS * ROWS;

/// A group of rows in one visit: where its left operand lies and where its sums go.
pub(crate) struct Group<'a> {
    pub(crate) rows: Range<usize>,
    shape: Shape,
    n_taps: usize,
    steps: Steps,
    pointers: &'a [RowPointers],
    targets: [*mut f32; GROUP_ROWS],
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
        let mut targets = [std::ptr::null_mut(); GROUP_ROWS];
        for (target, row) in targets.iter_mut().zip(rows.clone()) {
            *target = operands.target(row);
        }
        let steps = Steps { len: visit.steps.len(), left: left_step };
        let col_stride = operands.col_stride();
        Group { rows, shape, n_taps, steps, pointers, targets, col_stride, write, alpha }
    }

    /// Tiles of the innermost loop below each other.
    pub(crate) fn n_tiles(&self) -> usize {
        self.rows.len().div_ceil(self.shape.tile_rows())
    }

    /// Multiplies all rows with the panels of the columns `cols`, of which a tile has as many, and meanwhile asks for memory.
    pub(crate) fn multiply(&self, panels: Panels<'_>, cols: Range<usize>, prefetch: &mut Prefetch) {
        let strip = Strip {
            n_runs: self.n_taps,
            steps: self.steps,
            left: self.pointers,
            right: panels,
            targets: &self.targets[..self.rows.len()],
            first_col: cols.start,
            n_cols: cols.len(),
            col_stride: self.col_stride,
            write: self.write,
            alpha: self.alpha,
            tile_rows: self.shape.tile_rows(),
        };
        // SAFETY: the left pointers are readable by the promise of `Operands`; a panel has `COLS` elements for every step
        // of every tap; the target rows are writable, and the tiles of tasks are disjoint.
        unsafe { micro::multiply(self.shape, &strip, prefetch) };
    }
}
