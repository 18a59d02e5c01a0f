//! The planners: plain functions from a problem and a request to an outcome, listed once in [`PLANNERS`].
//!
//! They never measure or execute. They are deterministic: the same problem, budget, limits and seed give the same
//! plan, except where a time limit cuts a search short. To add one: write a file, add a line to the table, write
//! its page in docs/planners/; the tests walk the table.

mod best;
mod chain_dp;
mod cut_chain;
mod eviction;
mod exhaustive;
mod flat;
mod flow;
mod gaps;
#[cfg(feature = "ilp")]
mod ilp;
mod keep_set;
mod limits;
mod min_cut;
mod moves;
mod mu_two;
mod mu_two_literal;
mod one_cut;
mod order;
mod per_block;
mod portfolio;
mod random;
mod repeats;
mod replicate;
mod save_all;
mod search;
mod several_cuts;
mod simplex;
mod sqrt;
mod tape;

pub use best::race;
pub use per_block::{CheckpointError, checkpoint};

use crate::bound::memory_floor;
use crate::outcome::{Outcome, StopReason, Why};
use crate::plan::{Plan, Status};
use crate::problem::Problem;
use crate::simulate::{free_early, simulate};
use crate::units::Bytes;
use flat::{Flat, Measure};
use gaps::Gap;
use std::time::Duration;

/// What is asked of a planner.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The peak that must not be exceeded, fixed bytes included.
    pub budget: Bytes,
    /// When to stop searching; the best plan so far is returned.
    pub time_limit: Option<Duration>,
    /// How much to search at most, in work that is the same on every machine. `None` is 1, or no limit where time is
    /// limited.
    pub effort: Option<f64>,
    /// Seed of randomised searches.
    pub seed: u64,
}

impl Request {
    /// A request with the default effort and no limit on time.
    pub fn new(budget: Bytes) -> Request {
        Request { budget, time_limit: None, effort: None, seed: 0 }
    }
}

/// One line of the table of planners.
#[derive(Clone, Copy, Debug)]
pub struct PlannerInfo {
    /// The name on the command line, in plans and in reports.
    pub name: &'static str,
    /// One sentence for `--help`.
    pub summary: &'static str,
    /// The planner.
    pub plan: fn(&Problem, &Request) -> Outcome,
}

/// All planners; the command line, the report and the tests walk this list.
pub const PLANNERS: &[PlannerInfo] = &[
    PlannerInfo {
        name: "save-all",
        summary: "keep everything, recompute nothing: the measure for all others",
        plan: save_all::plan,
    },
    PlannerInfo {
        name: "sqrt",
        summary: "Chen's segments: keep what crosses a segment boundary, recompute the rest once",
        plan: sqrt::plan,
    },
    PlannerInfo {
        name: "per-block",
        summary: "checkpoint as many blocks as needed, as torch.utils.checkpoint is used by hand",
        plan: per_block::plan,
    },
    PlannerInfo {
        name: "min-cut",
        summary: "PyTorch's choice: the fewest bytes from which backward recomputes the rest, and a knapsack on top",
        plan: min_cut::plan,
    },
    PlannerInfo {
        name: "mu-two-literal",
        summary: "the μ-TWO policy as printed; its own memory model is too optimistic",
        plan: mu_two_literal::plan,
    },
    PlannerInfo {
        name: "mu-two",
        summary: "the μ-TWO policy repaired: exact peak, shared chains, whole step",
        plan: mu_two::plan,
    },
    PlannerInfo {
        name: "chain-dp",
        summary: "optimal nesting of checkpoints on a chain of segments, by dynamic programming",
        plan: chain_dp::plan,
    },
    PlannerInfo {
        name: "eviction",
        summary: "compiled DTR: simulate the step and evict by cost, bytes and next use; best of many settings",
        plan: eviction::plan,
    },
    #[cfg(feature = "ilp")]
    PlannerInfo {
        name: "ilp",
        summary: "exact in the problem's order, by the solver HiGHS: for graphs of up to about a hundred nodes",
        plan: ilp::plan,
    },
    PlannerInfo {
        name: "exhaustive",
        summary: "all plans, for graphs of about a dozen nodes: the oracle of the tests",
        plan: exhaustive::plan,
    },
    PlannerInfo {
        name: "best",
        summary: "the default: the fast planners, improved by local search until the limits or the bound are met",
        plan: best::plan,
    },
];

