//! `remat explain`: what sets the peak of a plan, what it recomputes and moves and at what price, and what other budgets and
//! faster stores would change.

use crate::answer::Answer;
use crate::files;
use crate::flags::{PlannerFlags, StepFlags};
use crate::format::{Align, change, cost, count, table};
use crate::output::{Output, Paint, Report};
use crate::prices::Prices;
use crate::progress::Progress;
use crate::store_prices::StorePrices;
use crate::target::{Planned, Target, TargetFlags, n_recomputes, overhead_percent};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use remat_plan::{Alternative, Budget, Bytes, Explanation, Moves, PLANNERS, Plan, Reason, Status, explain};
use serde::Serialize;
use std::path::PathBuf;

/// Explains a plan: what sets its peak, what is recomputed and moved, what each saved byte costs.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    target: TargetFlags,
    /// Explain this `remat.plan` file instead of making a plan.
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
    /// Why nothing fits, if that is proved.
    proof: Option<String>,
    /// What a MiB is worth here; missing when nothing fits.
    prices: Option<Prices>,
    /// What the stores are worth; missing without any, and when nothing fits.
    store_prices: Option<StorePrices>,
    /// The planner of the other budgets.
    budgets_planner: String,
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
    /// The name of the node that runs at the peak, or of the value that is copied in there.
    peak_node: Option<String>,
    is_recompute_at_peak: bool,
    is_copy_at_peak: bool,
    live_at_peak: Vec<LiveRow>,
    recomputed: Vec<RecomputedRow>,
    /// Missing where the plan uses no store.
    moves: Option<Moves>,
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
    cost_per_mib: Option<f64>,
    reason: Option<ReasonRow>,
}

/// What dropping the outputs makes room for.
#[derive(Serialize)]
struct ReasonRow {
    dropped_at_step: usize,
    again_at_step: usize,
    relieved_step: Option<usize>,
    relieved_node: Option<String>,
    /// By how much the budget would be exceeded there if the outputs were kept.
    excess_if_kept_bytes: Bytes,
    alternative: Option<AlternativeRow>,
}

#[derive(Serialize)]
struct AlternativeRow {
    value: String,
    bytes: Bytes,
    cost: f64,
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
    /// What each MiB above the explained plan's budget saves, on average.
    saved_per_mib: Option<f64>,
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
                Planned::Fits { plan, program: None }
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
        // A plan file may come from any planner; other budgets are asked of the same one where we have it.
        let is_known = PLANNERS.iter().any(|planner| planner.name == plan.planner);
        let flags = &if is_known { flags.with_planner(&plan.planner) } else { flags.clone() };
        let (mut proof, mut prices, mut store_prices) = (None, None, None);
        let (fits, body, explanation) = match &planned {
            Planned::Refused(refusal) => {
                proof = refusal.proof().map(ToString::to_string);
                let why = proof.clone().unwrap_or_else(|| format!("the floor: {}", target.floor()));
                (false, format!("{refusal}\n{why}\n"), None)
            }
            Planned::Fits { plan, program } => {
                let explanation = explain(problem, plan).context("explaining the plan")?;
                prices = Some(Prices::of(
                    target,
                    flags,
                    plan,
                    program.as_ref().map_or(explanation.peak, |program| program.peak()),
                )?);
                store_prices = StorePrices::of(target, flags, plan)?;
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
            proof,
            prices,
            store_prices,
            budgets_planner: flags.planner.clone(),
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
            cost_per_mib: node.cost_per_mib(),
            reason: node.reason.as_ref().map(|reason| ReasonRow::of(reason, explanation.budget)),
        });
        Details {
            peak_bytes: explanation.peak,
            cost: explanation.cost,
            base_cost: explanation.base_cost,
            overhead_percent: explanation.overhead_percent(),
            lower_bound: explanation.lower_bound,
            peak_node: peak.map(|peak| peak.name.clone()),
            is_recompute_at_peak: peak.is_some_and(|peak| peak.is_recompute),
            is_copy_at_peak: peak.is_some_and(|peak| peak.node.is_none()),
            live_at_peak: live.collect(),
            recomputed: recomputed.collect(),
            moves: explanation.moves.clone(),
        }
    }
}

impl ReasonRow {
    fn of(reason: &Reason, budget: Bytes) -> ReasonRow {
        let relieved = reason.relieved.as_ref();
        let alternative = |other: &Alternative| AlternativeRow {
            value: other.name.clone(),
            bytes: other.bytes,
            cost: other.cost,
        };
        ReasonRow {
            dropped_at_step: reason.dropped_at,
            again_at_step: reason.again_at,
            relieved_step: relieved.map(|step| step.at),
            relieved_node: relieved.map(|step| step.name.clone()),
            excess_if_kept_bytes: reason.excess(budget),
            alternative: relieved.and_then(|step| step.alternative.as_ref()).map(alternative),
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
        rows.push(BudgetRow::of(target, *budget, &target.plan(flags, *budget)?, plan));
        progress.set(rows.len(), budgets.len());
    }
    Ok(rows)
}

impl BudgetRow {
    fn of(target: &Target, budget_bytes: Bytes, planned: &Planned, explained: &Plan) -> BudgetRow {
        let problem = target.problem();
        let more_mib = budget_bytes.saturating_sub(explained.budget_bytes).0 as f64 / (1u64 << 20) as f64;
        let is_above = explained.status != Status::Infeasible && more_mib > 0.0;
        match planned {
            Planned::Refused(refusal) => BudgetRow {
                budget_bytes,
                fits: false,
                peak_bytes: refusal.lowest_peak,
                cost: None,
                overhead_percent: None,
                n_recomputes: None,
                saved_per_mib: None,
            },
            Planned::Fits { plan, program } => BudgetRow {
                budget_bytes,
                fits: true,
                peak_bytes: program.as_ref().map_or(plan.peak_bytes, |program| program.peak()),
                cost: Some(plan.cost),
                overhead_percent: Some(overhead_percent(problem, plan)),
                n_recomputes: Some(n_recomputes(problem, plan)),
                saved_per_mib: is_above.then(|| (explained.cost - plan.cost).max(0.0) / more_mib),
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
            let saved = row.saved_per_mib.map_or_else(String::new, |price| cost(price, &self.cost_unit));
            vec![row.budget_bytes.to_string(), price, percent, n, saved, mark.to_owned()]
        };
        let columns = [
            ("budget", Align::Right),
            ("cost of a step", Align::Right),
            ("overhead", Align::Right),
            ("recomputed", Align::Right),
            ("saved per MiB", Align::Right),
            ("", Align::Left),
        ];
        let planner = &self.budgets_planner;
        let prices = self.prices.as_ref().map_or_else(String::new, |prices| {
            let title = format!("the price of memory here, by planning again with `{planner}`");
            format!("{}\n{}\n", paint.heading(&title), prices.text())
        });
        let stores = self.store_prices.as_ref().map_or_else(String::new, |prices| {
            let title = format!("what the stores are worth here, by planning again with `{planner}`");
            format!("{}\n{}\n", paint.heading(&title), prices.text())
        });
        let title = paint.heading(&format!("what other budgets buy, at a glance, by `{planner}`"));
        let budgets = table(&columns, self.budgets.iter().map(row));
        format!("{verdict}: {}\n{prices}{stores}{title}\n{budgets}", self.body)
    }
}
