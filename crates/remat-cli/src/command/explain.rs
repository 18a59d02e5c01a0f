//! `remat explain`: what sets the peak of a plan, what it recomputes and at what price, and what other budgets cost.

use crate::flags::{PlannerFlags, StepFlags};
use crate::format::{Align, change, cost, count, table};
use crate::output::{Output, Paint, Report};
use crate::progress::Progress;
use crate::target::{Planned, Target, TargetFlags, n_recomputes, overhead_percent};
use crate::{Answer, files};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use remat_plan::{Budget, Bytes, Explanation, Plan, Status, explain};
use serde::Serialize;
use std::path::PathBuf;

/// Explains a plan: what sets its peak, what is recomputed, what each saved byte costs.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    target: TargetFlags,
    /// Explain this `remat.plan/1` file instead of making a plan.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, required_unless_present = "plan")]
    budget: Option<Budget>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize)]
struct Explained {
    fits: bool,
    problem: String,
    planner: String,
    budget_bytes: Bytes,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    /// Missing when nothing fits.
    explanation: Option<Details>,
    budgets: Vec<BudgetRow>,
    #[serde(skip)]
    body: String,
    #[serde(skip)]
    cost_unit: String,
}

#[derive(Serialize)]
struct Details {
    peak_bytes: Bytes,
    cost: f64,
    base_cost: f64,
    overhead_percent: f64,
    lower_bound: Option<f64>,
    peak_node: Option<String>,
    is_recompute_at_peak: bool,
    live_at_peak: Vec<LiveRow>,
    recomputed: Vec<RecomputedRow>,
}

#[derive(Serialize)]
struct LiveRow {
    value: String,
    bytes: Bytes,
    is_operand: bool,
}

#[derive(Serialize)]
struct RecomputedRow {
    node: String,
    extra_runs: usize,
    extra_cost: f64,
    output_bytes: Bytes,
}

/// What another budget would cost.
#[derive(Serialize)]
struct BudgetRow {
    budget_bytes: Bytes,
    fits: bool,
    /// With a plan its peak, otherwise the lowest that was found.
    peak_bytes: Bytes,
    cost: Option<f64>,
    overhead_percent: Option<f64>,
    n_recomputes: Option<usize>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let target = self.target.read(&self.step)?;
        let problem = target.problem();
        let budget = self.budget.map(|budget| budget.resolve(target.keep_all_peak()));
        let planned = match (&self.plan, budget) {
            (Some(path), budget) => {
                let mut plan = files::read_plan(path, problem)?;
                if plan.status == Status::Infeasible {
                    bail!("{}: the plan is infeasible, so there is nothing to explain", path.display());
                }
                plan.budget_bytes = budget.unwrap_or(plan.budget_bytes);
                explain(problem, &plan)
                    .with_context(|| format!("{}: the plan is not valid", path.display()))?;
                Planned::Fits { plan, arena: None }
            }
            (None, Some(budget)) => target.plan(&self.planner, budget)?,
            (None, None) => bail!("give --budget SIZE or --plan FILE"),
        };
        let report = Explained::of(&target, planned, &self.planner)?;
        out.report(&report)?;
        Ok(Answer::of(report.fits))
    }
}

impl Explained {
    fn of(target: &Target, planned: Planned, flags: &PlannerFlags) -> Result<Explained> {
        let problem = target.problem();
        let plan = planned.to_plan(problem);
        let (fits, body, explanation) = match &planned {
            Planned::Refused(refusal) => (false, format!("{refusal}\nthe floor: {}\n", target.floor()), None),
            Planned::Fits { plan, .. } => {
                let explanation = explain(problem, plan).context("explaining the plan")?;
                (
                    explanation.peak <= plan.budget_bytes,
                    explanation.to_string(),
                    Some(Details::of(&explanation)),
                )
            }
        };
        Ok(Explained {
            fits,
            floor_bytes: target.floor().bytes,
            floor_node: target.floor().node_name.clone(),
            keep_all_peak_bytes: target.keep_all_peak(),
            explanation,
            budgets: other_budgets(target, flags, &plan)?,
            body,
            cost_unit: problem.cost_unit.clone(),
            problem: plan.problem,
            planner: plan.planner,
            budget_bytes: plan.budget_bytes,
        })
    }
}

