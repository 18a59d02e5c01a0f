//! The weight gradient as a product over positions, whose right operand is packed straight from the image.
//!
//! In: `dy` and `x`. Out: `dweight: [o, kh · kw · c / groups]`. Row `o` of the left operand is channel `o` of `dy`, one
//! step for every output position; column `(tap, channel)` of the right one is what the tap sees of the channel at that
//! position. Where channels come in whole vectors, a panel of columns lies within one tap, and packing copies vectors of
//! channels; with few channels it lies within one or two rows of the kernel, which are runs of memory. So receptive fields
//! never exist in memory. No workspace. Time O(positions · o · kh · kw · c / groups).

use std::ops::Range;

use super::{ConvShape, few_channels, patches};
use crate::base::raw::Dst;
use crate::base::simd::wide;
use crate::product::micro::COLS;
use crate::product::micro::Write;
use crate::product::operands::{Operands, RowPointers, Size, Visit};
use crate::product::panel::{point_at_neighbours, right_stride};
use crate::product::prefetch::Region;
use crate::product::task::product;

/// Whether panels lie within one tap, or at least in rows of the kernel that are runs of memory.
pub(super) fn is_possible(shape: &ConvShape) -> bool {
    within_taps(shape) || few_channels::is_possible(shape)
}

fn within_taps(shape: &ConvShape) -> bool {
    (shape.c / shape.groups).is_multiple_of(COLS)
}

/// `dweight`, for shapes that [`is_possible`] accepts.
pub(super) fn grad_weight(shape: &ConvShape, dy: &[f32], x: &[f32], dweight: &mut [f32]) {
    let (outputs, channels) = (shape.o / shape.groups, shape.c / shape.groups);
    let dweight = Dst::from(dweight);
    for group in 0..shape.groups {
        let operands = Positions {
            shape,
            channels,
            dy: &dy[group * outputs..],
            x: &x[group * channels..],
            dweight,
            first_row: group * outputs,
        };
        let depth = shape.n * shape.out_h() * shape.out_w();
        let size = Size { rows: outputs, cols: shape.patch_len(), taps: 1, depth };
        product(size, &operands, Write::Overwrite, 1.0);
    }
}

/// The operands of one group; steps are positions.
struct Positions<'a> {
    shape: &'a ConvShape,
    /// Input channels of the group.
    channels: usize,
    /// From the first channel of the group on.
    dy: &'a [f32],
    x: &'a [f32],
    dweight: Dst<'a>,
    /// The row of `dweight` that is the group's first.
    first_row: usize,
}

// SAFETY: the left operand is read where it lies or packed into the space, the rows of the output are the rows of `dweight`.
unsafe impl Operands for Positions<'_> {
    fn pack_right(&self, _tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]) {
        let end = cols.end;
        for (panel, col) in block.chunks_exact_mut(right_stride(steps.len())).zip(cols.step_by(COLS)) {
            let panel = &mut panel[..steps.len() * COLS];
            if !within_taps(self.shape) {
                few_channels::pack_panel(self.shape, self.x, col..end.min(col + COLS), steps.clone(), panel);
                continue;
            }
            let (panel, _) = panel.as_chunks_mut();
            pack_panel(self.shape, &self.x[col % self.channels..], col / self.channels, steps.clone(), panel);
        }
    }

    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        space: &mut [f32],
    ) -> usize {
        let step = self.shape.o;
        let from = &self.dy[visit.steps.start * step + rows.start..];
        point_at_neighbours(from, step, visit.steps.len(), rows.len(), pointers, space)
    }

    fn left_region(&self, rows: Range<usize>, visit: &Visit) -> Region {
        let (step, steps) = (self.shape.o, &visit.steps);
        let start = self.dy.as_ptr().wrapping_add(steps.start * step + rows.start);
        Region { start, n_runs: steps.len(), stride: step, run_len: rows.len() }
    }

    /// The channels of the pixels that the positions lie on, once for every row of the kernel: its other taps see the same
    /// pixels. Few channels are read so often that they are there already.
    fn right_region(&self, cols: Range<usize>, visit: &Visit) -> Region {
        let (shape, channel) = (self.shape, cols.start % self.channels);
        if !within_taps(shape) || !(cols.start / self.channels).is_multiple_of(shape.kw) {
            return Region::NONE;
        }
        let (line, col) = (visit.steps.start / shape.out_w(), visit.steps.start % shape.out_w());
        let image_line = line / shape.out_h() * shape.h + line % shape.out_h() * shape.stride.0;
        let pixel = image_line * shape.w + col * shape.stride.1;
        let start = self.x.as_ptr().wrapping_add(pixel * shape.c + channel);
        let run_len = cols.len().min(self.channels - channel);
        Region { start, n_runs: visit.steps.len(), stride: shape.stride.1 * shape.c, run_len }
    }

    fn target(&self, row: usize) -> *mut f32 {
        self.dweight.at((self.first_row + row) * self.shape.patch_len())
    }
}

wide! {
    /// What `tap` sees of the first channels of `x`, one vector for every position of `steps`; zeros beyond the border.
    fn pack_panel(shape: &ConvShape, x: &[f32], tap: usize, steps: Range<usize>, panel: &mut [[f32; COLS]]) {
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let (kernel_row, kernel_col) = (tap / shape.kw, tap % shape.kw);
        let inside = patches::positions_inside(shape, kernel_col);
        let mut position = steps.start;
        while position < steps.end {
            let (line, col) = (position / out_w, position % out_w);
            let len = (out_w - col).min(steps.end - position);
            let vectors = &mut panel[position - steps.start..][..len];
            position += len;
            let Some(row) = patches::input_row(shape, line % out_h, kernel_row) else {
                vectors.fill([0.0; COLS]);
                continue;
            };
            let (start, end) = (inside.start.clamp(col, col + len), inside.end.clamp(col, col + len));
            vectors[..start - col].fill([0.0; COLS]);
            vectors[end - col..].fill([0.0; COLS]);
            if start == end {
                continue;
            }
            let first = start * shape.stride.1 + kernel_col * shape.dilation.1 - shape.padding.1;
            let x = &x[((line / out_h * shape.h + row) * shape.w + first) * shape.c..];
            for (i, vector) in vectors[start - col..end - col].iter_mut().enumerate() {
                *vector = *x[i * shape.stride.1 * shape.c..].first_chunk().expect("a pixel has a panel of channels left");
            }
        }
    }
}
