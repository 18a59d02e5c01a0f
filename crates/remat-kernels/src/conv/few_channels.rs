//! Convolution of images with few channels: a row of the kernel is one run of memory.
//!
//! In: an image whose channels are too few to make a run of their own, such as the three of a picture, and the weight. Out:
//! the target image. Neighbouring pixels are neighbours in memory, so what a row of the kernel sees at a position is
//! `kw · c` elements that are read where they lie; only where it looks beyond the left or right border they are copied,
//! with zeros around them. No workspace. Time O(positions · o · kh · kw · c). The weight gradient packs the same runs.

use std::ops::Range;

use super::{ConvShape, patches};
use crate::base::raw::Dst;
use crate::base::simd::wide;
use crate::product::micro::Write;
use crate::product::micro::{COLS, DEPTH, ROWS};
use crate::product::operands::{Operands, RowPointers, Size, Visit};
use crate::product::panel::{Strides, pack_right};
use crate::product::prefetch::Region;
use crate::product::task::product;

/// What rows of the kernel see above and below the image.
static ZEROS: [f32; DEPTH] = [0.0; DEPTH];

/// Whether rows of the kernel are runs of memory, and long enough.
pub(super) fn is_possible(shape: &ConvShape) -> bool {
    shape.groups == 1 && shape.dilation.1 == 1 && shape.kw * shape.c >= COLS
}

/// `y = x ∗ weight` (or added to it), for shapes that [`is_possible`] accepts.
pub(super) fn forward(shape: &ConvShape, x: &[f32], weight: &[f32], write: Write, y: &mut [f32]) {
    let rows = shape.n * shape.out_h() * shape.out_w();
    let size = Size { rows, cols: shape.o, taps: shape.kh, depth: shape.kw * shape.c };
    product(size, &KernelRows { shape, x, weight, y: Dst::from(y) }, write, 1.0);
}

/// Rows are positions, taps are rows of the kernel, steps are their elements.
struct KernelRows<'a> {
    shape: &'a ConvShape,
    x: &'a [f32],
    weight: &'a [f32],
    y: Dst<'a>,
}

impl KernelRows<'_> {
    /// Line over all output images, and column, of a position.
    fn unravel(&self, position: usize) -> (usize, usize) {
        (position / self.shape.out_w(), position % self.shape.out_w())
    }
}

// SAFETY: a pointer leads to a run inside the image, to a copy in the space, or to `DEPTH` zeros. Positions of the output are
// different pixels.
unsafe impl Operands for KernelRows<'_> {
    fn pack_right(&self, tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]) {
        let (patch, run) = (self.shape.patch_len(), self.shape.kw * self.shape.c);
        let from = &self.weight[cols.start * patch + tap * run + steps.start..];
        pack_right(from, Strides { step: 1, across: patch }, steps.len(), cols.len(), block);
    }

    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        space: &mut [f32],
    ) -> usize {
        let shape = self.shape;
        let (n_taps, len) = (visit.taps.len(), visit.steps.len());
        pointers.fill([ZEROS.as_ptr(); ROWS]);
        let mut copies = space.chunks_exact_mut(len);
        for (i, position) in rows.enumerate() {
            let (line, col) = self.unravel(position);
            let inside = patches::kernel_columns_inside(shape, col);
            for (tap, kernel_row) in visit.taps.clone().enumerate() {
                let Some(row) = patches::input_row(shape, line % shape.out_h(), kernel_row) else { continue };
                let line = &self.x[(line / shape.out_h() * shape.h + row) * shape.w * shape.c..]
                    [..shape.w * shape.c];
                // The element of the line that the first element of the kernel's row would see.
                let first = (col * shape.stride.1 * shape.c) as isize - (shape.padding.1 * shape.c) as isize;
                let pointer = &mut pointers[i / ROWS * n_taps + tap][i % ROWS];
                if inside == (0..shape.kw) {
                    *pointer = line[first as usize + visit.steps.start..].as_ptr();
                    continue;
                }
                let copy = copies.next().expect("there is room for all runs of a group");
                for (element, step) in copy.iter_mut().zip(visit.steps.clone()) {
                    // A negative place becomes a huge one.
                    *element = line.get((first + step as isize) as usize).copied().unwrap_or(0.0);
                }
                *pointer = copy.as_ptr();
            }
        }
        1
    }

    /// The image is read line after line, which the processor foresees.
    fn left_region(&self, _rows: Range<usize>, _visit: &Visit) -> Region {
        Region::NONE
    }

    fn right_region(&self, _cols: Range<usize>, _visit: &Visit) -> Region {
        Region::NONE
    }

    fn target(&self, row: usize) -> *mut f32 {
        self.y.at(row * self.shape.o)
    }
}

/// Packs the columns `cols` of the receptive fields of the positions `steps` for [`super::weights`]: one vector for every
/// position, zeros beyond the last column.
pub(super) fn pack_panel(
    shape: &ConvShape,
    x: &[f32],
    cols: Range<usize>,
    steps: Range<usize>,
    panel: &mut [[f32; COLS]],
) {
    let run = shape.kw * shape.c;
    panel.iter_mut().for_each(|vector| vector[cols.len()..].fill(0.0));
    let mut col = cols.start;
    while col < cols.end {
        let (kernel_row, offset) = (col / run, col % run);
        let len = (run - offset).min(cols.end - col);
        let segment = Segment { kernel_row, offset, place: col - cols.start, len };
        pack_segment(shape, x, segment, steps.clone(), panel);
        col += len;
    }
}

/// Elements of a row of the kernel, and where they go in the vectors of a panel.
#[derive(Clone, Copy)]
struct Segment {
    kernel_row: usize,
    offset: usize,
    place: usize,
    len: usize,
}

wide! {
    fn pack_segment(shape: &ConvShape, x: &[f32], segment: Segment, steps: Range<usize>, panel: &mut [[f32; COLS]]) {
        let Segment { kernel_row, offset, place, len } = segment;
        let (out_w, line_len) = (shape.out_w(), shape.w * shape.c);
        let mut position = steps.start;
        while position < steps.end {
            let (line, col) = (position / out_w, position % out_w);
            let vectors = &mut panel[position - steps.start..][..(out_w - col).min(steps.end - position)];
            position += vectors.len();
            let Some(row) = patches::input_row(shape, line % shape.out_h(), kernel_row) else {
                vectors.iter_mut().for_each(|vector| vector[place..place + len].fill(0.0));
                continue;
            };
            let x = &x[(line / shape.out_h() * shape.h + row) * line_len..][..line_len];
            for (i, vector) in vectors.iter_mut().enumerate() {
                // Elements to the left of the line are negative and become huge ones.
                let first = ((col + i) * shape.stride.1 * shape.c + offset).wrapping_sub(shape.padding.1 * shape.c);
                let vector = &mut vector[place..place + len];
                match x.get(first..first.wrapping_add(len)) {
                    // A loop, because the runs are too short for the call that copies slices.
                    Some(run) => vector.iter_mut().zip(run).for_each(|(to, from)| *to = *from),
                    None => {
                        for (j, to) in vector.iter_mut().enumerate() {
                            *to = x.get(first.wrapping_add(j)).copied().unwrap_or(0.0);
                        }
                    }
                }
            }
        }
    }
}
