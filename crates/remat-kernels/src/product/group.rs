//! A group of rows of a product in one visit of its sums: the piece of work whose left operand stays in the second-level
//! cache.
//!
//! In: the rows, and panels of the right operand one after the other. Out: the sums of all rows with each panel, in the
//! output. Time O(rows · columns · steps).

use std::ops::Range;

use crate::base::scratch::Lines;
use crate::product::micro::{self, COLS, ROWS, Run, Steps, Target, Write};
use crate::product::operands::{Operands, RowPointers, Visit};
use crate::product::panel::LEFT_STRIDE;
use crate::product::prefetch::Prefetch;

/// Blocks of `ROWS` rows in a group.
const BLOCKS: usize = 24;
/// Most rows of a group.
pub(crate) const GROUP_ROWS: usize = BLOCKS * ROWS;

/// A panel of the right operand for every tap of a visit, `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    pub(crate) first: &'a [f32],
    pub(crate) stride: usize,
}

/// A group of rows in one visit: where its left operand lies and where its sums go.
pub(crate) struct Group<'a> {
    pub(crate) rows: Range<usize>,
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
    pub(crate) fn new(
        operands: &impl Operands,
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
        Group { rows, n_taps, steps, pointers, targets, col_stride, write, alpha }
    }

    /// Blocks of rows: the calls of the innermost loop for every panel.
    pub(crate) fn n_blocks(&self) -> usize {
        self.rows.len().div_ceil(ROWS)
    }

    /// Multiplies all rows with the panel of the columns `cols`, and asks for some memory before each block.
    pub(crate) fn multiply(
        &self,
        panels: Panels<'_>,
        cols: Range<usize>,
        mut prefetches: [&mut Prefetch; 2],
    ) {
        for (block, row) in self.rows.clone().step_by(ROWS).enumerate() {
            let pointers = &self.pointers[block * self.n_taps..][..self.n_taps];
            let run = |r: usize| Run { left: pointers[r], right: panels.first[r * panels.stride..].as_ptr() };
            let target = Target {
                rows: self.targets[block].map(|row| row.wrapping_add(cols.start * self.col_stride)),
                n_rows: ROWS.min(self.rows.end - row),
                n_cols: cols.len(),
                col_stride: self.col_stride,
                write: self.write,
                alpha: self.alpha,
            };
            prefetches.iter_mut().for_each(|prefetch| prefetch.next_part());
            // SAFETY: the left pointers are readable by the promise of `Operands`; a panel has `COLS` elements for
            // every step of every tap; the target rows are writable, and tiles are disjoint.
            unsafe { micro::tile(self.n_taps, run, self.steps, &target) };
        }
    }
}
