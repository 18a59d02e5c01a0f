//! Which data a model is trained on: from a path, or synthetic without one.

use crate::flags::StepFlags;
use anyhow::{Result, bail};
use clap::Args;
use remat::graph::{Graph, Init};
use remat::op::Op;
use remat::op::attention::Attention;
use remat::train::{About, Batches, Dataset, Images, Objective, Part, Synthetic, Text, Tokenizer};
use remat_plan::Bytes;
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
    /// Replace images that cannot be read by others of the folder, and name them, instead of ending the run.
    #[arg(long, requires = "data")]
    skip_bad_images: bool,
}

/// What a model is trained on.
pub(crate) struct Data {
    dataset: Box<dyn Dataset>,
    /// The same, where it is a folder of images: some of them may turn out to be none.
    images: Option<Images>,
    seed: u64,
}

impl DataFlags {
    /// Opens the data for a model. Options of the model that follow from the data are added to the flags.
    pub(crate) fn open(&self, forward: &Graph, step: &StepFlags, seed: u64) -> Result<(Data, StepFlags)> {
        let Some(path) = &self.data else {
            return Ok((Data { dataset: Box::new(Synthetic { seed }), images: None, seed }, step.clone()));
        };
        let (input, labels) = inputs(forward)?;
        if matches!(input.init, Init::Indices(_)) {
            if self.skip_bad_images {
                bail!("--skip-bad-images is for images, but {} reads text", forward.name);
            }
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let cache = self.cache.as_deref().or(folder).unwrap_or(Path::new("."));
            let text = Text::open(path, self.tokenizer, objective(forward), cache)?;
            let needed = text.vocabulary();
            check_limit("vocab", limit_of(labels.init), step.has_typed("vocab"), needed, forward)?;
            Ok((Data { dataset: Box::new(text), images: None, seed }, step.with_default("vocab", needed)))
        } else {
            if self.tokenizer != Tokenizer::Bytes {
                bail!("--tokenizer is for text, but {} reads images", forward.name);
            }
            if forward.values[labels.value].ty.rank() != 1 {
                bail!("{} needs a label for every pixel; --data gives one for every image", forward.name);
            }
            let images = Images::open(path)?;
            let images = if self.skip_bad_images { images.skip_bad_images() } else { images };
            let needed = images.n_classes();
            check_limit("classes", limit_of(labels.init), step.has_typed("classes"), needed, forward)?;
            let data = Data { dataset: Box::new(images.clone()), images: Some(images), seed };
            Ok((data, step.with_default("classes", needed)))
        }
    }
}

impl Data {
    /// Which data this is.
    pub(crate) fn identity(&self) -> String {
        self.dataset.identity()
    }

    /// What using the trained model needs to know.
    pub(crate) fn about(&self) -> About {
        self.dataset.about()
    }

    /// Memory that it takes beside the step.
    pub(crate) fn memory(&self, forward: &Graph) -> Result<Bytes> {
        Ok(self.dataset.memory(forward)?)
    }

    /// Whether images are decoded while training, so that a bad one can turn up at any step.
    pub(crate) fn is_image_folder(&self) -> bool {
        self.images.is_some()
    }

    /// Images that were skipped so far, each with the reason.
    pub(crate) fn skipped(&self) -> Vec<String> {
        self.images.as_ref().map(Images::skipped).unwrap_or_default()
    }

    /// Batches for a model.
    pub(crate) fn batches(&self, forward: &Graph, part: Part) -> Result<Box<dyn Batches>> {
        Ok(self.dataset.batches(forward, part, self.seed)?)
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
    let sees_everything = |op: &Op| op.get::<Attention>().is_some_and(|attention| !attention.causal);
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
