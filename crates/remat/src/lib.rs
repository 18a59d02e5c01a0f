//! Trains neural networks inside a memory budget: gradient checkpointing (rematerialization) that is planned, exact and
//! checked.
//!
//! You give it a model and a number of bytes. It profiles one whole training step (forward, backward, optimizer), decides
//! which activations to keep and which to compute again, rewrites the step and runs it. The predicted peak is the measured
//! peak, to the byte; loss, gradients and parameters have the same bits under every plan.
//!
//! # A model of your own, trained within half of its memory
//!
//! ```
//! use remat::prelude::*;
//!
//! let model = Model::build("cnn", |g| {
//!     let labels = g.labels("labels", [32], 10);
//!     let mut h = g.input("input", [32, 16, 16, 3]);
//!     for i in 0..6 {
//!         h = h.scope(format!("block.{i}"), |h| h.conv2d("conv", Conv::same(16, 3)).batch_norm("bn").relu());
//!     }
//!     h.global_avg_pool().dropout(0.2).linear("fc", 10).cross_entropy(labels)
//! })?;
//! let training = Training::new(model).optimizer(adam(1e-3)).budget("50%").threads(2);
//! # let training = training.machine(Machine::nominal(2));
//! let mut training = training.compile()?;
//! println!("{}", training.plan());
//! for step in training.steps(3) {
//!     let step = step?;
//!     println!("{:3} {:.4} {}", step.step, step.loss, step.stats.peak);
//! }
//! println!("{:?}", training.evaluate(2)?);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! # Planning without tensors
//!
//! ```
//! use remat::plan::{Bytes, Problem, Request, solve};
//!
//! let problem = Problem::from_json(include_str!("../tests/fixtures/tiny-problem.json"))?;
//! let outcome = solve(&problem, "best", &Request::new(Bytes(448)))?;
//! assert!(outcome.plan().is_some_and(|plan| plan.peak_bytes <= Bytes(448)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading order
//!
//! Each module imports earlier ones only (`layers.toml`, enforced). [`nn`] and [`model`] build a [`graph`] of [`op`]s;
//! [`step`] makes it a whole training step; [`fuse`] joins what can pass over memory once; [`profile`] learns what its nodes
//! cost, and [`problem`] is what the planner ([`plan`]) sees of it; [`rewrite`] carries a plan out; [`layout`] gives every
//! buffer a place; [`pipeline`] puts these stages together; [`exec`] runs the result; [`train`] makes a run of many steps;
//! [`report`] says what happened; [`training`] and [`inference`] are the front door. [`testing`] checks ops from anywhere and attacks
//! the whole with random steps.

pub mod error;
pub mod exec;
pub mod files;
pub mod fuse;
pub mod graph;
mod hash;
pub mod ids;
pub mod inference;
pub mod layout;
pub mod memory;
pub mod model;
pub mod nn;
pub mod op;
pub mod optimizer;
pub mod pipeline;
pub mod prelude;
pub mod problem;
pub mod profile;
pub mod report;
pub mod rewrite;
pub mod step;
pub mod store;
pub mod testing;
mod threads;
pub mod train;
pub mod training;
pub mod weights;

pub use error::{Error, Result};

/// The instruction set of the kernels, which `REMAT_ISA` chooses and which changes no bit.
pub use remat_kernels::isa;

/// The planner: problems, plans, bounds, explanations. It knows no tensors.
pub use remat_plan as plan;

/// For ops of your own, whose attributes are plain data: `#[derive(remat::serde::Serialize)]` with
/// `#[serde(crate = "remat::serde")]`.
pub use serde;
