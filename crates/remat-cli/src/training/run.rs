//! The loop of a training run: steps, evaluation, logs and checkpoints, and every way in which it can end.
//!
//! The order of events in a step is what makes a crash harmless: a row of the log is written before the checkpoint of the
//! same step, and flushed to the disk first; a resumed run cuts the log back to the step of its checkpoint. A failure in
//! the middle of a run, such as an image that cannot be read, saves what the steps before it have given.

use super::{Data, Divergence, EvaluationFlags, Events, RecordFlags, Signals, Training, line, row, scalars};
use crate::loss_log::{LossWriter, Row};
use crate::output::{Output, say};
use crate::progress::Progress;
use anyhow::{Context as _, Result, anyhow};
use remat::train::{Batches, Checkpoints, Difference, Evaluation, Session};
use std::path::PathBuf;

/// A compiled evaluation with its data.
pub(crate) struct HeldOut {
    pub(crate) evaluation: Evaluation,
    pub(crate) batches: Box<dyn Batches>,
}

/// A run that is ready for its next step.
pub(crate) struct Run<'a> {
    pub(crate) session: Session,
    pub(crate) n_steps: u64,
    pub(crate) data: &'a Data,
    /// Tokens, images or examples of a step.
    pub(crate) per_step: f64,
    pub(crate) unit: &'static str,
    pub(crate) held_out: Option<HeldOut>,
    pub(crate) evaluation: &'a EvaluationFlags,
    pub(crate) record: &'a RecordFlags,
    pub(crate) checkpoints: Option<Checkpoints>,
    /// The step of the newest checkpoint; 0 when there is none.
    pub(crate) saved_step: u64,
    pub(crate) log: Option<LossWriter>,
    pub(crate) events: Option<Events>,
}

/// What to tell the user when a value that was computed again is another.
fn unrepeatable(difference: &Difference, saved_step: u64) -> String {
    let advice = "an op that is not deterministic, or memory that fails: run the step again, with another number of \
                  --threads, or test the machine";
    let saved = match saved_step {
        0 => "nothing of this run is saved".to_owned(),
        step => format!("the last checkpoint is that of step {step}"),
    };
    format!("{difference}: {advice}; the state after this step cannot be trusted and is not saved; {saved}")
}

