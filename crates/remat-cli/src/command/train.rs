//! `remat train`: trains a model on synthetic data, inside a budget when one is given.

use crate::flags::{CostKind, Model, PlannerFlags, StepFlags, model_parser};
use crate::format::{count, facts, seconds};
use crate::output::{Output, Paint, Report};
use crate::progress::Progress;
use crate::{Answer, files, memory};
use anyhow::{Context as _, Result};
use clap::Args;
use remat::exec::{Engine as _, as_floats_mut};
use remat::graph::Kind;
use remat::model::weights::{self, WeightFile};
use remat::pipeline::{Fit, Prepared, Program, compile};
use remat::profile::Sample;
use remat::train::{Session, StepResult, Synthetic};
use remat_plan::{Budget, Bytes};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Trains a model on synthetic data, one line per step.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation. Without it
    /// everything is kept.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Option<Budget>,
    /// Steps to train.
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u64,
    /// Begin with the weights of this safetensors file, named as in PyTorch.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Write the trained weights to this safetensors file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize)]
struct Training {
    fits: bool,
    model: &'static str,
    optimizer: &'static str,
    learning_rate: f64,
    seed: u64,
    threads: usize,
    n_parameters: usize,
    budget_bytes: Option<Bytes>,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    predicted_peak_bytes: Option<Bytes>,
    measured_peak_bytes: Option<Bytes>,
    peak_resident_bytes: Option<Bytes>,
    n_recomputes: usize,
    step_seconds: Option<Sample>,
    steps: Vec<StepRow>,
    saved: Option<PathBuf>,
    #[serde(skip)]
    refusal: Option<String>,
}

#[derive(Serialize)]
struct StepRow {
    step: u64,
    loss: f32,
    seconds: f64,
    peak_bytes: Bytes,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        if let Some(path) = &self.save {
            files::check_writable(path)?;
        }
        let model = self.step.build(&self.model, CostKind::Analytic)?;
        if let Some(path) = &self.weights {
            // A wrong file is refused before anything is planned or measured.
            WeightFile::open(&model.forward, path)?;
        }
        let prepared = model.prepare()?;
        let mut report = self.report(&model, &prepared);
        let program = match report.budget_bytes {
            None => prepared.keep_all.clone(),
            Some(budget) => match compile(&prepared, &self.planner.planner, &self.planner.request(budget))? {
                Fit::Fits(program) => *program,
                Fit::Refused(refusal) => {
                    report.refusal = Some(refusal.to_string());
                    out.report(&report)?;
                    return Ok(Answer::No);
                }
            },
        };
        report.fits = true;
        report.predicted_peak_bytes = Some(program.peak());
        report.n_recomputes = program.schedule.n_recomputes();
        // Only the program is needed from here on; what planning used need not stay beside it.
        drop(prepared);
        self.train(&model, program, &mut report, out)?;
        out.report(&report)?;
        Ok(Answer::Yes)
    }

    fn train(&self, model: &Model, program: Program, report: &mut Training, out: &mut Output) -> Result<()> {
        memory::check_available(program.peak())?;
        memory::reset_peak();
        let seed = self.planner.seed;
        let batches = Box::new(Synthetic { seed });
        let mut session = Session::new(program, &model.optimizer, batches, seed, model.n_threads)?;
        if let Some(path) = &self.weights {
            load_weights(&mut session, path)?;
        }
        let n_steps = usize::try_from(self.steps).context("--steps is too large")?;
        let progress = Progress::new("training", n_steps);
        while report.steps.len() < n_steps {
            let row = StepRow::of(session.step(None)?);
            if !out.is_json() {
                progress.suspend(|| out.text_now(&row.line()))?;
            }
            report.steps.push(row);
            progress.set(report.steps.len(), n_steps);
            // Without a reader and without a file to write, nobody would ever know what the rest gave.
            if out.is_closed() && self.save.is_none() {
                break;
            }
        }
        drop(progress);
        report.peak_resident_bytes = memory::peak_resident();
        report.measured_peak_bytes = report.steps.iter().map(|row| row.peak_bytes).max();
        // The first step touches memory that was never used before; it counts only when there is no other.
        let skip = usize::from(report.steps.len() > 1);
        let times: Vec<f64> = report.steps.iter().skip(skip).map(|row| row.seconds).collect();
        report.step_seconds = Some(Sample::of(times)).filter(|sample| sample.n_runs > 0);
        if let Some(path) = &self.save {
            let executor = session.executor();
            weights::save(executor.graph(), path, |source| executor.floats(source.value))?;
            report.saved = Some(path.clone());
        }
        Ok(())
    }

    fn report(&self, model: &Model, prepared: &Prepared) -> Training {
        let keep_all_peak_bytes = prepared.keep_all.peak();
        Training {
            fits: false,
            model: model.info.name,
            optimizer: model.optimizer.name(),
            learning_rate: model.optimizer.learning_rate,
            seed: self.planner.seed,
            threads: model.n_threads,
            n_parameters: model.forward.n_parameters(),
            budget_bytes: self.budget.map(|budget| budget.resolve(keep_all_peak_bytes)),
            floor_bytes: prepared.floor.bytes,
            floor_node: prepared.floor.node_name.clone(),
            keep_all_peak_bytes,
            predicted_peak_bytes: None,
            measured_peak_bytes: None,
            peak_resident_bytes: None,
            n_recomputes: 0,
            step_seconds: None,
            steps: Vec::new(),
            saved: None,
            refusal: None,
        }
    }
}

