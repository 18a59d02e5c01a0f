//! Two-dimensional convolution, forward and both gradients; images are NHWC, weights OHWI.
//!
//! In: `x: [n, h, w, c]`, `weight: [o, kh, kw, c / groups]`. Out: `y: [n, out_h, out_w, o]`. Six ways:
//!
//! * a 1×1 kernel with stride 1 and no padding is a matrix product on the buffers as they are;
//! * a depthwise convolution (one channel per group) is a direct loop over the channels, see `depthwise`;
//! * a 3×3 kernel for which that is wanted uses Winograd's algorithm (`winograd`), with the transformed weight in the
//!   workspace;
//! * a kernel with enough channels reads the image through pointers (`indirect`), and its weight gradient packs the
//!   image straight into the product (`weights`, if channels come in whole vectors), both without workspace;
//! * a kernel on few channels does the same with runs of whole pixels (`few_channels`), except for the input gradient;
//! * everything else copies the receptive fields of a piece of output rows into the workspace (`patches`), one row
//!   of `kh · kw · c / groups` for every output position, and multiplies. Pieces are as large as `PIECE` allows,
//!   and at least one row of the output.
//!
//! A transposed convolution ([`conv_transpose`]) is the input gradient used as a forward.
//! Time O(n · out_h · out_w · o · kh · kw · c / groups).

mod depthwise;
mod few_channels;
mod indirect;
mod patches;
mod weights;
mod winograd;

pub use crate::settings::conv::{ConvError, ConvShape};

use crate::base::par;
use crate::matrix::linear::{LinearShape, linear, linear_grad_weight, start_from_bias};
use crate::product::gemm::{Mat, MatMut, Write, gemm};
use indirect::Direction;
use std::ops::Range;

/// Elements of workspace (4 MiB) that a piece of output rows may fill.
const PIECE: usize = 1 << 20;

/// Channels of a group from which on runs of channels and panels of channels are long enough.
const MIN_CHANNELS: usize = 16;

/// The ways to compute a convolution.
enum Way {
    Pointwise(LinearShape),
    Depthwise,
    Winograd,
    Indirect,
    Patches,
}

fn way(shape: &ConvShape) -> Way {
    let plain = shape.stride == (1, 1) && shape.padding == (0, 0) && shape.groups == 1;
    if plain && shape.kh == 1 && shape.kw == 1 {
        let rows = shape.n * shape.h * shape.w;
        Way::Pointwise(LinearShape { rows, inputs: shape.c, outputs: shape.o })
    } else if shape.groups > 1 && shape.groups == shape.c && shape.groups == shape.o {
        Way::Depthwise
    } else if shape.winograd {
        Way::Winograd
    } else if (shape.c / shape.groups).min(shape.o / shape.groups) >= MIN_CHANNELS {
        Way::Indirect
    } else {
        Way::Patches
    }
}

/// Output rows `(image, row)` per piece: as even as possible, so that the last piece is not a small rest.
fn rows_per_piece(shape: &ConvShape) -> usize {
    let n_rows = shape.n * shape.out_h();
    let row = shape.out_w() * shape.patch_len();
    let most = (PIECE / row.max(1)).clamp(1, n_rows.max(1));
    n_rows.div_ceil(n_rows.div_ceil(most).max(1)).max(1)
}

fn pieces(shape: &ConvShape) -> impl Iterator<Item = Range<usize>> {
    let (n_rows, piece) = (shape.n * shape.out_h(), rows_per_piece(shape));
    (0..n_rows).step_by(piece).map(move |start| start..n_rows.min(start + piece))
}

fn patch_workspace(shape: &ConvShape) -> usize {
    rows_per_piece(shape) * shape.out_w() * shape.patch_len()
}

/// Elements of workspace that [`conv`] needs.
pub fn conv_workspace(shape: &ConvShape) -> usize {
    match way(shape) {
        Way::Winograd => winograd::workspace(shape, Direction::Forward),
        Way::Patches if few_channels::is_possible(shape) => 0,
        _ => conv_grad_input_workspace(shape),
    }
}

/// Elements of workspace that [`conv_grad_input`] needs.
pub fn conv_grad_input_workspace(shape: &ConvShape) -> usize {
    match way(shape) {
        Way::Pointwise(_) | Way::Indirect => 0,
        Way::Depthwise => depthwise::weight_workspace(shape),
        Way::Winograd => winograd::workspace(shape, Direction::InputGradient),
        Way::Patches => patch_workspace(shape),
    }
}

/// Elements of workspace that [`conv_grad_weight`] needs.
pub fn conv_grad_weight_workspace(shape: &ConvShape) -> usize {
    match way(shape) {
        Way::Pointwise(_) => 0,
        Way::Depthwise => depthwise::grad_weight_workspace(shape),
        Way::Winograd => winograd::grad_weight_workspace(shape),
        Way::Indirect | Way::Patches if weights::is_possible(shape) => 0,
        Way::Indirect | Way::Patches => patch_workspace(shape),
    }
}

