//! Which data a model is trained on: from a path, or synthetic without one.

use crate::flags::StepFlags;
use anyhow::{Result, bail};
use clap::Args;
use remat::graph::{Graph, Init};
use remat::op::Op;
use remat::train::{Batches, ImageShape, Images, Objective, Part, Synthetic, Text, Tokenizer};
use std::path::{Path, PathBuf};

/// Where data comes from.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataFlags {
    /// What to train on: a text file for language models; for classifiers a folder with IDX files as MNIST has them,
    /// or a folder with one subfolder of images per class. Without it data is random.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// How text becomes numbers: bytes, or bpe:8192 for byte pairs trained on the text until there are 8192 tokens.
    #[arg(long, value_name = "KIND", default_value_t = Tokenizer::Bytes)]
    tokenizer: Tokenizer,
    /// Where tokens are kept; by default beside the text.
    #[arg(long, value_name = "DIR", requires = "data")]
    cache: Option<PathBuf>,
}

/// What is read from a path, and how many of what a batch holds.
pub(crate) struct Data {
    kind: Kind,
    seed: u64,
}

enum Kind {
    Synthetic,
    Text(Text),
    Images(Images),
}

/// Another stream of synthetic data than that of training.
const HELD_OUT_SEED: u64 = 0x4845_4C44_4F55_5421;

impl DataFlags {
    /// Opens the data for a model. Options of the model that follow from the data are added to the flags.
    pub(crate) fn open(&self, forward: &Graph, step: &StepFlags, seed: u64) -> Result<(Data, StepFlags)> {
        let Some(path) = &self.data else {
            return Ok((Data { kind: Kind::Synthetic, seed }, step.clone()));
        };
        let (input, labels) = inputs(forward)?;
        if matches!(input.init, Init::Indices(_)) {
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let cache = self.cache.as_deref().or(folder).unwrap_or(Path::new("."));
            let text = Text::open(path, self.tokenizer, objective(forward), cache)?;
            let needed = text.vocabulary();
            check_limit("vocab", limit_of(labels.init), step.has_typed("vocab"), needed, forward)?;
            Ok((Data { kind: Kind::Text(text), seed }, step.with_default("vocab", needed)))
        } else {
            if self.tokenizer != Tokenizer::Bytes {
                bail!("--tokenizer is for text, but {} reads images", forward.name);
            }
            if forward.values[labels.value].ty.rank() != 1 {
                bail!("{} needs a label for every pixel; --data gives one for every image", forward.name);
            }
            let images = Images::open(path)?;
            let needed = images.n_classes();
            check_limit("classes", limit_of(labels.init), step.has_typed("classes"), needed, forward)?;
            Ok((Data { kind: Kind::Images(images), seed }, step.with_default("classes", needed)))
        }
    }
}

impl Data {
    /// Which data this is.
    pub(crate) fn identity(&self) -> String {
        match &self.kind {
            Kind::Synthetic => "synthetic".to_owned(),
            Kind::Text(text) => text.identity(),
            Kind::Images(images) => images.identity(),
        }
    }

    /// Batches for a model.
    pub(crate) fn batches(&self, forward: &Graph, part: Part) -> Result<Box<dyn Batches>> {
        let shape = forward.values[inputs(forward)?.0.value].ty.shape();
        Ok(match &self.kind {
            Kind::Synthetic => {
                let is_held_out = part == Part::HeldOut;
                Box::new(Synthetic { seed: self.seed ^ if is_held_out { HELD_OUT_SEED } else { 0 } })
            }
            Kind::Text(text) => Box::new(text.batches(part, shape[1], self.seed)?),
            Kind::Images(images) => match ImageShape::of_input(shape) {
                Some(shape) => Box::new(images.batches(part, shape, self.seed)?),
                None => bail!("{} does not read images: its input is {shape:?}", forward.name),
            },
        })
    }
}

/// How many of what a batch of a model holds: tokens, images or examples.
pub(crate) fn batch_size(forward: &Graph) -> Result<(u64, &'static str)> {
    let input = inputs(forward)?.0;
    let ty = &forward.values[input.value].ty;
    Ok(match (input.init, ty.rank()) {
        (Init::Indices(_), _) => (ty.numel() as u64, "tokens"),
        (_, 4) => (ty.shape()[0] as u64, "images"),
        _ => (ty.shape()[0] as u64, "examples"),
    })
}

/// Input and labels of a model.
fn inputs(forward: &Graph) -> Result<(&remat::graph::Source, &remat::graph::Source)> {
    let find = |name: &str| forward.sources.iter().find(|source| source.name == name);
    match (find("input"), find("labels")) {
        (Some(input), Some(labels)) => Ok((input, labels)),
        _ => bail!("{} has no `input` and `labels` to fill", forward.name),
    }
}

/// A model that sees only what came before learns what comes next; one that sees everything learns what is hidden.
fn objective(forward: &Graph) -> Objective {
    let sees_everything = |op: &Op| matches!(op, Op::Attention(attention) if !attention.causal);
    let is_masked = forward.nodes.iter().any(|node| sees_everything(&node.op));
    if is_masked { Objective::Masked } else { Objective::NextToken }
}

fn limit_of(init: Init) -> usize {
    match init {
        Init::Labels(limit) | Init::Indices(limit) => limit,
        _ => usize::MAX,
    }
}

/// Refuses an option that was typed and is too small for the data.
fn check_limit(option: &str, limit: usize, is_typed: bool, needed: usize, forward: &Graph) -> Result<()> {
    if is_typed && limit < needed {
        bail!("{}: --{option} {limit} is too small for the data, which needs {needed}", forward.name);
    }
    Ok(())
}
