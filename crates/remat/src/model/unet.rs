//! U-Net: Ronneberger et al., "U-Net: convolutional networks for biomedical image segmentation", 2015, with padded
//! convolutions and batch norm, as most PyTorch versions have it. One class per pixel.

use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{Conv, ConvTranspose, Loss, Net, Tensor};

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 2, "images per step"),
    OptionInfo::extent("image", 256, "height and width of an image, a multiple of 16"),
    OptionInfo::extent("width", 64, "channels at full resolution; each of four halvings doubles them"),
    OptionInfo::extent("classes", 2, "classes of a pixel"),
];

/// How often height and width are halved.
const DEPTH: usize = 4;

pub(super) fn build<'g>(settings: &Settings, g: &'g Net) -> Result<Loss<'g>> {
    let (batch, image) = (settings.count("batch"), settings.count("image"));
    let (width, classes) = (settings.count("width"), settings.count("classes"));
    if !image.is_multiple_of(1 << DEPTH) {
        return Err(settings.error("image", format!("must be a multiple of {}, got `{image}`", 1 << DEPTH)));
    }
    let input = g.input("input", [batch, image, image, 3]);
    let labels = g.labels("labels", [batch, image, image], classes);

    let mut x = input.scope("inc", |x| double_conv(x, width));
    let mut skips = Vec::new();
    for level in 1..=DEPTH {
        skips.push(x);
        x = x.scope(format!("down{level}.maxpool_conv"), |x| {
            x.scope("0", |x| x.max_pool(2)).scope("1", |x| double_conv(x, width << level))
        });
    }
    for (i, &skip) in skips.iter().rev().enumerate() {
        let channels = skip.width();
        x = x.scope(format!("up{}", i + 1), |x| {
            let up = x.conv_transpose2d("up", ConvTranspose::new(channels, 2).stride(2));
            skip.concat(up, 3).scope("conv", |x| double_conv(x, channels))
        });
    }
    let logits = x.conv2d("outc.conv", Conv::new(classes, 1));
    Ok(g.scope("loss", || logits.cross_entropy(labels)))
}

/// Twice: 3×3 convolution, batch norm, ReLU.
fn double_conv(x: Tensor<'_>, channels: usize) -> Tensor<'_> {
    x.scope("double_conv", |mut x| {
        for first in [0, 3] {
            x = x.conv2d(first.to_string(), Conv::same(channels, 3).no_bias());
            x = x.batch_norm((first + 1).to_string()).scope((first + 2).to_string(), Tensor::relu);
        }
        x
    })
}