impl Run<'_> {
    /// Trains until the last step, a signal, a divergence or a failure.
    pub(crate) fn train(&mut self, report: &mut Training, out: &mut Output) -> Result<()> {
        let signals = Signals::take_over()?;
        let length = usize::try_from(self.n_steps).context("--steps is too large")?;
        let progress = Progress::with_end("training", length);
        progress.set(self.session.steps_done() as usize, length);
        let (mut is_warned, mut n_skipped) = (false, 0);
        while self.session.steps_done() < self.n_steps {
            let (row, difference) = self.step()?;
            let step = row.step;
            let is_due = |every: u64| step.is_multiple_of(every);
            if !out.is_json() && (is_due(self.record.print_every.get()) || step == self.n_steps) {
                progress.suspend(|| out.text_now(&line(&row)))?;
            }
            progress.say(format!("{:.0} {}/s, peak {}", row.per_second, self.unit, row.peak_bytes));
            progress.set(step as usize, length);
            for skipped in self.data.skipped().iter().skip(n_skipped) {
                progress.suspend(|| say(format_args!("warning: skipped {skipped}")));
                n_skipped += 1;
            }
            let mut diverged = Divergence::of(&row);
            report.steps.push(row);
            if let Some(difference) = difference {
                report.unrepeatable = Some(unrepeatable(&difference, self.saved_step));
                break;
            }
            report.stopped = signals.is_stop_asked() && step < self.n_steps;
            let is_last = step == self.n_steps || report.stopped;
            let is_checkpoint_due =
                self.checkpoints.is_some() && (is_due(self.record.checkpoint_every.get()) || is_last);
            if diverged.is_none() && (is_checkpoint_due || is_last) && !self.session.is_finite()? {
                diverged = Some(Divergence::State(step));
            }
            if let Some(diverged) = diverged {
                if !self.record.continues_after_nan() {
                    report.stopped = false;
                    report.diverged = Some(diverged.message(report));
                    break;
                }
                if !std::mem::replace(&mut is_warned, true) {
                    progress
                        .suspend(|| say(format_args!("warning: {diverged}; --on-nan continue trains on")));
                }
            }
            if is_checkpoint_due {
                report.checkpoint = self.save()?;
            }
            // Without a reader and without anything to leave behind, nobody would ever know what the rest gave.
            if report.stopped || out.is_closed() && !self.record.leaves_something() {
                break;
            }
        }
        drop(progress);
        report.skipped_images = self.data.skipped();
        if report.stopped {
            let next = match &self.checkpoints {
                Some(checkpoints) => format!("; continue with --resume {}", checkpoints.folder().display()),
                None => "; nothing was saved, since --checkpoint was not given".to_owned(),
            };
            say(format_args!("stopped after step {}{next}", self.session.steps_done()));
        }
        Ok(())
    }

    /// One step with its evaluation, in the logs.
    fn step(&mut self) -> Result<(Row, Option<Difference>)> {
        let result = match self.session.step(None) {
            Ok(result) => result,
            Err(error) => return Err(self.save_before_failing(error)),
        };
        let mut row = row(&result, self.per_step);
        let evaluated = self.evaluate(&mut row);
        if let Some(log) = &mut self.log {
            log.add(&row)?;
        }
        if let Some(events) = &mut self.events {
            events.add(row.step, &scalars(&row))?;
        }
        match evaluated {
            Ok(()) => Ok((row, result.difference)),
            // The state of a step that is wrong is not saved.
            Err(error) if result.difference.is_some() => Err(error.into()),
            Err(error) => Err(self.save_before_failing(error)),
        }
    }

    /// Adds what held-out data gives, where that is due.
    fn evaluate(&mut self, row: &mut Row) -> remat::Result<()> {
        if let (Some(held_out), Some(every)) = (&mut self.held_out, self.evaluation.eval_every)
            && (row.step.is_multiple_of(every.get()) || row.step == self.n_steps)
        {
            let n_batches = self.evaluation.eval_batches.get();
            let score = held_out.evaluation.run(&mut self.session, &mut *held_out.batches, n_batches)?;
            (row.eval_loss, row.eval_accuracy) = (Some(score.loss), score.accuracy);
        }
        Ok(())
    }

    /// Writes a checkpoint, if there is a folder for it, and returns where.
    fn save(&mut self) -> Result<Option<PathBuf>> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(None) };
        if let Some(log) = &mut self.log {
            log.sync()?;
        }
        let path = checkpoints.write(&self.session)?;
        self.saved_step = self.session.steps_done();
        Ok(Some(path))
    }

    /// Keeps what the steps before a failure have given, and says so beside the failure. A step that has failed in its
    /// middle leaves nothing that could be kept.
    fn save_before_failing(&mut self, error: remat::Error) -> anyhow::Error {
        let step = self.session.steps_done();
        if self.session.check_state().is_err() {
            let saved = match (&self.checkpoints, self.saved_step) {
                (None, _) => return error.into(),
                (Some(_), 0) => "no step of this run is saved".to_owned(),
                (Some(checkpoints), step) => {
                    let folder = checkpoints.folder().display();
                    format!("the last checkpoint is that of step {step}: continue with --resume {folder}")
                }
            };
            return anyhow!(
                "{error}; step {} has ended in its middle, so its state is not saved; {saved}",
                step + 1
            );
        }
        let folder = self.checkpoints.as_ref().map(|checkpoints| checkpoints.folder().display().to_string());
        let Some(folder) = folder.filter(|_| step > 0) else { return error.into() };
        match if self.saved_step == step { Ok(None) } else { self.save() } {
            Ok(_) => {
                let hint = if self.data.is_image_folder() {
                    ", with --skip-bad-images to leave such images out"
                } else {
                    ""
                };
                anyhow!(
                    "{error}; the state after step {step} is saved: continue with --resume {folder}{hint}"
                )
            }
            Err(second) => anyhow!("{error}; saving the state after step {step} failed as well: {second:#}"),
        }
    }
}
