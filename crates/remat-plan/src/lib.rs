//! Decides which values of a training step to keep and which to recompute, so that it fits a memory budget.
//!
//! In: a [`Problem`] (operations with costs, values with sizes) and a [`Request`] (budget and limits). Out: an
//! [`Outcome`]: a [`Plan`], which is a list of computes and frees, or the lowest peak that was found. The crate
//! knows no tensors, measures nothing and runs nothing.
//!
//! Every plan that [`solve`] returns has passed [`check()`], which shares no code with the planners.
//!
//! ```
//! use remat_plan::{Bytes, Problem, Request, solve};
//!
//! let problem = Problem::from_json(r#"{
//!     "schema": "remat.problem/1", "name": "tiny", "cost_unit": "s", "fixed_bytes": 0,
//!     "values": [ {"name": "x", "bytes": 64}, {"name": "a", "bytes": 128} ],
//!     "inputs": [0],
//!     "nodes": [ {"name": "gelu.1", "op": "gelu", "phase": "forward", "cost": 0.5, "workspace_bytes": 0,
//!                 "inputs": [0], "outputs": [1], "recompute": true} ],
//!     "outputs": [1] }"#)?;
//! let outcome = solve(&problem, "save-all", &Request::new(Bytes(192)))?;
//! assert_eq!(outcome.plan().map(|plan| plan.peak_bytes), Some(Bytes(192)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bound;
mod check;
// The generator of random graphs, which names this crate as the tests outside of it do.
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
extern crate self as remat_plan;
mod explain;
mod ids;
mod outcome;
mod pareto;
mod plan;
pub mod planners;
mod problem;
mod reasons;
mod simulate;
mod solve;
mod units;
mod validate;

pub use bound::{Floor, memory_floor};
pub use check::{Fault, check};
pub use explain::{Explanation, Live, PeakStep, Recomputed, explain};
pub use ids::{NodeId, ValueId};
pub use outcome::{Outcome, StopReason, Why};
pub use pareto::{Frontier, Point, frontier};
pub use plan::{PLAN_SCHEMA, Plan, PlanError, Status, Step};
pub use planners::{CheckpointError, PLANNERS, PlannerInfo, Request, checkpoint};
pub use problem::{Node, PROBLEM_SCHEMA, Phase, Problem, ProblemSpec, Value};
pub use reasons::{Alternative, Reason, Relieved};
pub use simulate::{Simulation, SimulationError, free_early, simulate};
pub use solve::{Error, solve};
pub use units::{Budget, BudgetError, Bytes};
pub use validate::{List, Place, ProblemError, ProblemFault, ProblemFaultKind, validate};
