//! The loss log: one CSV row per step.
//!
//! A run that goes on keeps the rows up to its checkpoint and drops the rest, so no step stands there twice. Each row is
//! handed to the operating system whole.

use crate::files;
use anyhow::{Context as _, Result};
use remat_plan::Bytes;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is known about a step.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) step: u64,
    pub(crate) loss: f32,
    pub(crate) learning_rate: f64,
    /// Norm of all gradients before clipping.
    pub(crate) grad_norm: Option<f32>,
    pub(crate) seconds: f64,
    /// Tokens, images or examples per second.
    pub(crate) per_second: f64,
    pub(crate) peak_bytes: Bytes,
    /// Loss on held-out data, after the steps that are evaluated.
    pub(crate) eval_loss: Option<f32>,
    pub(crate) eval_accuracy: Option<f32>,
}

impl Row {
    fn csv(&self) -> String {
        let known = |x: Option<f32>| x.map_or_else(String::new, |x| x.to_string());
        let Row { step, loss, learning_rate, seconds, per_second, peak_bytes, .. } = self;
        let (norm, eval_loss) = (known(self.grad_norm), known(self.eval_loss));
        let accuracy = known(self.eval_accuracy);
        format!(
            "{step},{loss},{learning_rate},{norm},{seconds:.6},{per_second:.1},{},{eval_loss},{accuracy}\n",
            peak_bytes.0
        )
    }
}

/// An open log.
#[derive(Debug)]
pub(crate) struct LossLog {
    path: PathBuf,
    file: File,
}

impl LossLog {
    /// Opens a log whose rows up to `step` stay; 0 begins anew. `unit` is what is counted per second.
    pub(crate) fn open(path: &Path, step: u64, unit: &str) -> Result<LossLog> {
        let header = format!(
            "step,loss,learning_rate,grad_norm,seconds,{unit}_per_second,peak_bytes,eval_loss,eval_accuracy\n"
        );
        let mut kept = header.clone();
        if step > 0 && path.exists() {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            anyhow::ensure!(
                text.starts_with(&header),
                "{} is not the log of such a run: its first line is not `{}`",
                path.display(),
                header.trim_end()
            );
            let is_kept = |line: &&str| {
                let number = line.split(',').next().and_then(|number| number.parse::<u64>().ok());
                line.ends_with('\n') && number.is_some_and(|number| number <= step)
            };
            kept.extend(text.split_inclusive('\n').skip(1).filter(is_kept));
        }
        files::write(path, &kept)?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.with_context(|| format!("writing {}", path.display()))?;
        Ok(LossLog { path: path.to_owned(), file })
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: &Row) -> Result<()> {
        let written = self.file.write_all(row.csv().as_bytes());
        written.with_context(|| format!("writing {}", self.path.display()))
    }

    /// Makes what was added durable: before a checkpoint that builds on it.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync_data().with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64) -> Row {
        Row {
            step,
            loss: 0.1,
            learning_rate: 1e-3,
            grad_norm: None,
            seconds: 0.5,
            per_second: 64.0,
            peak_bytes: Bytes(4096),
            eval_loss: Some(0.25),
            eval_accuracy: None,
        }
    }

    #[test]
    fn rows_after_the_checkpoint_and_torn_rows_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loss.csv");
        let mut log = LossLog::open(&path, 0, "tokens").unwrap();
        (1..=4).for_each(|step| log.add(&row(step)).unwrap());
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "5,0.1").unwrap();
        let mut log = LossLog::open(&path, 2, "tokens").unwrap();
        log.add(&row(3)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[3], "3,0.1,0.001,,0.500000,64.0,4096,0.25,");
        // A fresh run begins anew; something else is not overwritten by a run that goes on.
        LossLog::open(&path, 0, "tokens").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        std::fs::write(&path, "my notes\n").unwrap();
        assert!(LossLog::open(&path, 2, "tokens").unwrap_err().to_string().contains("is not the log"));
    }
}
