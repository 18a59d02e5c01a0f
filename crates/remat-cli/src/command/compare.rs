//! `remat compare`: the same training with and without a budget, side by side: peak, time, overhead, equal bits.

use super::compare_moved::Moved;
use crate::answer::Answer;
use crate::flags::{CostKind, PlannerFlags, StepFlags, model_parser};
use crate::format::{Align, count, plural, table, timing};
use crate::output::{Output, Paint, Report};
use crate::planning::compile;
use crate::progress::Progress;
use crate::slowdown::{self, Slowdown};
use crate::{chart, memory};
use anyhow::Result;
use clap::Args;
use remat::pipeline::{Fit, Prepared, Program, Refusal};
use remat::profile::Sample;
use remat::report::Timeline;
use remat::train::{self, Side, Trial};
use remat_plan::{Budget, Bytes};
use serde::Serialize;
use std::num::NonZeroUsize;

/// Trains with and without a budget and compares peak, time and every bit.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Budget,
    /// Steps of each program; the first warms up and is not timed.
    #[arg(long, value_name = "N", default_value = "4")]
    steps: NonZeroUsize,
    /// Hash every value that is computed again and compare it with its first computation.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize)]
struct Compared {
    fits: bool,
    model: &'static str,
    optimizer: &'static str,
    planner: String,
    seed: u64,
    threads: usize,
    n_steps: usize,
    n_parameters: usize,
    budget_bytes: Bytes,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    /// Memory over the step, for people.
    #[serde(skip)]
    charts: String,
    /// Missing when nothing fits.
    result: Option<Measured>,
    #[serde(skip)]
    refusal: Option<Refusal>,
}

#[derive(Serialize)]
struct Measured {
    keep_all: SideRow,
    budgeted: SideRow,
    overhead_percent: f64,
    /// The overhead is not larger than the spread of single steps.
    overhead_is_within_spread: bool,
    peak_share_percent: f64,
    bits_equal: bool,
    /// The first thing that differs.
    difference: Option<String>,
    within_budget: bool,
    /// Recomputed values that were held against their first computation, with --verify.
    n_verified: Option<u64>,
    n_gradients: usize,
    /// Missing where nothing is copied to or from a store.
    moved: Option<Moved>,
    /// Peak of the process while both programs were in memory.
    peak_resident_bytes: Option<Bytes>,
    arenas_bytes: Bytes,
}

#[derive(Serialize)]
struct SideRow {
    predicted_peak_bytes: Bytes,
    measured_peak_bytes: Bytes,
    step_seconds: Sample,
    n_runs: usize,
    n_recomputes: usize,
    losses: Vec<f32>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let model = self.step.build(&self.model, CostKind::Analytic)?;
        let prepared = model.prepare()?;
        let keep_all_peak_bytes = prepared.keep_all.peak();
        let budget_bytes = self.budget.resolve(keep_all_peak_bytes);
        let n_steps = self.steps.get();
        let mut report = Compared {
            fits: false,
            model: model.info.name,
            optimizer: model.optimizer.name(),
            planner: self.planner.planner.clone(),
            seed: self.planner.seed(),
            threads: model.n_threads,
            n_steps,
            n_parameters: model.forward.n_parameters(),
            budget_bytes,
            floor_bytes: prepared.floor.bytes,
            floor_node: prepared.floor.node_name.clone(),
            keep_all_peak_bytes,
            charts: String::new(),
            result: None,
            refusal: None,
        };
        let program = match compile(&prepared, &self.planner.planner, self.planner.request(budget_bytes))? {
            Fit::Fits(program) => program,
            Fit::Refused(refusal) => {
                report.refusal = Some(refusal);
                out.report(&report)?;
                return Ok(Answer::No);
            }
        };
        let arenas_bytes = keep_all_peak_bytes + program.peak();
        // It runs before both, and its memory is given back.
        let oracle = prepared.oracle()?;
        memory::check_available((arenas_bytes + program.host_bytes()).max(oracle.peak()))?;
        memory::reset_peak();
        let progress = Progress::new("training both", n_steps);
        let show = |done| progress.set(done, n_steps);
        let seed = self.planner.seed();
        let trial = Trial { seed, n_threads: model.n_threads, n_steps, verify: self.verify };
        let compared = train::compare(&prepared, &program, oracle, trial, show)?;
        drop(progress);
        report.fits = true;
        report.charts = charts(&self.planner.planner, &prepared.keep_all, &program);
        let peak_resident_bytes = memory::peak_resident();
        let n_recomputes = program.schedule().n_recomputes();
        let moved = Moved::of(&prepared, &program, &compared.budgeted)?;
        let mut result =
            Measured::of(&prepared, compared, n_recomputes, budget_bytes, arenas_bytes, peak_resident_bytes);
        result.moved = moved;
        let holds = result.bits_equal && result.within_budget;
        report.result = Some(result);
        out.report(&report)?;
        Ok(Answer::of(holds))
    }
}

