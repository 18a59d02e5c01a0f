//! Lower bounds: what no plan can undercut, whatever its order of execution.
//!
//! `memory_floor` bounds the peak. The others bound the cost within a budget: `one_cut` looks at one moment of the step,
//! `several_cuts` at several moments at once, `cut_chain` chooses those; `moving` does both for problems with stores. `flow` and `simplex` are the two solvers behind
//! them. One page per family in docs/bounds/. To add a bound: write a file here and its page, and call it where `best`
//! raises its bound.

pub(crate) mod cut_chain;
pub(crate) mod flow;
pub(crate) mod memory_floor;
pub(crate) mod moving;
pub(crate) mod one_cut;
pub(crate) mod several_cuts;
pub(crate) mod simplex;