/// `y = x ∗ weight (+ bias)`.
pub fn conv(
    shape: &ConvShape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    check_sizes(shape, x.len(), weight.len(), y.len());
    match way(shape) {
        Way::Pointwise(linear_shape) => return linear(linear_shape, x, weight, bias, y),
        Way::Depthwise => return depthwise::forward(shape, x, weight, bias, y, workspace),
        Way::Winograd | Way::Indirect | Way::Patches => {}
    }
    let write = start_from_bias(bias, y);
    match way(shape) {
        Way::Winograd => {
            return winograd::run(shape, Direction::Forward, x, weight, write, y, workspace);
        }
        Way::Indirect => return indirect::run(shape, Direction::Forward, x, weight, write, y),
        _ => {}
    }
    if few_channels::is_possible(shape) {
        return few_channels::forward(shape, x, weight, write, y);
    }
    let group = Group::of(shape);
    for piece in pieces(shape) {
        let positions = piece.len() * shape.out_w();
        let y = &mut y[piece.start * shape.out_w() * shape.o..][..positions * shape.o];
        let patches = &mut workspace[..positions * group.patch];
        for g in 0..shape.groups {
            patches::gather(shape, x, g, piece.clone(), patches);
            let out = MatMut::strided(&mut y[g * group.outputs..], positions, group.outputs, shape.o, 1);
            gemm(write, 1.0, Mat::new(patches, positions, group.patch), group.weight(weight, g).t(), out);
        }
    }
}

/// `dx`: the gradient of [`conv`] with respect to its input.
pub fn conv_grad_input(shape: &ConvShape, dy: &[f32], weight: &[f32], dx: &mut [f32], workspace: &mut [f32]) {
    conv_transpose(shape, dy, weight, None, dx, workspace);
}

/// The transposed convolution: [`conv_grad_input`] plus a bias for every channel of `dx`, that is, of the output.
pub fn conv_transpose(
    shape: &ConvShape,
    dy: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    check_sizes(shape, dx.len(), weight.len(), dy.len());
    let write = start_from_bias(bias, dx);
    let group = Group::of(shape);
    match way(shape) {
        Way::Pointwise(LinearShape { rows, inputs, outputs }) => {
            let out = MatMut::new(dx, rows, inputs);
            return gemm(write, 1.0, Mat::new(dy, rows, outputs), group.weight(weight, 0), out);
        }
        Way::Depthwise => return depthwise::grad_input(shape, dy, weight, write, dx, workspace),
        Way::Winograd => {
            return winograd::run(shape, Direction::InputGradient, dy, weight, write, dx, workspace);
        }
        Way::Indirect => {
            return indirect::run(shape, Direction::InputGradient, dy, weight, write, dx);
        }
        Way::Patches => {}
    }
    if write == Write::Overwrite {
        par::for_each_chunk(dx, par::ELEMENTS_PER_TASK, |_, dx| dx.fill(0.0));
    }
    for piece in pieces(shape) {
        let positions = piece.len() * shape.out_w();
        let dy = &dy[piece.start * shape.out_w() * shape.o..][..positions * shape.o];
        let patches = &mut workspace[..positions * group.patch];
        for g in 0..shape.groups {
            let dy = Mat::strided(&dy[g * group.outputs..], positions, group.outputs, shape.o, 1);
            let out = MatMut::new(patches, positions, group.patch);
            gemm(Write::Overwrite, 1.0, dy, group.weight(weight, g), out);
            patches::scatter_add(shape, patches, g, piece.clone(), dx);
        }
    }
}

/// `dweight`: the gradient of [`conv`] with respect to its weight. The gradient of the bias is [`crate::sum_rows`] of `dy`.
pub fn conv_grad_weight(
    shape: &ConvShape,
    dy: &[f32],
    x: &[f32],
    dweight: &mut [f32],
    workspace: &mut [f32],
) {
    check_sizes(shape, x.len(), dweight.len(), dy.len());
    match way(shape) {
        Way::Pointwise(linear_shape) => return linear_grad_weight(linear_shape, dy, x, dweight),
        Way::Depthwise => return depthwise::grad_weight(shape, dy, x, dweight, workspace),
        Way::Winograd => return winograd::grad_weight(shape, dy, x, dweight, workspace),
        Way::Indirect | Way::Patches if weights::is_possible(shape) => {
            return weights::grad_weight(shape, dy, x, dweight);
        }
        Way::Indirect | Way::Patches => {}
    }
    let group = Group::of(shape);
    let mut write = Write::Overwrite;
    for piece in pieces(shape) {
        let positions = piece.len() * shape.out_w();
        let dy = &dy[piece.start * shape.out_w() * shape.o..][..positions * shape.o];
        let patches = &mut workspace[..positions * group.patch];
        for g in 0..shape.groups {
            patches::gather(shape, x, g, piece.clone(), patches);
            let dy = Mat::strided(&dy[g * group.outputs..], positions, group.outputs, shape.o, 1);
            let dweight = &mut dweight[g * group.weights..][..group.weights];
            let out = MatMut::new(dweight, group.outputs, group.patch);
            gemm(write, 1.0, dy.t(), Mat::new(patches, positions, group.patch), out);
        }
        write = Write::Accumulate;
    }
}

/// The sizes of one group.
struct Group {
    /// Output channels.
    outputs: usize,
    /// Elements of one receptive field.
    patch: usize,
    /// Elements of the weight.
    weights: usize,
}

impl Group {
    fn of(shape: &ConvShape) -> Group {
        let (outputs, patch) = (shape.o / shape.groups, shape.patch_len());
        Group { outputs, patch, weights: outputs * patch }
    }

    /// The weight of group `g`, one row for every output channel.
    fn weight<'a>(&self, weight: &'a [f32], g: usize) -> Mat<'a> {
        Mat::new(&weight[g * self.weights..][..self.weights], self.outputs, self.patch)
    }
}

fn check_sizes(shape: &ConvShape, x: usize, weight: usize, y: usize) {
    assert_eq!(x, shape.n * shape.h * shape.w * shape.c, "size of the input");
    assert_eq!(weight, shape.o * shape.patch_len(), "size of the weight");
    assert_eq!(y, shape.n * shape.out_h() * shape.out_w() * shape.o, "size of the output");
}

#[cfg(test)]
mod tests;
