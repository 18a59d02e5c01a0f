//! `remat check`: does a plan do what it claims? Answered by a checker that shares no code with the planners.

use crate::answer::Answer;
use crate::files;
use crate::output::{Output, Paint, Report};
use crate::target::{n_recomputes, overhead_percent};
use anyhow::Result;
use clap::Args;
use remat_plan::{Bytes, Fault, Status, check, proves_optimal};
use serde::Serialize;
use std::path::PathBuf;

/// Checks a plan file against a problem file, independently of the planner that made it.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// A `remat.problem/1` file, JSON or text.
    problem: PathBuf,
    /// A `remat.plan/1` file, JSON or text.
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
    /// May be more than are listed.
    n_faults: usize,
    faults: Vec<String>,
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
            return format!(
                "{}: the plan of `{planner}` for {problem} has a peak of {peak_bytes} within {budget_bytes} and \
                 {n_recomputes} recomputed nodes, {overhead_percent:.2} % more cost than without{quality}\n",
                paint.good("valid")
            );
        }
        let faults: String = self.faults.iter().map(|fault| format!("  {fault}\n")).collect();
        let number = crate::format::plural(self.n_faults, "fault");
        format!("{}: the plan of `{planner}` for {problem} has {number}\n{faults}", paint.bad("not valid"))
    }
}
