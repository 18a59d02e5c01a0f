//! Runs a planner by name and checks its plan.
//!
//! A planner that does not use the stores of a problem plans as if all memory were inside the budget, and its answer claims no
//! more than that proves.

use crate::check::{Fault, check};
use crate::outcome::{Outcome, StopReason, Why};
use crate::plan::Status;
use crate::planners::PLANNERS;
use crate::problem::Problem;
use crate::request::Request;
use thiserror::Error;

/// Why [`solve`] has no answer.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum Error {
    /// No planner has this name.
    #[error("there is no planner `{name}`; the planners are {}", PLANNERS.iter().map(|p| p.name).collect::<Vec<_>>().join(", "))]
    UnknownPlanner {
        /// The name that was asked for.
        name: String,
    },
    /// The planner made a wrong plan, which is a fault of this crate.
    #[error("bug: the planner `{planner}` made an invalid plan for `{problem}`: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Bug {
        /// The planner.
        planner: &'static str,
        /// The problem.
        problem: String,
        /// What the checker found.
        faults: Vec<Fault>,
    },
}

/// Runs the planner of that name; a plan is returned only after the independent checker found no fault in it.
pub fn solve(problem: &Problem, planner: &str, request: &Request) -> Result<Outcome, Error> {
    let info = PLANNERS
        .iter()
        .find(|info| info.name == planner)
        .ok_or_else(|| Error::UnknownPlanner { name: planner.to_string() })?;
    let outcome = match problem.stores.is_empty() || info.uses_stores {
        true => (info.plan)(problem, request),
        false => beside_stores((info.plan)(&problem.without_stores(), request), problem),
    };
    if let Some(plan) = outcome.plan() {
        let faults = check(problem, plan);
        if !faults.is_empty() {
            return Err(Error::Bug { planner: info.name, problem: problem.name.clone(), faults });
        }
    }
    Ok(outcome)
}

/// The answer of a planner that does not use the stores of the problem. With them a plan may cost less or need less memory,
/// so of what the planner proved only this is left: that nothing costs less than running every node once.
fn beside_stores(outcome: Outcome, problem: &Problem) -> Outcome {
    let least = problem.base_cost();
    match outcome {
        Outcome::Optimal(plan) if plan.computes().count() == problem.nodes.len() => Outcome::Optimal(plan),
        Outcome::Optimal(mut plan) => {
            plan.status = Status::Feasible;
            plan.lower_bound = Some(least.min(plan.cost));
            Outcome::Feasible(plan, StopReason::StoresUnused)
        }
        Outcome::Feasible(mut plan, stop) => {
            plan.lower_bound = Some(least.min(plan.cost));
            Outcome::Feasible(plan, stop)
        }
        Outcome::Infeasible { lowest_peak, why } => {
            let why = if why.is_proof() { Why::NotReached } else { why };
            Outcome::Infeasible { lowest_peak, why }
        }
    }
}
