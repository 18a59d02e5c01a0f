//! Convolution forward and input gradient as a product whose left operand is read where it lies in the image.
//!
//! In: a source image and the weight. Out: a target image. The left operand of the product has a row for every
//! position of the target; the row is one run of channels for every tap of the kernel, found through a pointer into
//! the source (or to zeros, beyond its border). So no receptive field is ever copied, and there is no workspace.
//!
//! The input gradient is the same product with the images exchanged. With a stride, a position of the input is seen
//! only by the taps that hit it; positions fall into [`Phase`]s, each with taps of its own, and no product with a zero
//! between the strides is computed. Time O(positions · taps · channels of the source · channels of the target).

use std::ops::Range;

use super::ConvShape;
use crate::base::raw::Dst;
use crate::product::micro::Write;
use crate::product::micro::{DEPTH, ROWS};
use crate::product::operands::{Operands, RowPointers, Size, Visit};
use crate::product::panel::{Strides, pack_right};
use crate::product::prefetch::Region;
use crate::product::task::product;

/// What positions beyond the border of an image see.
static ZEROS: [f32; DEPTH] = [0.0; DEPTH];

/// Which image is read and which is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    InputGradient,
}

#[derive(Clone, Copy)]
struct Image {
    h: usize,
    w: usize,
    /// Channels of all groups.
    c: usize,
}

/// `target = source ∗ weight` (or added to it), in one direction or the other.
pub(super) fn run(
    shape: &ConvShape,
    direction: Direction,
    source: &[f32],
    weight: &[f32],
    write: Write,
    target: &mut [f32],
) {
    let input = Image { h: shape.h, w: shape.w, c: shape.c };
    let output = Image { h: shape.out_h(), w: shape.out_w(), c: shape.o };
    let (source_image, target_image) = match direction {
        Direction::Forward => (input, output),
        Direction::InputGradient => (output, input),
    };
    let group_weights = shape.o / shape.groups * shape.patch_len();
    let target = Dst::from(target);
    for phase in phases(shape, direction) {
        for group in 0..shape.groups {
            let operands = Positions {
                direction,
                patch: shape.patch_len(),
                channels: shape.c / shape.groups,
                phase: &phase,
                source: (source_image, &source[group * (source_image.c / shape.groups)..]),
                target: (target_image, target, group * (target_image.c / shape.groups)),
                weight: &weight[group * group_weights..][..group_weights],
            };
            let size = Size {
                rows: shape.n * phase.count.0 * phase.count.1,
                cols: target_image.c / shape.groups,
                taps: phase.taps.len(),
                depth: source_image.c / shape.groups,
            };
            product(size, &operands, write, 1.0);
        }
    }
}

/// Positions of the target that are seen by the same taps: `first + step · (a, b)` for `(a, b)` below `count`.
struct Phase {
    first: (usize, usize),
    step: (usize, usize),
    count: (usize, usize),
    /// The source position of a tap is `source_step · (a, b) + shift`.
    source_step: (usize, usize),
    taps: Vec<Tap>,
}

#[derive(Clone, Copy)]
struct Tap {
    /// Position in the kernel, row by row.
    index: usize,
    shift: (isize, isize),
}

impl Phase {
    /// Image, row and column (counted in the phase) of a position of the phase.
    fn unravel(&self, position: usize) -> (usize, usize, usize) {
        let (row, col) = (position / self.count.1, position % self.count.1);
        (row / self.count.0, row % self.count.0, col)
    }
}

fn phases(shape: &ConvShape, direction: Direction) -> Vec<Phase> {
    let taps = (0..shape.kh * shape.kw).map(|index| {
        let (row, col) = (index / shape.kw * shape.dilation.0, index % shape.kw * shape.dilation.1);
        let shift = (row as isize - shape.padding.0 as isize, col as isize - shape.padding.1 as isize);
        Tap { index, shift }
    });
    if direction == Direction::Forward {
        let count = (shape.out_h(), shape.out_w());
        return vec![Phase {
            first: (0, 0),
            step: (1, 1),
            count,
            source_step: shape.stride,
            taps: taps.collect(),
        }];
    }
    let (step_h, step_w) = shape.stride;
    let firsts = (0..step_h.min(shape.h)).flat_map(|i| (0..step_w.min(shape.w)).map(move |j| (i, j)));
    let phase = |first: (usize, usize)| {
        // Output position · stride + shift = input position, where only whole output positions exist.
        let hit = |tap: Tap| {
            let (row, col) = (first.0 as isize - tap.shift.0, first.1 as isize - tap.shift.1);
            let (step_h, step_w) = (step_h as isize, step_w as isize);
            let whole = row.rem_euclid(step_h) == 0 && col.rem_euclid(step_w) == 0;
            whole.then_some(Tap { shift: (row.div_euclid(step_h), col.div_euclid(step_w)), ..tap })
        };
        let count = ((shape.h - first.0).div_ceil(step_h), (shape.w - first.1).div_ceil(step_w));
        let taps = taps.clone().filter_map(hit).collect();
        Phase { first, step: shape.stride, count, source_step: (1, 1), taps }
    };
    firsts.map(phase).collect()
}

