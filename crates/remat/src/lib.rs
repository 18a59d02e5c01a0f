//! Trains neural networks inside a memory budget.
//!
//! Modules in reading order, which is the way of the data: a [`model`] builds a [`graph`] of [`op`]s; [`autodiff`]
//! makes it a whole training step; [`analysis`] and [`profile`] learn its memory and time; the planner (crate
//! `remat-plan`) decides what to recompute; [`rewrite`] carries the plan out; [`layout`] gives every buffer a place;
//! [`exec`] runs it. [`pipeline`] shows the whole way on one screen.

pub mod ids;
pub mod error;
pub mod graph;
pub mod op;
pub mod model;
pub mod autodiff;
pub mod analysis;
pub mod profile;
pub mod rewrite;
pub mod layout;
pub mod exec;
pub mod train;
pub mod pipeline;

pub use error::{Error, Result};
