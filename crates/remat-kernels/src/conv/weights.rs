//! The weight gradient as a product over positions, whose right operand is packed straight from the image.
//!
//! In: `dy` and `x`. Out: `dweight: [o, kh · kw · c / groups]`. Row `o` of the left operand is channel `o` of `dy`, one
//! step for every output position; column `(tap, channel)` of the right one is what the tap sees of the channel at that
//! position. A panel of columns lies within one tap, so packing copies whole vectors of channels, and receptive fields
//! never exist in memory. No workspace. Time O(positions · o · kh · kw · c / groups).

use std::ops::Range;

use super::{ConvShape, patches};
use crate::gemm::Write;
use crate::micro::{COLS, ROWS};
use crate::panel::{LEFT_STRIDE, Strides, pack_left, right_stride};
use crate::product::{Operands, RowPointers, Size, Visit, product};
use crate::raw::Dst;
use crate::simd::wide;

/// Whether panels lie within one tap.
pub(super) fn is_possible(shape: &ConvShape) -> bool {
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

// SAFETY: the left operand is packed into the space, the rows of the output are the rows of `dweight`.
unsafe impl Operands for Positions<'_> {
    fn pack_right(&self, _tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]) {
        for (panel, col) in block.chunks_exact_mut(right_stride(steps.len())).zip(cols.step_by(COLS)) {
            let (panel, _) = panel[..steps.len() * COLS].as_chunks_mut();
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
        let (step, len) = (self.shape.o, visit.steps.len());
        let from = &self.dy[visit.steps.start * step + rows.start..];
        pack_left(from, Strides { step, across: 1 }, len, rows.len(), space);
        for (pointers, panel) in pointers.iter_mut().zip(space.chunks_exact(LEFT_STRIDE)) {
            *pointers = std::array::from_fn(|i| panel[i..].as_ptr());
        }
        ROWS
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
