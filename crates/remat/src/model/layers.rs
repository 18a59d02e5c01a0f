//! The layers that models are made of: parameters with PyTorch's names and initialisation, and the ops on them.
//!
//! Every function opens the scope `name`, so that parameters and nodes are found under their module. Images are
//! NHWC, convolution weights `[out, kh, kw, in]`; weight files hold PyTorch's order.

use crate::error::{Error, Result};
use crate::graph::{Builder, FileLayout, Init, Kind, Type};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::batch_norm::BatchNorm;
use crate::op::conv_transpose2d::ConvTranspose2d;
use crate::op::conv2d::Conv2d;
use crate::op::dropout::Dropout;
use crate::op::embedding::Embedding;
use crate::op::layer_norm::LayerNorm;
use crate::op::linear::Linear;
use crate::op::relu::Relu;
use crate::op::rms_norm::RmsNorm;
use crate::op::running_update::RunningUpdate;
use crate::op::slice::Slice;

/// What PyTorch's linear and convolution layers start from: uniform within `1 / sqrt(fan_in)`, weight and bias alike.
pub(super) fn default_init(fan_in: usize) -> Init {
    Init::Uniform((1.0 / (fan_in as f64).sqrt()) as f32)
}

/// `x @ weight.T + bias`, without bias for `None`.
pub(super) fn linear(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    outputs: usize,
    weight: Init,
    bias: Option<Init>,
) -> Result<ValueId> {
    b.scope(name, |b| {
        let mut inputs = vec![x, b.parameter("weight", Type::f32(&[outputs, b.ty(x).last()])?, weight)];
        if let Some(init) = bias {
            inputs.push(b.parameter("bias", Type::f32(&[outputs])?, init));
        }
        b.add(Linear {}, &inputs)
    })
}

/// A linear layer with bias and PyTorch's default initialisation.
pub(super) fn default_linear(b: &mut Builder, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    let init = default_init(b.ty(x).last());
    linear(b, name, x, outputs, init, Some(init))
}

/// A square convolution without bias that keeps the image size at stride 1.
pub(super) fn conv(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: usize,
    stride: usize,
    init: Init,
) -> Result<ValueId> {
    b.scope(name, |b| {
        let ty = Type::f32(&[outputs, kernel, kernel, b.ty(x).last()])?;
        let weight = b.source("weight", Kind::Parameter, ty, init, FileLayout::ConvWeight);
        b.add(same_size(kernel, stride), &[x, weight])
    })
}

/// A 1×1 convolution with bias and PyTorch's default initialisation.
pub(super) fn pointwise_conv(b: &mut Builder, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    let init = default_init(b.ty(x).last());
    b.scope(name, |b| {
        let ty = Type::f32(&[outputs, 1, 1, b.ty(x).last()])?;
        let weight = b.source("weight", Kind::Parameter, ty, init, FileLayout::ConvWeight);
        let bias = b.parameter("bias", Type::f32(&[outputs])?, init);
        b.add(same_size(1, 1), &[x, weight, bias])
    })
}

fn same_size(kernel: usize, stride: usize) -> Conv2d {
    Conv2d { stride: [stride; 2], padding: [kernel / 2; 2], dilation: [1; 2], groups: 1 }
}

/// A transposed 2×2 convolution of stride 2 with bias: doubles height and width.
pub(super) fn upsample(b: &mut Builder, name: &str, x: ValueId, outputs: usize) -> Result<ValueId> {
    // PyTorch takes the fan-in from the weight's second axis, which for a transposed convolution are the outputs.
    let init = default_init(outputs * 4);
    b.scope(name, |b| {
        let ty = Type::f32(&[b.ty(x).last(), 2, 2, outputs])?;
        let weight = b.source("weight", Kind::Parameter, ty, init, FileLayout::ConvWeight);
        let bias = b.parameter("bias", Type::f32(&[outputs])?, init);
        b.add(ConvTranspose2d { stride: [2; 2], padding: [0; 2] }, &[x, weight, bias])
    })
}

