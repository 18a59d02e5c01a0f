//! The planners: plain functions from a problem and a request to an outcome, listed once in [`PLANNERS`].
//!
//! They never measure or execute. They are deterministic: the same problem, budget, limits and seed give the same
//! plan, except where a time limit cuts a search short. To add one: write a file, add a line to the table, write
//! its page in docs/planners/; the tests walk the table.

mod best;
mod chain_dp;
mod eviction;
pub(crate) mod exhaustive;
#[cfg(feature = "ilp")]
mod ilp;
mod min_cut;
mod mu_two;
mod mu_two_literal;
mod per_block;
mod save_all;
mod sqrt;
mod swap;

pub use best::race;
pub use per_block::{CheckpointError, checkpoint};

use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::request::Request;

/// One line of the table of planners.
#[derive(Clone, Copy, Debug)]
pub struct PlannerInfo {
    /// The name on the command line, in plans and in reports.
    pub name: &'static str,
    /// One sentence for `--help`.
    pub summary: &'static str,
    /// Whether it moves values to the stores of a problem. The others plan as if there were none.
    pub uses_stores: bool,
    /// The planner.
    pub plan: fn(&Problem, &Request) -> Outcome,
}

/// All planners; the command line, the report and the tests walk this list.
pub const PLANNERS: &[PlannerInfo] = &[
    PlannerInfo {
        name: "save-all",
        summary: "keep everything, recompute nothing: the measure for all others",
        uses_stores: false,
        plan: save_all::plan,
    },
    PlannerInfo {
        name: "sqrt",
        summary: "Chen's segments: keep what crosses a segment boundary, recompute the rest once",
        uses_stores: false,
        plan: sqrt::plan,
    },
    PlannerInfo {
        name: "per-block",
        summary: "checkpoint as many blocks as needed, as torch.utils.checkpoint is used by hand",
        uses_stores: false,
        plan: per_block::plan,
    },
    PlannerInfo {
        name: "min-cut",
        summary: "PyTorch's choice: the fewest bytes from which backward recomputes the rest, and a knapsack on top",
        uses_stores: false,
        plan: min_cut::plan,
    },
    PlannerInfo {
        name: "mu-two-literal",
        summary: "the μ-TWO policy as printed; its own memory model is too optimistic",
        uses_stores: true,
        plan: mu_two_literal::plan,
    },
    PlannerInfo {
        name: "mu-two",
        summary: "the μ-TWO policy repaired: swap what can be hidden, recompute the rest; exact peak, whole step",
        uses_stores: true,
        plan: mu_two::plan,
    },
    PlannerInfo {
        name: "chain-dp",
        summary: "optimal nesting of checkpoints on a chain of segments, by dynamic programming",
        uses_stores: false,
        plan: chain_dp::plan,
    },
    PlannerInfo {
        name: "eviction",
        summary: "compiled DTR: simulate the step and evict by cost, bytes and next use; best of many settings",
        uses_stores: false,
        plan: eviction::plan,
    },
    PlannerInfo {
        name: "swap",
        summary: "keep or move to a store, recompute nothing, in the problem's order",
        uses_stores: true,
        plan: swap::plan,
    },
    #[cfg(feature = "ilp")]
    PlannerInfo {
        name: "ilp",
        summary: "exact in the problem's order, by the solver HiGHS: for graphs of up to about a hundred nodes",
        uses_stores: false,
        plan: ilp::plan,
    },
    PlannerInfo {
        name: "exhaustive",
        summary: "all plans, for graphs of about a dozen nodes: the oracle of the tests",
        uses_stores: true,
        plan: exhaustive::plan,
    },
    PlannerInfo {
        name: "best",
        summary: "the default: the fast planners, improved by local search until the limits or the bound are met",
        uses_stores: true,
        plan: best::plan,
    },
];
