//! Decides which values of a training step to keep and which to recompute, so that it fits a memory budget.
//!
//! In: a [`Problem`] (operations with costs, values with sizes) and a [`Request`] (budget and limits). Out: an
//! [`Outcome`]: a [`Plan`], which is a list of computes and frees, or the lowest peak that was found. The crate
//! knows no tensors, measures nothing and runs nothing.
//!
//! A problem built in code:
//!
//! ```
//! use remat_plan::{Bytes, Problem, Request, solve};
//!
//! let mut step = Problem::builder("two layers");
//! let x = step.input("x", Bytes(64));
//! let a = step.forward("layer1", 2.0).reads([x]).makes("a", Bytes(400));
//! let b = step.forward("layer2", 2.0).reads([a]).makes("b", Bytes(400));
//! let db = step.backward("loss", 1.0).reads([b]).makes("db", Bytes(400));
//! let da = step.backward("layer2_grad", 4.0).reads([a, db]).makes("da", Bytes(400));
//! let dx = step.backward("layer1_grad", 4.0).reads([x, da]).makes("dx", Bytes(64));
//! step.output(dx);
//! let problem = step.build()?;
//!
//! let outcome = solve(&problem, "best", &Request::new(Bytes(1264)).effort(0.5).seed(1))?;
//! let plan = outcome.plan().expect("the budget is large enough");
//! assert_eq!(plan.peak_bytes, Bytes(1264));
//! assert_eq!(plan.cost, 13.0); // Nothing has to be recomputed.
//!
//! let outcome = solve(&problem, "best", &Request::new("1200B".parse()?))?;
//! assert!(outcome.plan().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A problem from a file, JSON or text (both are described in docs/formats.md), and a plan to a file:
//!
//! ```
//! use remat_plan::{Bytes, Plan, Problem, Request, check, solve};
//!
//! let folder = std::env::temp_dir();
//! # let folder = folder.join(format!("remat-plan-doctest-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let file = folder.join("step.txt");
//! std::fs::write(&file, "\
//! remat.problem/1
//! name tiny
//! value %0 64 x
//! value %1 128 a
//! inputs %0
//! forward gelu cost 0.5 reads %0 makes %1
//! outputs %1
//! ")?;
//! let problem = Problem::read(&file)?;
//! let outcome = solve(&problem, "save-all", &Request::new(Bytes(192)))?;
//! let plan = outcome.plan().expect("192 bytes are enough");
//! plan.write(folder.join("plan.json"), &problem)?;
//! assert_eq!(check(&problem, &Plan::read(folder.join("plan.json"), &problem)?), []);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every plan that [`solve`] returns has passed [`check()`], which shares no code with the planners.
//!
//! The modules import in one direction; layers.toml at the root of the repository lists them in order.
#![forbid(unsafe_code)]
// Where a search goes may depend on the machine; what a plan trains does not.
#![allow(clippy::disallowed_methods)]

mod answer;
mod bounds;
#[cfg(test)]
mod bounds_test;
mod builder;
mod check;
// The generator of random graphs, which names this crate as the tests outside of it do.
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
extern crate self as remat_plan;
mod documents;
mod explain;
pub mod files;
mod frontier;
mod ids;
mod lines;
mod moves;
mod names;
mod outcome;
mod plan;
pub mod planners;
mod problem;
mod problem_fault;
mod reasons;
mod request;
mod schedule;
mod short;
mod shown;
mod simulate;
mod solve;
mod spec;
mod text;
mod units;
mod validate;

pub use bounds::memory_floor::memory_floor;
pub use builder::{BuildError, NodeBuilder, ProblemBuilder};
pub use check::{Fault, check, proves_optimal};
pub use documents::FileError;
pub use explain::{Explanation, Live, PeakStep, Recomputed, explain};
pub use frontier::{Frontier, Point, frontier};
pub use ids::{ChannelId, NodeId, StoreId, ValueId};
pub use lines::TextError;
pub use moves::{Away, LinkUse, MovedValue, Moves};
pub use outcome::{Floor, Outcome, StopReason, Why};
pub use plan::{PLAN_SCHEMA, PLAN_SCHEMA_2, Plan, PlanError, Status, Step};
pub use planners::{CheckpointError, PLANNERS, PlannerInfo, checkpoint};
pub use problem::{PROBLEM_SCHEMA, PROBLEM_SCHEMA_2, Problem, ProblemError};
pub use problem_fault::{List, Origin, Place, ProblemFault, ProblemFaultKind};
pub use reasons::{Alternative, Reason, Relieved};
pub use request::{Observer, Progress, Request};
pub use shown::{Shown, is_unprintable};
pub use simulate::{Simulation, SimulationError, Transfer, Wait, free_early, simulate, simulate_with};
pub use solve::{Error, solve};
pub use spec::{Channel, Link, Node, Phase, ProblemSpec, Store, Value, Way};
pub use units::{Budget, BudgetError, Bytes};
pub use validate::validate;
