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
        let (n_taps, len, run) = (visit.taps.len(), visit.steps.len(), shape.kw * shape.c);
        pointers.fill([ZEROS.as_ptr(); ROWS]);
        let mut copies = space.chunks_exact_mut(len);
        for piece in LinePiece::of(shape, rows.clone()) {
            for (tap, kernel_row) in visit.taps.clone().enumerate() {
                let Some(line) = piece.input_line(shape, self.x, kernel_row) else { continue };
                for (i, first) in (piece.first - rows.start..).zip(piece.firsts(shape)) {
                    let pointer = &mut pointers[i / ROWS * n_taps + tap][i % ROWS];
                    if let Some(run) = line.get(first..first.wrapping_add(run)) {
                        *pointer = run[visit.steps.start..].as_ptr();
                        continue;
                    }
                    let copy = copies.next().expect("there is room for all runs of a group");
                    for (element, step) in copy.iter_mut().zip(visit.steps.clone()) {
                        *element = line.get(first.wrapping_add(step)).copied().unwrap_or(0.0);
                    }
                    *pointer = copy.as_ptr();
                }
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

/// Positions that are neighbours in a line of the output.
struct LinePiece {
    /// The first of them, counted over all images.
    first: usize,
    len: usize,
    /// Their line, counted over all images, and the first column.
    line: usize,
    col: usize,
}

impl LinePiece {
    /// The pieces that positions consist of.
    fn of(shape: &ConvShape, positions: Range<usize>) -> impl Iterator<Item = LinePiece> {
        let out_w = shape.out_w();
        let mut first = positions.start;
        std::iter::from_fn(move || {
            (first < positions.end).then(|| {
                let (line, col) = (first / out_w, first % out_w);
                let piece = LinePiece { first, len: (out_w - col).min(positions.end - first), line, col };
                first += piece.len;
                piece
            })
        })
    }

    /// The line of the image that a row of the kernel sees here, if it is inside.
    fn input_line<'a>(&self, shape: &ConvShape, x: &'a [f32], kernel_row: usize) -> Option<&'a [f32]> {
        let row = patches::input_row(shape, self.line % shape.out_h(), kernel_row)?;
        let line_len = shape.w * shape.c;
        Some(&x[(self.line / shape.out_h() * shape.h + row) * line_len..][..line_len])
    }

    /// The element of the line that the first element of a row of the kernel sees, for every position; where it is to the left of the
    /// line, it is negative and becomes a huge one.
    fn firsts(&self, shape: &ConvShape) -> impl Iterator<Item = usize> + use<> {
        let (step, before) = (shape.stride.1 * shape.c, shape.padding.1 * shape.c);
        (self.col..self.col + self.len).map(move |col| (col * step).wrapping_sub(before))
    }
}

/// Packs the columns `cols` of the receptive fields of the positions `steps` for [`super::weights`]: `COLS` elements for every
/// position, zeros beyond the last column.
pub(super) fn pack_panel(
    shape: &ConvShape,
    x: &[f32],
    cols: Range<usize>,
    steps: Range<usize>,
    panel: &mut [f32],
) {
    let run = shape.kw * shape.c;
    let (kernel_row, offset) = (cols.start / run, cols.start % run);
    let part = Part { place: 0, kernel_row: Some(kernel_row), offset };
    // A row of the kernel is no shorter than a panel, so it ends once at most; a panel that is not full lies in the last row.
    match (run - offset).min(cols.len()) {
        COLS => pack_parts([part], shape, x, steps, panel),
        place => {
            let next_row = (place < cols.len()).then_some(kernel_row + 1);
            pack_parts([part, Part { place, kernel_row: next_row, offset: 0 }], shape, x, steps, panel);
        }
    }
}

/// Columns of a panel from `place` on, up to the next part: elements of a row of the kernel from `offset` on, or zeros.
#[derive(Clone, Copy)]
struct Part {
    place: usize,
    kernel_row: Option<usize>,
    offset: usize,
}

wide! {
    /// Packs a panel that consists of these parts.
    ///
    /// Parts are shorter than a vector, and copying so few elements takes longer than a whole vector. So whole vectors are written, in
    /// order: what is too much of a part is overwritten by the next part or the next position.
    fn pack_parts[const N: usize](parts: [Part; N], shape: &ConvShape, x: &[f32], steps: Range<usize>, panel: &mut [f32]) {
        for piece in LinePiece::of(shape, steps.clone()) {
            let lines = parts.map(|part| part.kernel_row.and_then(|row| piece.input_line(shape, x, row)));
            for (i, first) in (piece.first - steps.start..).zip(piece.firsts(shape)) {
                let panel = &mut panel[i * COLS..];
                let mut is_packed = true;
                for (part, line) in parts.iter().zip(lines) {
                    let first = first.wrapping_add(part.offset);
                    let from = match line {
                        Some(line) => line.get(first..first.wrapping_add(COLS)),
                        None => Some(&ZEROS[..COLS]),
                    };
                    match (from, panel.get_mut(part.place..part.place + COLS)) {
                        (Some(from), Some(to)) => to.copy_from_slice(from),
                        _ => is_packed = false,
                    }
                }
                if is_packed {
                    continue;
                }
                // At a border of the image, and at the end of the panel, element by element.
                for (n, (part, line)) in parts.iter().zip(lines).enumerate() {
                    let end = parts.get(n + 1).map_or(COLS, |next| next.place);
                    for (j, to) in panel[part.place..end].iter_mut().enumerate() {
                        let at = first.wrapping_add(part.offset + j);
                        *to = line.and_then(|line| line.get(at)).copied().unwrap_or(0.0);
                    }
                }
            }
        }
    }
}
