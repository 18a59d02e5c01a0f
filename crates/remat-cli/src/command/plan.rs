//! `remat plan`: which values to keep and which to recompute, so that a step fits a budget.

use crate::flags::{PlannerFlags, StepFlags};
use crate::format::{change, cost, count, facts, seconds};
use crate::output::{Output, Paint, Report};
use crate::target::{Planned, Target, TargetFlags, n_recomputes, overhead_percent};
use crate::{Answer, files};
use anyhow::Result;
use clap::Args;
use remat::pipeline::Refusal;
use remat_plan::{Budget, Bytes, PLAN_SCHEMA, Plan, Status};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Plans a model or a problem file for a budget and says whether it fits.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    target: TargetFlags,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Budget,
    /// Write the plan as `remat.plan/1` JSON; an infeasible answer is written too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the planning problem as `remat.problem/1` JSON.
    #[arg(long, value_name = "FILE")]
    problem_out: Option<PathBuf>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

/// The plan file's fields, so that the document is itself a plan, and what was learned beside them.
#[derive(Serialize)]
struct PlanReport {
    #[serde(flatten)]
    plan: Plan,
    fits: bool,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    keep_all_cost: f64,
    arena_bytes: Option<Bytes>,
    n_nodes: usize,
    n_recomputes: usize,
    overhead_percent: f64,
    planning_seconds: f64,
    #[serde(skip)]
    cost_unit: String,
    #[serde(skip)]
    refusal: Option<Refusal>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        for path in [&self.out, &self.problem_out].into_iter().flatten() {
            files::check_writable(path)?;
        }
        let target = self.target.read(&self.step)?;
        let budget = self.budget.resolve(target.keep_all_peak());
        let begin = Instant::now();
        let planned = target.plan(&self.planner, budget)?;
        let report = PlanReport::of(&target, planned, begin.elapsed().as_secs_f64());
        // Files first: they are complete even when nobody reads the text.
        if let Some(path) = &self.problem_out {
            files::write(path, &target.problem().to_json())?;
        }
        if let Some(path) = &self.out {
            files::write(path, &report.plan.to_json())?;
        }
        out.report(&report)?;
        Ok(Answer::of(report.fits))
    }
}

impl PlanReport {
    fn of(target: &Target, planned: Planned, planning_seconds: f64) -> PlanReport {
        let problem = target.problem();
        let plan = planned.to_plan(problem);
        let fits = planned.fits();
        let (arena_bytes, refusal) = match planned {
            Planned::Fits { arena, .. } => (arena, None),
            Planned::Refused(refusal) => (None, Some(refusal)),
        };
        PlanReport {
            fits,
            floor_bytes: target.floor().bytes,
            floor_node: target.floor().node_name.clone(),
            keep_all_peak_bytes: target.keep_all_peak(),
            keep_all_cost: problem.base_cost(),
            arena_bytes,
            n_nodes: problem.nodes.len(),
            n_recomputes: if fits { n_recomputes(problem, &plan) } else { 0 },
            overhead_percent: if fits { overhead_percent(problem, &plan) } else { 0.0 },
            planning_seconds,
            cost_unit: problem.cost_unit.clone(),
            refusal,
            plan,
        }
    }

    fn quality(&self) -> String {
        match (self.plan.status, self.plan.lower_bound) {
            (Status::Optimal, _) => "optimal: no plan within the budget costs less".to_owned(),
            (_, Some(bound)) if bound > 0.0 => {
                format!("at most {:.2} % above the cheapest plan", 100.0 * (self.plan.cost / bound - 1.0))
            }
            _ => "feasible".to_owned(),
        }
    }
}

impl Report for PlanReport {
    const SCHEMA: &'static str = PLAN_SCHEMA;

    fn text(&self, paint: Paint) -> String {
        let PlanReport { plan, floor_bytes, floor_node, keep_all_peak_bytes, .. } = self;
        if let Some(refusal) = &self.refusal {
            return format!("{}: {refusal}\n", paint.bad("does not fit"));
        }
        let peak = self.arena_bytes.unwrap_or(plan.peak_bytes);
        let first = format!(
            "{}: peak {peak} within the budget of {}; the floor is {floor_bytes}, set by {floor_node}\n",
            paint.good("fits"),
            plan.budget_bytes,
        );
        let unit = &self.cost_unit;
        let price = format!("{} instead of {}", cost(plan.cost, unit), cost(self.keep_all_cost, unit));
        first
            + &facts([
                ("problem", format!("{}, {} nodes", plan.problem, count(self.n_nodes))),
                ("planner", format!("{}, {}", plan.planner, seconds(self.planning_seconds))),
                ("peak without recomputation", keep_all_peak_bytes.to_string()),
                ("recomputed nodes", count(self.n_recomputes)),
                ("cost of a step", format!("{price} ({})", change(self.overhead_percent))),
                ("quality", self.quality()),
            ])
    }
}
