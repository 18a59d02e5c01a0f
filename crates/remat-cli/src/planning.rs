//! Planning with a line on the terminal: how long it takes, the best plan so far and how far it can be from the cheapest.

use crate::format::change;
use crate::progress::Spinner;
use anyhow::Result;
use remat::pipeline::{self, Fit, Prepared};
use remat_plan::{Outcome, PLANNERS, Problem, Progress, Request};

/// Whether the planner of this name moves values to stores.
pub(crate) fn uses_stores(planner: &str) -> bool {
    PLANNERS.iter().any(|known| known.name == planner && known.uses_stores)
}

/// Plans a model's step for a budget, down to addresses.
pub(crate) fn compile(prepared: &Prepared, planner: &str, request: Request) -> Result<Fit> {
    watched(&prepared.problem.problem, planner, request, |request| {
        Ok(pipeline::compile(prepared, planner, &request)?)
    })
}

/// Plans a problem for a budget.
pub(crate) fn solve(problem: &Problem, planner: &str, request: Request) -> Result<Outcome> {
    watched(problem, planner, request, |request| Ok(remat_plan::solve(problem, planner, &request)?))
}

fn watched<T>(
    problem: &Problem,
    planner: &str,
    request: Request,
    plan: impl FnOnce(Request) -> Result<T>,
) -> Result<T> {
    let spinner = Spinner::new(format!("planning with `{planner}`"));
    let (base, line) = (problem.base_cost(), spinner.handle());
    plan(request.observer(move |progress| line.say(describe(progress, base))))
}

/// What is known so far, for people; `base` is the cost without recomputation.
fn describe(progress: &Progress, base: f64) -> String {
    let Some(cost) = progress.cost else { return "no plan yet".to_owned() };
    let overhead = if base > 0.0 { 100.0 * (cost / base - 1.0) } else { 0.0 };
    let gap = progress.gap().map_or_else(String::new, |gap| format!(", gap at most {:.2} %", 100.0 * gap));
    format!("best so far {}{gap}", change(overhead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn progress_is_told_with_cost_and_gap() {
        let at = |cost, lower_bound| Progress { elapsed: Duration::ZERO, cost, lower_bound };
        assert_eq!(describe(&at(None, 2.0), 2.0), "no plan yet");
        assert_eq!(describe(&at(Some(2.2), 2.1), 2.0), "best so far +10.0 %, gap at most 4.76 %");
        assert_eq!(describe(&at(Some(2.0), 0.0), 0.0), "best so far +0.0 %");
    }
}
