//! Residual networks as in torchvision: He et al., "Deep residual learning for image recognition", 2015, with the
//! stride on the 3×3 convolution of a bottleneck ("V1.5").

use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::init::he_normal;
use crate::nn::{Conv, Loss, Net, Pool, Residual, Tensor};

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 8, "images per step"),
    OptionInfo::extent("image", 224, "height and width of an image"),
    OptionInfo::extent("classes", 1000, "classes to tell apart"),
];

/// What distinguishes the depths.
pub(super) struct Depth {
    /// The block of this many channels.
    block: fn(usize) -> Residual,
    /// Blocks in each of the four stages.
    stages: [usize; 4],
}

pub(super) const RESNET18: Depth = Depth { block: Residual::basic, stages: [2, 2, 2, 2] };
pub(super) const RESNET34: Depth = Depth { block: Residual::basic, stages: [3, 4, 6, 3] };
pub(super) const RESNET50: Depth = Depth { block: Residual::bottleneck, stages: [3, 4, 6, 3] };
pub(super) const RESNET101: Depth = Depth { block: Residual::bottleneck, stages: [3, 4, 23, 3] };
pub(super) const RESNET152: Depth = Depth { block: Residual::bottleneck, stages: [3, 8, 36, 3] };

pub(super) fn build<'g>(settings: &Settings, depth: &Depth, g: &'g Net) -> Result<Loss<'g>> {
    let (batch, image, classes) =
        (settings.count("batch"), settings.count("image"), settings.count("classes"));
    let input = g.input("input", [batch, image, image, 3]);
    let labels = g.labels("labels", [batch], classes);

    let stem = Conv::same(64, 7).stride(2).no_bias().init(he_normal(&[64, 7, 7]));
    let mut x = input.conv2d("conv1", stem).batch_norm("bn1").scope("relu", Tensor::relu);
    x = x.scope("maxpool", |x| x.max_pool(Pool::new(3).stride(2).padding(1)));
    for (stage, &n_blocks) in depth.stages.iter().enumerate() {
        for i in 0..n_blocks {
            let stride = if stage > 0 && i == 0 { 2 } else { 1 };
            x = x.residual(format!("layer{}.{i}", stage + 1), (depth.block)(64 << stage).stride(stride));
        }
    }
    let logits = x.scope("avgpool", Tensor::global_avg_pool).linear("fc", classes);
    Ok(g.scope("loss", || logits.cross_entropy(labels)))
}