/// Batch norm over all but the last axis, with batch statistics; the running ones are updated by nodes of their own.
pub(super) fn batch_norm(b: &mut Builder, name: &str, x: ValueId) -> Result<ValueId> {
    b.scope(name, |b| {
        let (channels, rows) = (b.ty(x).last(), b.ty(x).rows());
        if rows < 2 {
            let scope = b.graph().sources.last().map_or_else(String::new, |s| s.name.clone());
            let message =
                "training needs more than one value per channel; use a larger batch or image".to_owned();
            return Err(Error::Type { op: "batch_norm", scope: format!("{name}, after {scope}"), message });
        }
        let ty = Type::f32(&[channels])?;
        let weight = b.parameter("weight", ty.clone(), Init::Constant(1.0));
        let bias = b.parameter("bias", ty.clone(), Init::Constant(0.0));
        let running_mean = b.buffer("running_mean", ty.clone(), Init::Constant(0.0));
        let running_var = b.buffer("running_var", ty, Init::Constant(1.0));
        let [y, mean, var] = b.add_all(BatchNorm { eps: 1e-5 }, &[x, weight, bias])?[..] else {
            unreachable!("batch norm has three outputs")
        };
        // The running variance is the unbiased one, while the batch is normalised with the biased one.
        let unbiased = (rows as f64 / (rows - 1) as f64) as f32;
        b.add(RunningUpdate { momentum: 0.1, correction: 1.0 }, &[running_mean, mean])?;
        b.add(RunningUpdate { momentum: 0.1, correction: unbiased }, &[running_var, var])?;
        Ok(y)
    })
}

/// ReLU under its own scope.
pub(super) fn relu(b: &mut Builder, name: &str, x: ValueId) -> Result<ValueId> {
    b.scope(name, |b| b.add(Relu {}, &[x]))
}

/// Layer norm over the last axis.
pub(super) fn layer_norm(b: &mut Builder, name: &str, x: ValueId, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let ty = Type::f32(&[b.ty(x).last()])?;
        let weight = b.parameter("weight", ty.clone(), Init::Constant(1.0));
        let bias = b.parameter("bias", ty, Init::Constant(0.0));
        b.add(LayerNorm { eps }, &[x, weight, bias])
    })
}

/// Root-mean-square norm over the last axis.
pub(super) fn rms_norm(b: &mut Builder, name: &str, x: ValueId) -> Result<ValueId> {
    b.scope(name, |b| {
        let weight = b.parameter("weight", Type::f32(&[b.ty(x).last()])?, Init::Constant(1.0));
        b.add(RmsNorm { eps: 1e-6 }, &[x, weight])
    })
}

/// A table of `rows` learned vectors.
pub(super) fn table(b: &mut Builder, name: &str, rows: usize, dim: usize, init: Init) -> Result<ValueId> {
    b.scope(name, |b| Ok(b.parameter("weight", Type::f32(&[rows, dim])?, init)))
}

/// The rows of `table` that `ids` name.
pub(super) fn embed(b: &mut Builder, name: &str, ids: ValueId, table: ValueId) -> Result<ValueId> {
    b.scope(name, |b| b.add(Embedding {}, &[ids, table]))
}

/// Adds the first rows of a table of positions to `x: [B, T, C]`.
pub(super) fn add_positions(b: &mut Builder, name: &str, x: ValueId, table: ValueId) -> Result<ValueId> {
    b.scope(name, |b| {
        let used = b.ty(x).shape()[1];
        let rows = b.ty(table).shape()[0];
        let positions =
            if used == rows { table } else { b.add(Slice { axis: 0, start: 0, end: used }, &[table])? };
        b.add(Add {}, &[x, positions])
    })
}

/// Dropout; probability 0 adds nothing.
pub(super) fn dropout(b: &mut Builder, name: &str, x: ValueId, p: f32) -> Result<ValueId> {
    if p == 0.0 {
        return Ok(x);
    }
    b.scope(name, |b| {
        let stream = b.random_stream();
        b.add(Dropout { p, stream }, &[x])
    })
}
