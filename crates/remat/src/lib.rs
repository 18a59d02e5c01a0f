//! Trains neural networks inside a memory budget.
//!
//! Modules in reading order, which is the way of the data: a [`model`] builds a [`graph`] of [`op`]s; [`autodiff`]
//! makes it a whole training step; [`fuse`] joins what can pass over memory once; [`analysis`] and [`profile`] learn
//! its memory and time; the planner (crate `remat-plan`) decides what to recompute; [`rewrite`] carries the plan out;
//! [`layout`] gives every buffer a place; [`exec`] runs it; [`report`] says what happened. [`pipeline`] shows the whole
//! way on one screen.

pub mod analysis;
pub mod autodiff;
pub mod checkpoint;
pub mod error;
pub mod exec;
pub mod fuse;
pub mod graph;
pub mod ids;
pub mod layout;
pub mod model;
pub mod op;
pub mod pipeline;
pub mod profile;
pub mod report;
pub mod rewrite;
pub mod train;

pub use error::{Error, Result};