/// Reads parameters and buffers straight into the arena.
fn load_weights(session: &mut Session, path: &Path) -> Result<()> {
    let executor = session.executor_mut();
    let mut file = WeightFile::open(executor.graph(), path)?;
    let sources = executor.graph().sources.clone();
    for source in &sources {
        let value = executor.graph().values[source.value].clone();
        if matches!(value.kind, Kind::Parameter | Kind::Buffer) {
            file.read(source, &value.ty, as_floats_mut(executor.bytes_mut(source.value)))?;
        }
    }
    Ok(())
}

impl StepRow {
    fn of(result: StepResult) -> StepRow {
        let StepResult { step, loss, stats } = result;
        StepRow { step, loss, seconds: stats.time.as_secs_f64(), peak_bytes: stats.peak }
    }

    fn line(&self) -> String {
        let StepRow { step, loss, seconds: time, peak_bytes } = self;
        format!("step {step:>5}  loss {loss:<10.6}  time {:>8}  peak {peak_bytes}\n", seconds(*time))
    }
}

impl Report for Training {
    const SCHEMA: &'static str = "remat.train/1";

    /// The summary; the lines of the steps were printed while they ran.
    fn text(&self, paint: Paint) -> String {
        if let Some(refusal) = &self.refusal {
            return format!("{}: {refusal}\n", paint.bad("does not fit"));
        }
        let known = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |b| b.to_string());
        let rate = format!("{}, learning rate {}", self.optimizer, self.learning_rate);
        let time = self.step_seconds.map_or_else(
            || "no steps".to_owned(),
            |time| format!("{} ± {}", seconds(time.median), seconds(time.spread)),
        );
        let mut rows = vec![
            ("model", format!("{}, {} parameters, {rate}", self.model, count(self.n_parameters))),
            (
                "budget",
                self.budget_bytes.map_or_else(|| "none: everything is kept".to_owned(), |b| b.to_string()),
            ),
            ("predicted peak", known(self.predicted_peak_bytes)),
            ("measured peak", known(self.measured_peak_bytes)),
            ("peak of the process", known(self.peak_resident_bytes)),
            ("peak without recomputation", self.keep_all_peak_bytes.to_string()),
            ("recomputed nodes", count(self.n_recomputes)),
            ("time of a step", time),
        ];
        if let Some(path) = &self.saved {
            rows.push(("weights", path.display().to_string()));
        }
        facts(rows)
    }
}
