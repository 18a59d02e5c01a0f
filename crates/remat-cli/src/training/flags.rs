//! The flags of `remat train` beyond the model and its budget.

use clap::{Args, ValueEnum};
use remat::train::{Decay, LearningRate, Schedule};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// What happens to gradients, and the learning rate over the run.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Optimization")]
pub(crate) struct OptimizationFlags {
    /// Make one update from the gradients of this many batches; needs one more buffer per parameter.
    #[arg(long, value_name = "N", default_value = "1")]
    accumulate: NonZeroU64,
    /// Scale gradients down when their global norm is larger than this.
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
    /// With --resume: use the learning rates of this command from here on, not those that the run began with. Needed to
    /// resume with more --steps when the schedule is not constant.
    #[arg(long, requires = "resume")]
    new_schedule: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Shape {
    Constant,
    Cosine,
    Linear,
}

impl OptimizationFlags {
    /// Sets what the flags say about an optimizer.
    pub(crate) fn apply(&self, optimizer: &mut remat::optimizer::Optimizer) {
        optimizer.clip_norm = self.clip_norm;
        optimizer.micro_batches = self.accumulate.get();
    }

    /// Whether a resumed run may have other learning rates than before.
    pub(crate) fn schedule(&self) -> Schedule {
        if self.new_schedule { Schedule::New } else { Schedule::Same }
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
    /// Number of batches per evaluation.
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) eval_batches: NonZeroU64,
    /// Batch size of an evaluation; by default the same as in training.
    #[arg(long, value_name = "N")]
    pub(crate) eval_batch: Option<NonZeroU64>,
}

/// What a run leaves behind.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Checkpoints and logs")]
pub(crate) struct RecordFlags {
    /// Write checkpoints into this folder, which must not hold any yet; --resume continues from them.
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Steps between two checkpoints; the last step always has one.
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) checkpoint_every: NonZeroU64,
    /// How many checkpoints to keep; older ones are removed.
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) keep: NonZeroU64,
    /// Continue from the newest checkpoint of this folder, with the same bits as without the pause. Further checkpoints go
    /// there too, unless --checkpoint names another folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Write one CSV row per step to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write TensorBoard events into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorboard: Option<PathBuf>,
    /// What to do when the loss, the gradients or the state are no longer finite. The last finite checkpoint is never
    /// removed.
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    on_nan: OnNan,
    /// Print only every N-th step.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) print_every: NonZeroU64,
    /// Start from the weights in this safetensors file, named as in PyTorch.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) weights: Option<PathBuf>,
    /// Write the trained weights to this safetensors file.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnNan {
    /// End the run with exit code 1.
    Stop,
    /// Warn and train on.
    Continue,
}

impl RecordFlags {
    /// Whether training continues when numbers are no longer finite.
    pub(crate) fn continues_after_nan(&self) -> bool {
        self.on_nan == OnNan::Continue
    }

    /// Whether checkpoints go to the folder that the run is resumed from.
    pub(crate) fn resumes_in_place(&self) -> bool {
        let is_same = |a: &Path, b: &Path| {
            a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a))
        };
        match (&self.resume, &self.checkpoint) {
            (Some(resume), Some(checkpoint)) => is_same(resume, checkpoint),
            (resume, _) => resume.is_some(),
        }
    }

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
