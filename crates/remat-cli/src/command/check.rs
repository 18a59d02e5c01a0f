//! `remat check`: does a plan do what it claims? Answered by a checker that shares no code with the planners.

use crate::answer::Answer;
use crate::files;
use crate::output::{Output, Paint, Report};
use crate::target::{n_recomputes, overhead_percent};
use anyhow::Result;
use clap::Args;
use remat_plan::{Bytes, Fault, Plan, Problem, Status, check, proves_optimal, simulate_with};
use serde::Serialize;
use std::path::PathBuf;

/// Checks a plan file against a problem file, independently of the planner that made it.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// A `remat.problem` file, JSON or text.
    problem: PathBuf,
    /// A `remat.plan` file, JSON or text.
    plan: PathBuf,
    /// Check against this budget, as a size, instead of the plan's own.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Option<Bytes>,
}

#[derive(Serialize)]
struct Checked {
    valid: bool,
    problem: String,
    planner: String,
    status: Status,
    /// Whether `status: optimal` follows from the plan itself; otherwise it is what the plan's maker claims.
    optimality_is_proved: bool,
    budget_bytes: Bytes,
    peak_bytes: Bytes,
    cost: f64,
    overhead_percent: f64,
    n_recomputes: usize,
    /// What goes to and from stores, where the plan is valid and uses any.
    copies: Option<Copies>,
    /// May be more than are listed.
    n_faults: usize,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Copies {
    n_copies: usize,
    moved_bytes: Bytes,
    /// How long the program waits for copies beside which nodes could have run.
    waiting_cost: f64,
    cost_unit: String,
}

impl Copies {
    fn of(problem: &Problem, plan: &Plan) -> Option<Copies> {
        let result = simulate_with(problem, &plan.stored, &plan.steps).ok()?;
        Some(Copies {
            n_copies: result.transfers.len(),
            moved_bytes: result.transfers.iter().map(|transfer| problem.bytes(transfer.value)).sum(),
            waiting_cost: result.stalls,
            cost_unit: problem.cost_unit.clone(),
        })
    }
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let problem = files::read_problem(&self.problem)?;
        let mut plan = files::read_plan(&self.plan, &problem)?;
        plan.budget_bytes = self.budget.unwrap_or(plan.budget_bytes);
        let found = check(&problem, &plan);
        let mut faults: Vec<String> =
            found.iter().map(|fault| fault.with_names(&problem).to_string()).collect();
        if plan.status == Status::Infeasible && faults.is_empty() {
            faults.push("the plan says that it is infeasible: there is nothing to check".to_owned());
        }
        let report = Checked {
            valid: faults.is_empty(),
            optimality_is_proved: faults.is_empty() && proves_optimal(&problem, &plan),
            overhead_percent: overhead_percent(&problem, &plan),
            n_recomputes: n_recomputes(&problem, &plan),
            copies: (faults.is_empty() && plan.uses_stores()).then(|| Copies::of(&problem, &plan)).flatten(),
            problem: plan.problem,
            planner: plan.planner,
            status: plan.status,
            budget_bytes: plan.budget_bytes,
            peak_bytes: plan.peak_bytes,
            cost: plan.cost,
            n_faults: match found[..] {
                [ref listed @ .., Fault::More { n }] => listed.len() + n,
                _ => faults.len(),
            },
            faults,
        };
        out.report(&report)?;
        Ok(Answer::of(report.valid))
    }
}

impl Report for Checked {
    const SCHEMA: &'static str = "remat.check/1";

    fn text(&self, paint: Paint) -> String {
        let Checked { problem, planner, budget_bytes, peak_bytes, overhead_percent, n_recomputes, .. } = self;
        if self.valid {
            let quality = match (self.status, self.optimality_is_proved) {
                (_, true) => "; it is optimal: every node runs once",
                (Status::Optimal, false) => "; it claims to be optimal, which is not proved here",
                (Status::Feasible | Status::Infeasible, false) => "",
            };
            let copies = self.copies.as_ref().map_or_else(String::new, |copies| {
                let Copies { n_copies, moved_bytes, waiting_cost, cost_unit } = copies;
                format!("; {n_copies} copies move {moved_bytes}, and {waiting_cost} {cost_unit} are spent waiting for them")
            });
            return format!(
                "{}: the plan of `{planner}` for {problem} has a peak of {peak_bytes} within {budget_bytes} and \
                 {n_recomputes} recomputed nodes, {overhead_percent:.2} % more cost than without{copies}{quality}\n",
                paint.good("valid")
            );
        }
        let faults: String = self.faults.iter().map(|fault| format!("  {fault}\n")).collect();
        let number = crate::format::plural(self.n_faults, "fault");
        format!("{}: the plan of `{planner}` for {problem} has {number}\n{faults}", paint.bad("not valid"))
    }
}
