//! `remat max-batch`: the largest batch that fits into a budget, found without running what does not, confirmed by
//! running what does.

use crate::answer::Answer;
use crate::flags::{CostKind, PlannerFlags, StepFlags, model_parser};
use crate::format::{Align, change, facts, seconds, table};
use crate::memory;
use crate::moves::MovesReport;
use crate::output::{Output, Paint, Report};
use crate::planning::compile;
use crate::progress::Progress;
use crate::target::overhead_percent;
use anyhow::{Result, bail};
use clap::Args;
use remat::pipeline::{Fit, Prepared, Program};
use remat::profile::Sample;
use remat::train::{Rounds, contest};
use remat_plan::{Budget, Bytes};
use serde::Serialize;

/// Finds the largest batch that fits into a budget.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Budget,
    /// Do not run the answer; its peak is then predicted only.
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize)]
struct MaxBatch {
    model: &'static str,
    planner: String,
    budget_bytes: Bytes,
    /// The largest batch whose step fits without recomputation; 0 when not even one does.
    keep_all_batch: u64,
    /// The largest batch that fits with a plan; 0 when not even one does.
    batch: u64,
    predicted_peak_bytes: Option<Bytes>,
    measured_peak_bytes: Option<Bytes>,
    step_seconds: Option<Sample>,
    planned_overhead_percent: Option<f64>,
    /// What a step of the answer copies to and from stores; missing where it copies nothing.
    moves: Option<MovesReport>,
    /// Measured.
    waiting_seconds: Option<Sample>,
    /// Every batch that was looked at, with whether a plan fits.
    tried: Vec<Tried>,
    /// What keeps the next batch from fitting.
    limit: Option<String>,
}

#[derive(Serialize)]
struct Tried {
    batch: u64,
    fits: bool,
    floor_bytes: Bytes,
}

/// Batches beyond this are not looked for.
const LARGEST: u64 = 1 << 20;

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let Budget::Bytes(budget) = self.budget else {
            bail!(
                "give --budget in bytes, for example 8GiB: the peak that a percentage refers to changes with the batch"
            );
        };
        if self.step.has_option("batch") {
            bail!("max-batch searches for the batch; leave --batch out");
        }
        let smallest = self.smallest_batch()?;
        let progress = Progress::new("batches", 0);
        let mut tried = Vec::new();
        let mut limit = None;
        // Fitting batches are met in ascending order, so the last one is the answer.
        let mut fitting: Option<Fitting> = None;
        let mut probe = |batch: u64| -> Result<bool> {
            let (floor_bytes, attempt) = self.try_batch(batch, budget)?;
            let fits = attempt.is_ok();
            tried.push(Tried { batch, fits, floor_bytes });
            progress.set(tried.len(), tried.len() + 1);
            match attempt {
                Ok(program) => fitting = Some(program),
                Err(refusal) => limit = Some(refusal),
            }
            Ok(fits)
        };
        let batch = largest(smallest, &mut probe)?;
        let keep_all_batch =
            largest(smallest, &mut |batch| Ok(self.model(batch)?.prepare()?.keep_all.peak() <= budget))?;
        drop(progress);
        let mut report = MaxBatch {
            model: remat::model::find(&self.model)?.name,
            planner: self.planner.planner.clone(),
            budget_bytes: budget,
            keep_all_batch,
            batch,
            predicted_peak_bytes: None,
            measured_peak_bytes: None,
            step_seconds: None,
            planned_overhead_percent: None,
            moves: None,
            waiting_seconds: None,
            tried,
            limit,
        };
        if let Some(fitting) = fitting {
            self.confirm(&mut report, &self.polished(batch, budget, fitting)?)?;
        }
        out.report(&report)?;
        Ok(Answer::of(batch > 0))
    }

    fn model(&self, batch: u64) -> Result<crate::flags::Model> {
        self.step.with_batch(batch).build(&self.model, CostKind::Analytic)
    }

    /// Batch normalisation cannot work on one value per channel; such a model begins at two.
    fn smallest_batch(&self) -> Result<u64> {
        match self.model(1) {
            Ok(_) => Ok(1),
            Err(first) => match self.model(2) {
                Ok(_) => Ok(2),
                Err(_) => Err(first),
            },
        }
    }

    /// The floor of a batch, and its program or why there is none. Whether a batch fits is found by a quick plan as a rule;
    /// where that is too large and nothing proves that every plan is, the planner tries as hard as it was told to.
    fn try_batch(&self, batch: u64, budget: Bytes) -> Result<(Bytes, std::result::Result<Fitting, String>)> {
        let prepared = self.model(batch)?.prepare()?;
        let floor = prepared.floor.bytes;
        if prepared.keep_all.peak() <= budget {
            let program = Box::new(prepared.keep_all);
            return Ok((floor, Ok(Fitting { program, overhead_percent: 0.0, moves: None })));
        }
        let quick = self.planner.at_a_glance_unless_told();
        let mut attempt = compile(&prepared, &quick.planner, quick.request(budget))?;
        let is_open = matches!(&attempt, Fit::Refused(refusal) if refusal.proof().is_none());
        if is_open && quick != self.planner {
            attempt = compile(&prepared, &self.planner.planner, self.planner.request(budget))?;
        }
        let attempt = match attempt {
            Fit::Fits(program) => Ok(Fitting::new(&prepared, program)?),
            Fit::Refused(refusal) => Err(format!("batch {batch}: {refusal}")),
        };
        Ok((floor, attempt))
    }

    /// The answer with the plan that the planner finds when it tries as hard as it was told to.
    fn polished(&self, batch: u64, budget: Bytes, fitting: Fitting) -> Result<Fitting> {
        if fitting.overhead_percent <= 0.0 || self.planner.at_a_glance_unless_told() == self.planner {
            return Ok(fitting);
        }
        let prepared = self.model(batch)?.prepare()?;
        Ok(match compile(&prepared, &self.planner.planner, self.planner.request(budget))? {
            Fit::Fits(program) if program.plan().cost < fitting.program.plan().cost => {
                Fitting::new(&prepared, program)?
            }
            _ => fitting,
        })
    }

    /// Adds what is known of the answer and, unless it was asked not to, runs it.
    fn confirm(&self, report: &mut MaxBatch, fitting: &Fitting) -> Result<()> {
        let program = &*fitting.program;
        report.predicted_peak_bytes = Some(program.peak());
        report.planned_overhead_percent = Some(fitting.overhead_percent);
        report.moves.clone_from(&fitting.moves);
        if self.no_run {
            return Ok(());
        }
        memory::check_available(program.peak() + program.host_bytes())?;
        let model = self.model(report.batch)?;
        let rounds = Rounds { n_rounds: 1, n_warm_up: 1, n_steps: 2 };
        let progress = Progress::new("confirming", rounds.n_steps + 1);
        let mut done = 0;
        let seed = self.planner.seed();
        let performances = contest(&[program], seed, model.n_threads, rounds, || {
            done += 1;
            progress.set(done, rounds.n_steps + 1);
        })?;
        report.measured_peak_bytes = Some(performances[0].measured_peak);
        report.step_seconds = Some(performances[0].time);
        report.waiting_seconds = fitting.moves.as_ref().map(|_| performances[0].stalls);
        Ok(())
    }
}