impl Details {
    fn of(explanation: &Explanation) -> Details {
        let peak = explanation.peak_step.as_ref();
        let live = peak.iter().flat_map(|peak| &peak.live).map(|live| LiveRow {
            value: live.name.clone(),
            bytes: live.bytes,
            is_operand: live.is_operand,
        });
        let recomputed = explanation.recomputed.iter().map(|node| RecomputedRow {
            node: node.name.clone(),
            extra_runs: node.extra_runs,
            extra_cost: node.extra_cost,
            output_bytes: node.bytes,
        });
        Details {
            peak_bytes: explanation.peak,
            cost: explanation.cost,
            base_cost: explanation.base_cost,
            overhead_percent: explanation.overhead_percent(),
            lower_bound: explanation.lower_bound,
            peak_node: peak.map(|peak| peak.name.clone()),
            is_recompute_at_peak: peak.is_some_and(|peak| peak.is_recompute),
            live_at_peak: live.collect(),
            recomputed: recomputed.collect(),
        }
    }
}

/// The floor, and four steps from the plan's budget up to where nothing is recomputed. They show a trend, so each is
/// planned with less work than the plan itself.
fn other_budgets(target: &Target, flags: &PlannerFlags, plan: &Plan) -> Result<Vec<BudgetRow>> {
    let flags = &flags.at_a_glance();
    const STEPS: u64 = 4;
    let (floor, top) = (target.floor().bytes, target.keep_all_peak());
    let start = plan.budget_bytes.max(floor).min(top);
    let distance = top.saturating_sub(start).0;
    let mut budgets = vec![floor, start];
    // Divided first, so that no product overflows.
    budgets.extend((1..STEPS).map(|i| start + Bytes(distance / STEPS * i)).chain([top]));
    budgets.dedup();
    let progress = Progress::new("planning other budgets", budgets.len());
    let mut rows = Vec::new();
    for budget in &budgets {
        rows.push(BudgetRow::of(target, *budget, &target.plan(flags, *budget)?));
        progress.set(rows.len(), budgets.len());
    }
    Ok(rows)
}

impl BudgetRow {
    fn of(target: &Target, budget_bytes: Bytes, planned: &Planned) -> BudgetRow {
        let problem = target.problem();
        match planned {
            Planned::Refused(refusal) => BudgetRow {
                budget_bytes,
                fits: false,
                peak_bytes: refusal.lowest_peak,
                cost: None,
                overhead_percent: None,
                n_recomputes: None,
            },
            Planned::Fits { plan, arena } => BudgetRow {
                budget_bytes,
                fits: true,
                peak_bytes: arena.unwrap_or(plan.peak_bytes),
                cost: Some(plan.cost),
                overhead_percent: Some(overhead_percent(problem, plan)),
                n_recomputes: Some(n_recomputes(problem, plan)),
            },
        }
    }
}

impl Report for Explained {
    const SCHEMA: &'static str = "remat.explain/1";

    fn text(&self, paint: Paint) -> String {
        let verdict = paint.verdict(self.fits, if self.fits { "fits" } else { "does not fit" });
        let row = |row: &BudgetRow| {
            let price = match (row.cost, row.overhead_percent, row.n_recomputes) {
                (Some(price), Some(percent), Some(n)) => {
                    [cost(price, &self.cost_unit), change(percent), count(n)]
                }
                _ => [format!("lowest found {}", row.peak_bytes), String::new(), String::new()],
            };
            let [price, percent, n] = price;
            let mark = if row.budget_bytes == self.budget_bytes { "this budget" } else { "" };
            vec![row.budget_bytes.to_string(), price, percent, n, mark.to_owned()]
        };
        let columns = [
            ("budget", Align::Right),
            ("cost of a step", Align::Right),
            ("overhead", Align::Right),
            ("recomputed", Align::Right),
            ("", Align::Left),
        ];
        let title = paint.heading(&format!("what other budgets buy, by `{}`", self.planner));
        format!("{verdict}: {}\n{title}\n{}", self.body, table(&columns, self.budgets.iter().map(row)))
    }
}
