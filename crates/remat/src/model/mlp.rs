//! Fully connected layers with ReLU between them.

use super::layers::{default_linear, relu};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph};
use crate::op::cross_entropy::CrossEntropy;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 64, "examples per step"),
    OptionInfo::extent("features", 784, "inputs per example"),
    OptionInfo::extent("width", 1024, "units of a hidden layer"),
    OptionInfo::layers("layers", 4, "hidden layers"),
    OptionInfo::extent("classes", 10, "classes to tell apart"),
];

pub(super) fn build(settings: &Settings) -> Result<Graph> {
    let (batch, classes, layers) =
        (settings.count("batch"), settings.count("classes"), settings.count("layers"));
    let mut b = Builder::new(settings.model());
    let input = b.input("input", &[batch, settings.count("features")])?;
    let labels = b.labels("labels", &[batch], classes)?;
    let mut x = input;
    for i in 0..layers {
        x = default_linear(&mut b, &format!("layers.{i}"), x, settings.count("width"))?;
        x = relu(&mut b, &format!("layers.{i}"), x)?;
    }
    let logits = default_linear(&mut b, &format!("layers.{layers}"), x, classes)?;
    let loss = b.scope("loss", |b| b.add(CrossEntropy {}, &[logits, labels]))?;
    b.output(loss);
    Ok(b.finish())
}