/// Keeps the best of several schedules: the cheapest that fits, or the lowest when none does.
struct Candidates<'a> {
    flat: &'a Flat,
    request: &'a Request,
    best: Option<(Vec<u32>, Measure)>,
    scratch: Vec<bool>,
}

impl<'a> Candidates<'a> {
    fn new(flat: &'a Flat, request: &'a Request) -> Candidates<'a> {
        Candidates { flat, request, best: None, scratch: Vec::new() }
    }

    fn offer(&mut self, gaps: &[Gap]) {
        let Some(schedule) = gaps::schedule(self.flat, gaps) else { return };
        let measure = self.flat.measure(&schedule.computes, &mut self.scratch);
        let budget = self.request.budget.0.min(i64::MAX as u64) as i64;
        if self.best.as_ref().is_none_or(|(_, best)| measure.rank(budget) < best.rank(budget)) {
            self.best = Some((schedule.computes, measure));
        }
    }

    fn lowest_peak(&self) -> Bytes {
        let peak = self.best.as_ref().map_or(self.flat.fixed, |(_, measure)| measure.peak);
        Bytes(peak.max(0) as u64)
    }

    fn fits(&self) -> bool {
        self.lowest_peak() <= self.request.budget
    }

    fn finish(self, problem: &Problem, planner: &str) -> Outcome {
        let (computes, _) = self.best.expect("the schedule that keeps everything always exists");
        outcome(problem, self.request, planner, &computes, StopReason::BudgetMet)
    }
}

/// Turns a valid sequence of computes into an outcome, with the bound that a few cuts give.
fn outcome(
    problem: &Problem,
    request: &Request,
    planner: &str,
    computes: &[u32],
    stop: StopReason,
) -> Outcome {
    outcome_with_bound(problem, request, planner, computes, stop, None)
}

/// Turns a valid sequence of computes into an outcome. It is optimal when its extra cost is no more than the bound.
fn outcome_with_bound(
    problem: &Problem,
    request: &Request,
    planner: &str,
    computes: &[u32],
    stop: StopReason,
    extra_bound: Option<f64>,
) -> Outcome {
    let steps = free_early(problem, &flat::node_ids(computes));
    let result = simulate(problem, &steps).expect("planners make valid sequences of computes");
    if result.peak > request.budget {
        return not_reached(problem, request, result.peak.0 as i64);
    }
    let base_cost = problem.base_cost();
    let extra = result.cost - base_cost;
    // Rounding of sums must not decide over a proof, so the least cost is recognised by the number of runs too.
    let is_least = computes.len() == problem.nodes.len() || extra <= 0.0;
    let extra_bound = match extra_bound {
        _ if is_least => extra,
        Some(bound) => bound,
        None => {
            one_cut::quick_bound(&Flat::new(problem), request.budget.0.min(i64::MAX as u64) as i64, extra)
        }
    };
    let is_optimal = extra - extra_bound <= 1e-9 * extra;
    let plan = Plan {
        problem: problem.name.clone(),
        planner: planner.to_string(),
        status: if is_optimal { Status::Optimal } else { Status::Feasible },
        budget_bytes: request.budget,
        peak_bytes: result.peak,
        cost: result.cost,
        lower_bound: Some(if is_optimal { result.cost } else { (base_cost + extra_bound).min(result.cost) }),
        steps,
    };
    if is_optimal { Outcome::Optimal(plan) } else { Outcome::Feasible(plan, stop) }
}

/// The answer of a planner that did not meet the budget: with a proof when the budget is below the floor.
fn not_reached(problem: &Problem, request: &Request, peak: i64) -> Outcome {
    let floor = memory_floor(problem);
    let why = if floor.bytes > request.budget { Why::BelowFloor(floor) } else { Why::NotReached };
    Outcome::Infeasible { lowest_peak: Bytes(peak.max(0) as u64), why }
}