/// The operands of one phase and group; rows are positions.
struct Positions<'a> {
    direction: Direction,
    /// Elements of the weight for one output channel, and for one tap of it.
    patch: usize,
    channels: usize,
    phase: &'a Phase,
    /// From the first channel of the group on.
    source: (Image, &'a [f32]),
    /// The last is the first channel of the group.
    target: (Image, Dst<'a>, usize),
    /// `[output channels, taps, input channels]` of the group.
    weight: &'a [f32],
}

// SAFETY: a pointer leads to the channels of a position inside the source, or to `DEPTH` zeros; steps are channels.
// Positions of the target are different pixels.
unsafe impl Operands for Positions<'_> {
    fn pack_right(&self, tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]) {
        let at_tap = self.phase.taps[tap].index * self.channels;
        let (from, strides) = match self.direction {
            Direction::Forward => {
                (cols.start * self.patch + at_tap + steps.start, Strides { step: 1, across: self.patch })
            }
            Direction::InputGradient => {
                (steps.start * self.patch + at_tap + cols.start, Strides { step: self.patch, across: 1 })
            }
        };
        pack_right(&self.weight[from..], strides, steps.len(), cols.len(), block);
    }

    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        _space: &mut [f32],
    ) -> usize {
        let (Image { h, w, c }, source) = self.source;
        pointers.fill([ZEROS.as_ptr(); ROWS]);
        let taps = &self.phase.taps[visit.taps.clone()];
        if taps.is_empty() {
            return 1;
        }
        for (i, position) in rows.enumerate() {
            let (image, a, b) = self.phase.unravel(position);
            let origin = ((a * self.phase.source_step.0) as isize, (b * self.phase.source_step.1) as isize);
            let of_block = &mut pointers[i / ROWS * taps.len()..][..taps.len()];
            for (pointers, tap) in of_block.iter_mut().zip(taps) {
                // A negative position becomes a huge one.
                let (row, col) = ((origin.0 + tap.shift.0) as usize, (origin.1 + tap.shift.1) as usize);
                if row < h && col < w {
                    let pixel = (image * h + row) * w + col;
                    pointers[i % ROWS] = source[pixel * c + visit.steps.start..].as_ptr();
                }
            }
        }
        1
    }

    /// What the last tap sees at the positions; the taps before it see what earlier rows have seen.
    fn left_region(&self, rows: Range<usize>, visit: &Visit) -> Region {
        let (Image { h, w, c }, source) = self.source;
        let Some(tap) = self.phase.taps[visit.taps.clone()].last() else { return Region::NONE };
        let (image, a, b) = self.phase.unravel(rows.start);
        let (step_h, step_w) = self.phase.source_step;
        let pixel =
            ((image * h + a * step_h) * w + b * step_w) as isize + tap.shift.0 * w as isize + tap.shift.1;
        let start = source.as_ptr().wrapping_offset(pixel * c as isize).wrapping_add(visit.steps.start);
        Region { start, n_runs: rows.len(), stride: step_w * c, run_len: visit.steps.len() }
    }

    /// Weights are small next to images, and every tile packs the same ones.
    fn right_region(&self, _cols: Range<usize>, _visit: &Visit) -> Region {
        Region::NONE
    }

    fn target(&self, row: usize) -> *mut f32 {
        let (image, a, b) = self.phase.unravel(row);
        let (Image { h, w, c }, target, first) = self.target;
        let at = (self.phase.first.0 + a * self.phase.step.0, self.phase.first.1 + b * self.phase.step.1);
        target.at(((image * h + at.0) * w + at.1) * c + first)
    }
}
