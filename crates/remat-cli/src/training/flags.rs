//! The flags of `remat train` beyond the model and its budget.

use clap::{Args, ValueEnum};
use remat::train::{Decay, LearningRate};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// How gradients and the learning rate go over the run.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Optimization")]
pub(crate) struct OptimizationFlags {
    /// Make one update from the gradients of this many batches; needs one more buffer per parameter.
    #[arg(long, value_name = "N", default_value = "1")]
    accumulate: NonZeroU64,
    /// Scale gradients down whose common norm is larger than this.
    #[arg(long, value_name = "NORM", allow_negative_numbers = true, value_parser = parse_norm)]
    clip_norm: Option<f64>,
    /// What the learning rate does after the warm-up, until the last step.
    #[arg(long, value_name = "SHAPE", default_value = "constant")]
    schedule: Shape,
    /// Steps over which the learning rate rises from zero.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warmup: u64,
    /// Learning rate of the last step, as a share of --lr.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, allow_negative_numbers = true, value_parser = parse_share)]
    final_lr: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Shape {
    Constant,
    Cosine,
    Linear,
}

impl OptimizationFlags {
    /// Sets what the flags say about an optimizer.
    pub(crate) fn apply(&self, optimizer: &mut remat::train::Optimizer) {
        optimizer.clip_norm = self.clip_norm;
        optimizer.micro_batches = self.accumulate.get();
    }

    /// The learning rate of every step of a run of `n_steps`.
    pub(crate) fn learning_rate(&self, peak: f64, n_steps: u64) -> LearningRate {
        let warmup = self.warmup;
        match self.schedule {
            Shape::Constant => LearningRate { warmup, ..LearningRate::constant(peak) },
            Shape::Cosine => {
                LearningRate { peak, warmup, decay: Decay::Cosine, floor: self.final_lr, end: n_steps }
            }
            Shape::Linear => {
                LearningRate { peak, warmup, decay: Decay::Linear, floor: self.final_lr, end: n_steps }
            }
        }
    }
}

/// Evaluation on held-out data.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Evaluation")]
pub(crate) struct EvaluationFlags {
    /// Evaluate on held-out data after every N steps, in the memory of training.
    #[arg(long, value_name = "N")]
    pub(crate) eval_every: Option<NonZeroU64>,
    /// Batches of an evaluation.
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) eval_batches: NonZeroU64,
    /// Size of a batch of evaluation; by default that of training.
    #[arg(long, value_name = "N")]
    pub(crate) eval_batch: Option<NonZeroU64>,
}

/// What a run leaves behind.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Checkpoints and logs")]
pub(crate) struct RecordFlags {
    /// Write checkpoints into this folder, from which --resume goes on. One run at a time.
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Steps between two checkpoints; the last step always has one.
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) checkpoint_every: NonZeroU64,
    /// Checkpoints that stay; older ones are removed.
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) keep: NonZeroU64,
    /// Go on from the newest checkpoint of this folder, with the same bits as without the pause; unless told otherwise,
    /// further checkpoints go there too.
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Write one CSV row per step to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write TensorBoard events into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorboard: Option<PathBuf>,
    /// Print the line of every N-th step only.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) print_every: NonZeroU64,
    /// Begin with the weights of this safetensors file, named as in PyTorch.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) weights: Option<PathBuf>,
    /// Write the trained weights to this safetensors file.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

impl RecordFlags {
    /// Where checkpoints go, if anywhere.
    pub(crate) fn checkpoint_folder(&self) -> Option<&Path> {
        self.checkpoint.as_deref().or(self.resume.as_deref())
    }

    /// Whether the run leaves anything behind besides what it prints.
    pub(crate) fn leaves_something(&self) -> bool {
        let RecordFlags { checkpoint, resume, log, tensorboard, save, .. } = self;
        [checkpoint, resume, log, tensorboard, save].iter().any(|path| path.is_some())
    }
}

fn parse_norm(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(norm) if norm > 0.0 && norm.is_finite() => Ok(norm),
        _ => Err("the largest norm must be a number above zero".to_owned()),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("the share must be a number from 0 to 1".to_owned()),
    }
}
