//! Depthwise convolution: every channel has its own kernel, so there is no sum over channels and no matrix product.
//!
//! The loops run over channels innermost, where the image is contiguous; for that the weight `[c, kh, kw]` is first
//! turned into `[kh, kw, c]` in the workspace. The weight gradient sums chunks of output rows, a number of them fixed
//! by the shape, and adds the chunks' sums in order.

use super::patches::{input_row, kernel_columns_inside, output_row};
use super::{ConvShape, start_from_bias};
use crate::base::par;
use crate::product::micro::Write;

/// Most chunks of output rows of the weight gradient.
const MAX_CHUNKS: usize = 64;

/// Elements of workspace for the forward and the input gradient: the turned weight.
pub(super) fn weight_workspace(shape: &ConvShape) -> usize {
    shape.kh * shape.kw * shape.c
}

/// Elements of workspace for the weight gradient: a turned weight for every chunk.
pub(super) fn grad_weight_workspace(shape: &ConvShape) -> usize {
    n_chunks(shape).0 * weight_workspace(shape)
}

/// Number of chunks and output rows per chunk.
fn n_chunks(shape: &ConvShape) -> (usize, usize) {
    let n_rows = shape.n * shape.out_h();
    let rows = n_rows.div_ceil(MAX_CHUNKS);
    (n_rows.div_ceil(rows), rows)
}

/// `[c, taps]` to `[taps, c]`.
fn turn_weight<'a>(shape: &ConvShape, weight: &[f32], workspace: &'a mut [f32]) -> &'a [f32] {
    let (taps, c) = (shape.kh * shape.kw, shape.c);
    let turned = &mut workspace[..taps * c];
    for (tap, turned) in turned.chunks_exact_mut(c).enumerate() {
        for (channel, turned) in turned.iter_mut().enumerate() {
            *turned = weight[channel * taps + tap];
        }
    }
    turned
}

/// See [`super::conv`].
pub(super) fn forward(
    shape: &ConvShape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    let weight = turn_weight(shape, weight, workspace);
    if start_from_bias(bias, y) == Write::Overwrite {
        par::for_each_chunk(y, par::ELEMENTS_PER_TASK, |_, y| y.fill(0.0));
    }
    let (c, out_h) = (shape.c, shape.out_h());
    par::for_each_chunk(y, shape.out_w() * c, |i, y| {
        let (image, out_row) = (i / out_h, i % out_h);
        for kernel_row in 0..shape.kh {
            let Some(row) = input_row(shape, out_row, kernel_row) else { continue };
            let x = &x[(image * shape.h + row) * shape.w * c..][..shape.w * c];
            for (position, y) in y.chunks_exact_mut(c).enumerate() {
                for kernel_column in kernel_columns_inside(shape, position) {
                    let x = &x[input_column(shape, position, kernel_column) * c..][..c];
                    let weight = &weight[(kernel_row * shape.kw + kernel_column) * c..][..c];
                    add_products(x, weight, y);
                }
            }
        }
    });
}

/// See [`super::conv_transpose`]; `write` says whether `dx` already holds something to add to.
pub(super) fn grad_input(
    shape: &ConvShape,
    dy: &[f32],
    weight: &[f32],
    write: Write,
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    let weight = turn_weight(shape, weight, workspace);
    let (c, out_h, out_w) = (shape.c, shape.out_h(), shape.out_w());
    par::for_each_chunk(dx, shape.w * c, |i, dx| {
        let (image, row) = (i / shape.h, i % shape.h);
        if write == Write::Overwrite {
            dx.fill(0.0);
        }
        for kernel_row in 0..shape.kh {
            let Some(out_row) = output_row(shape, row, kernel_row) else { continue };
            let dy = &dy[(image * out_h + out_row) * out_w * c..][..out_w * c];
            for (position, dy) in dy.chunks_exact(c).enumerate() {
                for kernel_column in kernel_columns_inside(shape, position) {
                    let dx = &mut dx[input_column(shape, position, kernel_column) * c..][..c];
                    let weight = &weight[(kernel_row * shape.kw + kernel_column) * c..][..c];
                    add_products(dy, weight, dx);
                }
            }
        }
    });
}

/// See [`super::conv_grad_weight`].
pub(super) fn grad_weight(
    shape: &ConvShape,
    dy: &[f32],
    x: &[f32],
    dweight: &mut [f32],
    workspace: &mut [f32],
) {
    let (c, out_h, out_w) = (shape.c, shape.out_h(), shape.out_w());
    let turned_len = weight_workspace(shape);
    let (chunks, rows) = n_chunks(shape);
    let partials = &mut workspace[..chunks * turned_len];
    par::for_each_chunk(partials, turned_len, |chunk, partial| {
        partial.fill(0.0);
        for i in chunk * rows..((chunk + 1) * rows).min(shape.n * out_h) {
            let (image, out_row) = (i / out_h, i % out_h);
            let dy = &dy[i * out_w * c..][..out_w * c];
            for kernel_row in 0..shape.kh {
                let Some(row) = input_row(shape, out_row, kernel_row) else { continue };
                let x = &x[(image * shape.h + row) * shape.w * c..][..shape.w * c];
                for (position, dy) in dy.chunks_exact(c).enumerate() {
                    for kernel_column in kernel_columns_inside(shape, position) {
                        let x = &x[input_column(shape, position, kernel_column) * c..][..c];
                        let sums = &mut partial[(kernel_row * shape.kw + kernel_column) * c..][..c];
                        add_products(dy, x, sums);
                    }
                }
            }
        }
    });
    let partials = &*partials;
    let taps = shape.kh * shape.kw;
    par::for_each_chunk(dweight, taps, |channel, dweight| {
        for (tap, dweight) in dweight.iter_mut().enumerate() {
            *dweight = partials.chunks_exact(turned_len).map(|partial| partial[tap * c + channel]).sum();
        }
    });
}

/// The input column that `kernel_column` sees at output column `position`, known to be inside the image.
fn input_column(shape: &ConvShape, position: usize, kernel_column: usize) -> usize {
    position * shape.stride.1 + kernel_column * shape.dilation.1 - shape.padding.1
}

fn add_products(a: &[f32], b: &[f32], sums: &mut [f32]) {
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        *sum += a * b;
    }
}
