//! Receptive fields as rows of a matrix, and their adjoint.
//!
//! For a piece of output rows and one group, `patches: [positions, kh, kw, c / groups]` holds what every output
//! position sees of the image, zeros where it looks beyond the border. [`gather`] fills it from an image, one task per
//! output row; [`scatter_add`] adds it back, one task per *input* row, which visits the output rows that see it in
//! increasing kernel row, so every element is added to in a fixed order by one task.

use super::ConvShape;
use crate::base::par;
use std::ops::Range;

/// Copies the receptive fields of the output rows `rows` (counted over all images) into `patches`.
pub(super) fn gather(shape: &ConvShape, x: &[f32], group: usize, rows: Range<usize>, patches: &mut [f32]) {
    let (out_h, out_w, channels) = (shape.out_h(), shape.out_w(), shape.c / shape.groups);
    let segment = shape.kw * channels;
    par::for_each_chunk(patches, out_w * shape.patch_len(), |i, patches| {
        let (image, out_row) = ((rows.start + i) / out_h, (rows.start + i) % out_h);
        for (position, segments) in patches.chunks_exact_mut(shape.patch_len()).enumerate() {
            for (kernel_row, fields) in segments.chunks_exact_mut(segment).enumerate() {
                let Some(row) = input_row(shape, out_row, kernel_row) else {
                    fields.fill(0.0);
                    continue;
                };
                let x = &x[(image * shape.h + row) * shape.w * shape.c..][..shape.w * shape.c];
                let inside = kernel_columns_inside(shape, position);
                fields[..inside.start * channels].fill(0.0);
                fields[inside.end * channels..].fill(0.0);
                for_each_run(shape, group, position, inside, |fields_at, x_at, len| {
                    fields[fields_at..fields_at + len].copy_from_slice(&x[x_at..x_at + len]);
                });
            }
        }
    });
}

/// Adds the receptive fields of the output rows `rows` back to the images they came from.
pub(super) fn scatter_add(
    shape: &ConvShape,
    patches: &[f32],
    group: usize,
    rows: Range<usize>,
    dx: &mut [f32],
) {
    let (out_h, out_w, channels) = (shape.out_h(), shape.out_w(), shape.c / shape.groups);
    let (patch, segment) = (shape.patch_len(), shape.kw * channels);
    let images = rows.start / out_h..rows.end.div_ceil(out_h);
    let row_len = shape.w * shape.c;
    let dx = &mut dx[images.start * shape.h * row_len..images.end * shape.h * row_len];
    par::for_each_chunk(dx, row_len, |i, dx| {
        let (image, row) = (images.start + i / shape.h, i % shape.h);
        for kernel_row in 0..shape.kh {
            let Some(out_row) = output_row(shape, row, kernel_row) else { continue };
            let out_row = image * out_h + out_row;
            if !rows.contains(&out_row) {
                continue;
            }
            let patches = &patches[(out_row - rows.start) * out_w * patch..][..out_w * patch];
            for (position, fields) in patches.chunks_exact(patch).enumerate() {
                let fields = &fields[kernel_row * segment..][..segment];
                let inside = kernel_columns_inside(shape, position);
                for_each_run(shape, group, position, inside, |fields_at, x_at, len| {
                    let fields = &fields[fields_at..fields_at + len];
                    for (dx, field) in dx[x_at..x_at + len].iter_mut().zip(fields) {
                        *dx += field;
                    }
                });
            }
        }
    });
}

/// The input row that `kernel_row` sees at `out_row`, if it is inside the image.
pub(super) fn input_row(shape: &ConvShape, out_row: usize, kernel_row: usize) -> Option<usize> {
    let padded = out_row * shape.stride.0 + kernel_row * shape.dilation.0;
    padded.checked_sub(shape.padding.0).filter(|&row| row < shape.h)
}

/// The output row at which `kernel_row` sees the input row `row`, if there is one.
pub(super) fn output_row(shape: &ConvShape, row: usize, kernel_row: usize) -> Option<usize> {
    let distance = (row + shape.padding.0).checked_sub(kernel_row * shape.dilation.0)?;
    let out_row = distance / shape.stride.0;
    (distance % shape.stride.0 == 0 && out_row < shape.out_h()).then_some(out_row)
}

/// The output columns at which `kernel_col` sees the inside of the image.
pub(super) fn positions_inside(shape: &ConvShape, kernel_col: usize) -> Range<usize> {
    let (shift, stride) = (kernel_col * shape.dilation.1, shape.stride.1);
    let start = shape.padding.1.saturating_sub(shift).div_ceil(stride).min(shape.out_w());
    let end = (shape.w + shape.padding.1).saturating_sub(shift).div_ceil(stride).min(shape.out_w());
    start..end.max(start)
}

/// The kernel columns that see the inside of the image at output column `position`.
pub(super) fn kernel_columns_inside(shape: &ConvShape, position: usize) -> Range<usize> {
    let (padding, dilation) = (shape.padding.1, shape.dilation.1);
    let left = position * shape.stride.1;
    let start = padding.saturating_sub(left).div_ceil(dilation).min(shape.kw);
    let end = (shape.w + padding).saturating_sub(left).div_ceil(dilation).min(shape.kw);
    start..end.max(start)
}

/// Calls `run(fields_at, x_at, len)` for every contiguous run of elements that a row of fields shares with a row of
/// the image: one run in all when the kernel's columns are neighbours in the image, else one per kernel column.
#[inline(always)]
fn for_each_run(
    shape: &ConvShape,
    group: usize,
    position: usize,
    inside: Range<usize>,
    mut run: impl FnMut(usize, usize, usize),
) {
    let channels = shape.c / shape.groups;
    let column =
        |kernel_column: usize| position * shape.stride.1 + kernel_column * shape.dilation.1 - shape.padding.1;
    if shape.groups == 1 && shape.dilation.1 == 1 {
        if !inside.is_empty() {
            run(inside.start * channels, column(inside.start) * channels, inside.len() * channels);
        }
    } else {
        for kernel_column in inside {
            run(kernel_column * channels, column(kernel_column) * shape.c + group * channels, channels);
        }
    }
}
