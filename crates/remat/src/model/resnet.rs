//! Residual networks as in torchvision: He et al., "Deep residual learning for image recognition", 2015, with the
//! stride on the 3×3 convolution of a bottleneck ("V1.5").

use super::layers::{batch_norm, conv, default_linear, relu};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph, Init};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::cross_entropy::CrossEntropy;
use crate::op::global_avg_pool::GlobalAvgPool;
use crate::op::max_pool::MaxPool;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 8, "images per step"),
    OptionInfo::extent("image", 224, "height and width of an image"),
    OptionInfo::extent("classes", 1000, "classes to tell apart"),
];

/// What distinguishes the depths.
pub(super) struct Depth {
    block: Block,
    /// Blocks in each of the four stages.
    stages: [usize; 4],
}

#[derive(Clone, Copy)]
enum Block {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3, 1×1 with four times the channels at the end.
    Bottleneck,
}

pub(super) const RESNET18: Depth = Depth { block: Block::Basic, stages: [2, 2, 2, 2] };
pub(super) const RESNET34: Depth = Depth { block: Block::Basic, stages: [3, 4, 6, 3] };
pub(super) const RESNET50: Depth = Depth { block: Block::Bottleneck, stages: [3, 4, 6, 3] };
pub(super) const RESNET101: Depth = Depth { block: Block::Bottleneck, stages: [3, 4, 23, 3] };
pub(super) const RESNET152: Depth = Depth { block: Block::Bottleneck, stages: [3, 8, 36, 3] };

pub(super) fn build(settings: &Settings, depth: &Depth) -> Result<Graph> {
    let (batch, image, classes) =
        (settings.count("batch"), settings.count("image"), settings.count("classes"));
    let mut builder = Builder::new(settings.model());
    let b = &mut builder;
    let input = b.input("input", &[batch, image, image, 3])?;
    let labels = b.labels("labels", &[batch], classes)?;

    let mut x = he_conv(b, "conv1", input, 64, 7, 2)?;
    x = batch_norm(b, "bn1", x)?;
    x = relu(b, "relu", x)?;
    x = b.scope("maxpool", |b| b.add(MaxPool { kernel: [3; 2], stride: [2; 2], padding: [1; 2] }, &[x]))?;
    for (stage, &n_blocks) in depth.stages.iter().enumerate() {
        for i in 0..n_blocks {
            let stride = if stage > 0 && i == 0 { 2 } else { 1 };
            x = b.scope(format!("layer{}.{i}", stage + 1), |b| {
                block(b, depth.block, x, 64 << stage, stride)
            })?;
        }
    }
    x = b.scope("avgpool", |b| b.add(GlobalAvgPool {}, &[x]))?;
    let logits = default_linear(b, "fc", x, classes)?;
    let loss = b.scope("loss", |b| b.add(CrossEntropy {}, &[logits, labels]))?;
    b.output(loss);
    Ok(builder.finish())
}

/// `relu(branch(x) + shortcut(x))`; the shortcut is a 1×1 convolution where shapes change.
fn block(b: &mut Builder, kind: Block, x: ValueId, width: usize, stride: usize) -> Result<ValueId> {
    let (branch, outputs) = match kind {
        Block::Basic => {
            let y = conv_norm_relu(b, 1, x, width, 3, stride)?;
            let y = he_conv(b, "conv2", y, width, 3, 1)?;
            (batch_norm(b, "bn2", y)?, width)
        }
        Block::Bottleneck => {
            let y = conv_norm_relu(b, 1, x, width, 1, 1)?;
            let y = conv_norm_relu(b, 2, y, width, 3, stride)?;
            let y = he_conv(b, "conv3", y, 4 * width, 1, 1)?;
            (batch_norm(b, "bn3", y)?, 4 * width)
        }
    };
    let shortcut = if stride == 1 && b.ty(x).last() == outputs {
        x
    } else {
        let y = he_conv(b, "downsample.0", x, outputs, 1, stride)?;
        batch_norm(b, "downsample.1", y)?
    };
    let sum = b.add(Add {}, &[branch, shortcut])?;
    relu(b, "relu", sum)
}

fn conv_norm_relu(
    b: &mut Builder,
    n: usize,
    x: ValueId,
    width: usize,
    kernel: usize,
    stride: usize,
) -> Result<ValueId> {
    let y = he_conv(b, &format!("conv{n}"), x, width, kernel, stride)?;
    let y = batch_norm(b, &format!("bn{n}"), y)?;
    relu(b, "relu", y)
}

/// A convolution with torchvision's initialisation: normal, deviation `sqrt(2 / fan_out)`.
fn he_conv(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    outputs: usize,
    kernel: usize,
    stride: usize,
) -> Result<ValueId> {
    let deviation = (2.0 / (outputs * kernel * kernel) as f64).sqrt() as f32;
    conv(b, name, x, outputs, kernel, stride, Init::Normal(deviation))
}
