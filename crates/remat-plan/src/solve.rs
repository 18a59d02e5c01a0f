//! Runs a planner by name and checks its plan.

use crate::check::{Fault, check};
use crate::outcome::Outcome;
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
    let outcome = (info.plan)(problem, request);
    if let Some(plan) = outcome.plan() {
        let faults = check(problem, plan);
        if !faults.is_empty() {
            return Err(Error::Bug { planner: info.name, problem: problem.name.clone(), faults });
        }
    }
    Ok(outcome)
}