/// Memory over the step, before and after, at one scale.
fn charts(planner: &str, keep_all: &Program, budgeted: &Program) -> String {
    let draw = |name: &str, program: &Program| {
        chart::memory(name, &Timeline::of(program.schedule(), program.layout(), |_| 0.0), keep_all.peak())
    };
    draw("memory over the step, keep all", keep_all) + &draw(&format!("with {planner}"), budgeted)
}

impl Measured {
    fn of(
        prepared: &Prepared,
        compared: train::Comparison,
        n_recomputes: usize,
        budget: Bytes,
        arenas_bytes: Bytes,
        peak_resident_bytes: Option<Bytes>,
    ) -> Measured {
        let train::Comparison { keep_all, budgeted, difference, n_verified } = compared;
        let percent = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
        let slowdown = Slowdown::of(budgeted.time, keep_all.time);
        Measured {
            overhead_percent: slowdown.percent,
            overhead_is_within_spread: slowdown.is_within_spread,
            peak_share_percent: percent(budgeted.measured_peak.0 as f64, keep_all.measured_peak.0 as f64),
            bits_equal: difference.is_none(),
            difference,
            within_budget: budgeted.measured_peak <= budget,
            n_verified,
            n_gradients: prepared.step.roles.gradients.len(),
            moved: None,
            peak_resident_bytes,
            arenas_bytes,
            keep_all: SideRow::of(keep_all, 0),
            budgeted: SideRow::of(budgeted, n_recomputes),
        }
    }
}

impl SideRow {
    fn of(side: Side, n_recomputes: usize) -> SideRow {
        SideRow {
            predicted_peak_bytes: side.predicted_peak,
            measured_peak_bytes: side.measured_peak,
            step_seconds: side.time,
            n_runs: side.n_runs,
            n_recomputes,
            losses: side.losses,
        }
    }

    fn cells(&self, name: &str, overhead: String) -> Vec<String> {
        vec![
            name.to_owned(),
            self.predicted_peak_bytes.to_string(),
            self.measured_peak_bytes.to_string(),
            timing(self.step_seconds),
            overhead,
            count(self.n_runs),
            count(self.n_recomputes),
            self.losses.last().map_or_else(String::new, |loss| format!("{loss:.6}")),
        ]
    }
}

impl Report for Compared {
    const SCHEMA: &'static str = "remat.compare/1";

    fn text(&self, paint: Paint) -> String {
        let Compared { model, budget_bytes, floor_bytes, floor_node, planner, .. } = self;
        let Some(result) = &self.result else {
            let why = self.refusal.as_ref().map_or_else(String::new, ToString::to_string);
            return format!("{}: {why}\n", paint.bad("does not fit"));
        };
        let columns = [
            ("", Align::Left),
            ("predicted peak", Align::Right),
            ("measured peak", Align::Right),
            ("time of a step", Align::Right),
            ("overhead", Align::Right),
            ("nodes run", Align::Right),
            ("recomputed", Align::Right),
            ("last loss", Align::Right),
        ];
        let overhead = slowdown::text(result.overhead_percent, result.overhead_is_within_spread);
        let rows =
            [result.keep_all.cells("keep all", String::new()), result.budgeted.cells(planner, overhead)];
        let mut text = format!(
            "{}: {model} runs within {budget_bytes}, {:.1} % of its peak without recomputation; the floor is \
             {floor_bytes}, set by {floor_node}\n",
            paint.verdict(result.within_budget, if result.within_budget { "fits" } else { "over budget" }),
            result.peak_share_percent
        );
        text += &table(&columns, rows);
        if result.overhead_is_within_spread {
            text += slowdown::NOISE;
        }
        let what = format!("loss, {}, parameters and state", plural(result.n_gradients, "gradient"));
        text += &match &result.difference {
            None => format!("bits equal: {} ({what}, {})\n", paint.good("yes"), plural(self.n_steps, "step")),
            Some(first) => format!("bits equal: {}; first difference: {first}\n", paint.bad("no")),
        };
        if let Some(moved) = &result.moved {
            text += &moved.text();
        }
        if let Some(n_verified) = result.n_verified {
            text += &format!("verified: {}\n", plural(n_verified as usize, "recomputed value"));
        }
        if let Some(peak) = result.peak_resident_bytes {
            text += &format!("peak of the process: {peak}, of which both arenas {}\n", result.arenas_bytes);
        }
        text + &self.charts
    }
}
