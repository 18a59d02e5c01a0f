//! Fully connected layers with ReLU between them.

use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{Loss, Net};

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 64, "examples per step"),
    OptionInfo::extent("features", 784, "inputs per example"),
    OptionInfo::extent("width", 1024, "units of a hidden layer"),
    OptionInfo::layers("layers", 4, "hidden layers"),
    OptionInfo::extent("classes", 10, "classes to tell apart"),
];

pub(super) fn build<'g>(settings: &Settings, g: &'g Net) -> Result<Loss<'g>> {
    let (batch, classes) = (settings.count("batch"), settings.count("classes"));
    let input = g.input("input", [batch, settings.count("features")]);
    let labels = g.labels("labels", [batch], classes);
    let mut widths = vec![settings.count("width"); settings.count("layers")];
    widths.push(classes);
    let logits = input.mlp("layers", &widths);
    Ok(g.scope("loss", || logits.cross_entropy(labels)))
}
