//! What a training run says: a line and a row per step, and the report at its end.

use crate::format::{count, facts, number, plural, seconds, timing};
use crate::loss_log::Row;
use crate::moves::Copied;
use crate::output::{Paint, Report};
use remat::profile::Sample;
use remat::train::StepResult;
use remat_plan::Bytes;
use serde::Serialize;
use std::path::PathBuf;

/// What a run gave.
#[derive(Serialize)]
pub(crate) struct Training {
    pub(crate) fits: bool,
    pub(crate) model: &'static str,
    pub(crate) optimizer: &'static str,
    pub(crate) learning_rate: f64,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) data: String,
    pub(crate) n_parameters: usize,
    pub(crate) budget_bytes: Option<Bytes>,
    /// Memory for the data, which a budget in bytes has to leave: images in memory, or the largest one while it is decoded.
    pub(crate) data_bytes: Bytes,
    pub(crate) floor_bytes: Bytes,
    pub(crate) floor_node: String,
    pub(crate) keep_all_peak_bytes: Bytes,
    pub(crate) predicted_peak_bytes: Option<Bytes>,
    pub(crate) measured_peak_bytes: Option<Bytes>,
    pub(crate) peak_resident_bytes: Option<Bytes>,
    pub(crate) n_recomputes: usize,
    /// What a step copies to and from stores; missing where it copies nothing.
    pub(crate) copied: Option<Copied>,
    pub(crate) resumed_from_step: Option<u64>,
    pub(crate) stopped: bool,
    /// What ended the run when numbers were no longer finite.
    pub(crate) diverged: Option<String>,
    /// What ended the run when a value was not the same when it was computed again.
    pub(crate) unrepeatable: Option<String>,
    /// Recomputed values that were held against their first computation, with --verify.
    pub(crate) n_verified: Option<u64>,
    /// Images that cannot be read and were replaced by others, each with the reason.
    pub(crate) skipped_images: Vec<String>,
    pub(crate) step_seconds: Option<Sample>,
    pub(crate) unit: &'static str,
    pub(crate) steps: Vec<Row>,
    pub(crate) checkpoint: Option<PathBuf>,
    pub(crate) saved: Option<PathBuf>,
    #[serde(skip)]
    pub(crate) refusal: Option<String>,
}

/// The row of a step that handled this much data.
pub(crate) fn row(result: &StepResult, per_step: f64) -> Row {
    let seconds = result.stats.time.as_secs_f64();
    Row {
        step: result.step,
        loss: result.loss,
        learning_rate: result.learning_rate,
        grad_norm: result.gradient_norm,
        seconds,
        per_second: per_step / seconds.max(1e-9),
        peak_bytes: result.stats.peak,
        eval_loss: None,
        eval_accuracy: None,
    }
}

/// The line of a step for people.
pub(crate) fn line(row: &Row) -> String {
    let Row { step, loss, seconds: time, peak_bytes, .. } = row;
    let mut line =
        format!("step {step:>5}  loss {loss:<10.6}  time {:>8}  peak {peak_bytes}", seconds(*time));
    if let Some(norm) = row.grad_norm {
        line.push_str(&format!("  norm {norm:.4}"));
    }
    if let Some(loss) = row.eval_loss {
        line.push_str(&format!("  held-out loss {loss:.6}"));
    }
    if let Some(accuracy) = row.eval_accuracy {
        line.push_str(&format!("  accuracy {:.1} %", 100.0 * accuracy));
    }
    line + "\n"
}

/// Names and values as TensorBoard shows them.
pub(crate) fn scalars(row: &Row) -> [(&'static str, Option<f32>); 6] {
    [
        ("loss/training", Some(row.loss)),
        ("loss/held_out", row.eval_loss),
        ("accuracy/held_out", row.eval_accuracy),
        ("learning_rate", Some(row.learning_rate as f32)),
        ("gradient_norm", row.grad_norm),
        ("per_second", Some(row.per_second as f32)),
    ]
}

impl Report for Training {
    const SCHEMA: &'static str = "remat.train/1";

    /// The summary; the lines of the steps were printed while they ran.
    fn text(&self, paint: Paint) -> String {
        if let Some(refusal) = &self.refusal {
            return format!("{}: {refusal}\n", paint.bad("does not fit"));
        }
        let known = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |b| b.to_string());
        let rate = format!("{}, learning rate {}", self.optimizer, number(self.learning_rate));
        let time = self.step_seconds.map_or_else(|| "no steps".to_owned(), timing);
        let mut rows = vec![
            ("model", format!("{}, {} parameters, {rate}", self.model, count(self.n_parameters))),
            ("data", self.data.clone()),
            (
                "budget",
                self.budget_bytes.map_or_else(|| "none: nothing is recomputed".to_owned(), |b| b.to_string()),
            ),
            ("memory for the data", self.data_bytes.to_string()),
            ("predicted peak", known(self.predicted_peak_bytes)),
            ("measured peak", known(self.measured_peak_bytes)),
            ("peak of the process", known(self.peak_resident_bytes)),
            ("peak without recomputation", self.keep_all_peak_bytes.to_string()),
            ("recomputed nodes", count(self.n_recomputes)),
        ];
        if let Some(copied) = &self.copied {
            rows.push(("moved in a step", copied.text()));
            rows.push(("in a store between steps", copied.resting_bytes.to_string()));
        }
        rows.push(("time of a step", time));
        if let Some(step) = self.resumed_from_step {
            rows.push(("resumed after step", step.to_string()));
        }
        if self.data_bytes == Bytes::ZERO {
            rows.retain(|(name, _)| *name != "memory for the data");
        }
        let paths = [("checkpoint", &self.checkpoint), ("weights", &self.saved)];
        rows.extend(
            paths.iter().filter_map(|(name, path)| Some((*name, path.as_ref()?.display().to_string()))),
        );
        if !self.skipped_images.is_empty() {
            rows.push(("skipped images", count(self.skipped_images.len())));
        }
        if let Some(n_verified) = self.n_verified {
            rows.push(("verified", plural(n_verified as usize, "recomputed value")));
        }
        let ends = [("diverged", &self.diverged), ("not repeatable", &self.unrepeatable)];
        let ends = ends.iter().filter_map(|(what, why)| Some((what, why.as_ref()?)));
        facts(rows) + &ends.map(|(what, why)| format!("{}: {why}\n", paint.bad(what))).collect::<String>()
    }
}
