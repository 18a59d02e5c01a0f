//! Layers on images `[N, H, W, C]`, and norms over channels.

use super::Growth;
use crate::error::Result;
use crate::graph::{Init, Type};
use crate::op::avg_pool::AvgPool;
use crate::op::batch_norm::BatchNorm;
use crate::op::batch_norm_inference::BatchNormInference;
use crate::op::conv_transpose2d::ConvTranspose2d;
use crate::op::conv2d::Conv2d;
use crate::op::global_avg_pool::GlobalAvgPool;
use crate::op::max_pool::MaxPool;
use crate::op::relu::Relu;
use crate::op::reshape::Reshape;
use crate::op::running_update::RunningUpdate;

fn is_image(ty: &Type) -> bool {
    ty.rank() == 4
}

/// A convolution: dense, grouped or depthwise, with stride, padding and dilation.
pub(super) fn conv(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(is_image) else { return Ok(None) };
    let channels = g.shape(x)[3];
    let groups = match g.choices.below(4) {
        1 => channels,
        2 if channels.is_multiple_of(2) => 2,
        _ => 1,
    };
    let (outputs, kernel) = (groups * g.few(5), [g.few(3), g.few(3)]);
    let (stride, padding) = ([g.few(2), g.few(2)], [g.choices.below(2), g.choices.below(2)]);
    let dilation = if g.choices.once_in(5) { [2, 1] } else { [1, 1] };
    let may_be = kernel == [3, 3] && stride == [1, 1] && dilation == [1, 1] && groups == 1;
    let op = Conv2d { stride, padding, dilation, groups, winograd: may_be && g.choices.once_in(2) };
    let inputs = channels / groups;
    let weight = g.weight(&[outputs, kernel[0], kernel[1], inputs], kernel[0] * kernel[1] * inputs)?;
    let operands: Vec<_> = [x, weight].into_iter().chain(g.perhaps_bias(outputs)?).collect();
    Ok(g.try_add(op, &operands).and_then(|y| g.keep(y)))
}

pub(super) fn conv_transpose(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(is_image) else { return Ok(None) };
    let (channels, outputs) = (g.shape(x)[3], g.few(5));
    let (kernel, stride) = ([g.few(3), g.few(3)], [g.few(2), g.few(2)]);
    let weight = g.weight(&[channels, kernel[0], kernel[1], outputs], channels)?;
    let operands: Vec<_> = [x, weight].into_iter().chain(g.perhaps_bias(outputs)?).collect();
    let op = ConvTranspose2d { stride, padding: [g.choices.below(2), 0] };
    Ok(g.try_add(op, &operands).and_then(|y| g.keep(y)))
}

/// Batch norm with its running statistics, with and without a ReLU behind it.
pub(super) fn batch_norm(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.rank() >= 2 && ty.rows() > 1) else { return Ok(None) };
    let (rows, ty) = (g.b.ty(x).rows(), Type::f32(&[g.b.ty(x).last()])?);
    let weight = g.parameter("weight", ty.shape(), Init::Constant(1.0))?;
    let bias = g.parameter("bias", ty.shape(), Init::Constant(0.1))?;
    // Not too small, or a batch of equal values is blown up.
    let norm = g.b.add_all(BatchNorm { eps: 1e-2 }, &[x, weight, bias])?;
    let unbiased = (rows as f64 / (rows - 1) as f64) as f32;
    for (name, init, statistic, correction) in
        [("running_mean", 0.0, norm[1], 1.0), ("running_var", 1.0, norm[2], unbiased)]
    {
        let running = g.b.buffer(name, ty.clone(), Init::Constant(init));
        g.b.add(RunningUpdate { momentum: 0.1, correction }, &[running, statistic])?;
    }
    let has_relu = g.choices.below(3) > 0;
    let y = if has_relu { g.b.add(Relu {}, &[norm[0]])? } else { norm[0] };
    if has_relu && g.choices.once_in(4) {
        // Then the norm has a second reader.
        g.keep(norm[0]);
    }
    Ok(g.keep(y))
}

/// A norm with kept statistics on the batch itself: nothing in front of it is trained.
pub(super) fn frozen_norm(g: &mut Growth<'_>) -> Result<Option<()>> {
    let (rows, width) = (g.extent(), g.extent());
    let x = g.b.input("features", &[rows, width])?;
    let mut operands = vec![x];
    for (name, value) in [("weight", 1.5), ("bias", 0.1), ("mean", 0.2), ("var", 1.2)] {
        operands.push(g.b.buffer(name, Type::f32(&[width])?, Init::Constant(value)));
    }
    Ok(g.try_add(BatchNormInference { eps: 1e-5 }, &operands).and_then(|y| g.keep(y)))
}

pub(super) fn max_pool(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(is_image) else { return Ok(None) };
    let (kernel, stride) = ([g.few(3), g.few(3)], [g.few(2), g.few(2)]);
    let padding = [g.choices.below(kernel[0] / 2 + 1), 0];
    Ok(g.try_add(MaxPool { kernel, stride, padding }, &[x]).and_then(|y| g.keep(y)))
}

pub(super) fn avg_pool(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(is_image) else { return Ok(None) };
    let (kernel, stride) = ([g.few(3), g.few(3)], [g.few(2), g.few(2)]);
    let padding = [g.choices.below(kernel[0] / 2 + 1), 0];
    Ok(g.try_add(AvgPool { kernel, stride, padding }, &[x]).and_then(|y| g.keep(y)))
}

pub(super) fn global_avg_pool(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(is_image) else { return Ok(None) };
    Ok(g.try_add(GlobalAvgPool {}, &[x]).and_then(|y| g.keep(y)))
}

/// An image from the batch, or a view of some other value as one.
pub(super) fn to_image(g: &mut Growth<'_>) -> Result<Option<()>> {
    if let Some(x) = g.pick(|ty| ty.rank() == 3).filter(|_| g.choices.below(2) == 0) {
        let shape = [&[1], &g.shape(x)[..]].concat();
        let image = g.b.add(Reshape { shape }, &[x])?;
        return Ok(g.keep(image));
    }
    let shape = [g.few(3), 2 + g.few(7), 2 + g.few(7), g.few(6)];
    let image = g.b.input("image", &shape)?;
    Ok(g.keep(image))
}