/// A batch that fits.
struct Fitting {
    program: Box<Program>,
    overhead_percent: f64,
    moves: Option<MovesReport>,
}

impl Fitting {
    fn new(prepared: &Prepared, program: Box<Program>) -> Result<Fitting> {
        let problem = &prepared.problem.problem;
        let overhead_percent = overhead_percent(problem, program.plan());
        let moves = MovesReport::of(problem, program.plan())?;
        Ok(Fitting { program, overhead_percent, moves })
    }
}

/// The largest batch that fits, or 0: doubling from the smallest, then halving the interval. What fits at a batch is
/// taken to fit at every smaller one.
fn largest(smallest: u64, fits: &mut dyn FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut good, mut bad) = (0, smallest);
    while bad <= LARGEST && fits(bad)? {
        (good, bad) = (bad, 2 * bad);
    }
    while good > 0 && bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

impl Report for MaxBatch {
    const SCHEMA: &'static str = "remat.max_batch/1";

    fn text(&self, paint: Paint) -> String {
        let mut text = if self.batch == 0 {
            format!(
                "{}: no batch of {} fits into {}\n",
                paint.bad("does not fit"),
                self.model,
                self.budget_bytes
            )
        } else {
            format!(
                "{}: batch {} of {} fits into {}; without recomputation {}\n",
                paint.good("fits"),
                self.batch,
                self.model,
                self.budget_bytes,
                if self.keep_all_batch > 0 {
                    format!("batch {}", self.keep_all_batch)
                } else {
                    "none".into()
                },
            )
        };
        if let Some(predicted) = self.predicted_peak_bytes {
            let dash = |value: Option<String>| value.unwrap_or_else(|| "not run".to_owned());
            let columns = [
                ("predicted peak", Align::Right),
                ("measured peak", Align::Right),
                ("time of a step", Align::Right),
                ("planned overhead", Align::Right),
            ];
            let row = vec![
                predicted.to_string(),
                dash(self.measured_peak_bytes.map(|peak| peak.to_string())),
                dash(self.step_seconds.map(|t| seconds(t.median))),
                dash(self.planned_overhead_percent.map(change)),
            ];
            text += &table(&columns, [row]);
        }
        if let Some(moves) = &self.moves {
            text += &facts(moves.facts());
        }
        if let Some(waits) = self.waiting_seconds {
            text += &format!("a step of it waited {} for copies\n", seconds(waits.median));
        }
        if let Some(limit) = &self.limit {
            text += &format!("the next does not: {limit}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_from_any_start() {
        for limit in 0..70 {
            for smallest in [1, 2] {
                let mut n_calls = 0;
                let mut fits = |batch: u64| {
                    n_calls += 1;
                    Ok(batch <= limit)
                };
                let expected = if limit < smallest { 0 } else { limit };
                assert_eq!(largest(smallest, &mut fits).unwrap(), expected);
                assert!(n_calls <= 14, "{n_calls} calls for {limit}");
            }
        }
    }
}
