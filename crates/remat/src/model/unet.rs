//! U-Net: Ronneberger et al., "U-Net: convolutional networks for biomedical image segmentation", 2015, with padded
//! convolutions and batch norm, as most PyTorch versions have it. One class per pixel.

use super::layers::{batch_norm, conv, default_init, pointwise_conv, relu, upsample};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph};
use crate::ids::ValueId;
use crate::op::concat::Concat;
use crate::op::cross_entropy::CrossEntropy;
use crate::op::max_pool::MaxPool;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 2, "images per step"),
    OptionInfo::extent("image", 256, "height and width of an image, a multiple of 16"),
    OptionInfo::extent("width", 64, "channels at full resolution; each of four halvings doubles them"),
    OptionInfo::extent("classes", 2, "classes of a pixel"),
];

/// How often height and width are halved.
const DEPTH: usize = 4;

pub(super) fn build(settings: &Settings) -> Result<Graph> {
    let (batch, image) = (settings.count("batch"), settings.count("image"));
    let (width, classes) = (settings.count("width"), settings.count("classes"));
    if !image.is_multiple_of(1 << DEPTH) {
        return Err(settings.error("image", format!("must be a multiple of {}, got `{image}`", 1 << DEPTH)));
    }
    let mut b = Builder::new(settings.model());
    let input = b.input("input", &[batch, image, image, 3])?;
    let labels = b.labels("labels", &[batch, image, image], classes)?;

    let mut x = b.scope("inc", |b| double_conv(b, input, width))?;
    let mut skips = Vec::new();
    for level in 1..=DEPTH {
        skips.push(x);
        x = b.scope(format!("down{level}.maxpool_conv"), |b| {
            let pool = MaxPool { kernel: [2; 2], stride: [2; 2], padding: [0; 2] };
            let y = b.scope("0", |b| b.add(pool, &[x]))?;
            b.scope("1", |b| double_conv(b, y, width << level))
        })?;
    }
    for (i, &skip) in skips.iter().rev().enumerate() {
        let channels = b.ty(skip).last();
        x = b.scope(format!("up{}", i + 1), |b| {
            let y = upsample(b, "up", x, channels)?;
            let both = b.add(Concat { axis: 3 }, &[skip, y])?;
            b.scope("conv", |b| double_conv(b, both, channels))
        })?;
    }
    let logits = pointwise_conv(&mut b, "outc.conv", x, classes)?;
    let loss = b.scope("loss", |b| b.add(CrossEntropy {}, &[logits, labels]))?;
    b.output(loss);
    Ok(b.finish())
}

/// Twice: 3×3 convolution, batch norm, ReLU.
fn double_conv(b: &mut Builder, x: ValueId, channels: usize) -> Result<ValueId> {
    b.scope("double_conv", |b| {
        let mut x = x;
        for first in [0, 3] {
            let init = default_init(b.ty(x).last() * 9);
            x = conv(b, &first.to_string(), x, channels, 3, 1, init)?;
            x = batch_norm(b, &(first + 1).to_string(), x)?;
            x = relu(b, &(first + 2).to_string(), x)?;
        }
        Ok(x)
    })
}
