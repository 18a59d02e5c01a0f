//! From a sequence of computes to an answer: the last step of every planner.
//!
//! In: computes that a planner chose. Out: an [`Outcome`] whose plan has its frees, its exact peak and cost, and a lower
//! bound; or the lowest peak, with a proof where the budget is below the memory floor.

use crate::bounds::memory_floor::memory_floor;
use crate::bounds::moving::quick_cost_bound;
use crate::bounds::one_cut::quick_bound;
use crate::ids::{StoreId, ValueId};
use crate::outcome::{Outcome, StopReason, Why};
use crate::plan::{Plan, Status, Step};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, node_ids};
use crate::schedule::gaps::{Gap, schedule};
use crate::schedule::moving::timetable::Timetable;
use crate::simulate::{Simulation, free_early, simulate, simulate_with};
use crate::units::Bytes;

/// Keeps the best of several schedules: the cheapest that fits, or the lowest when none does.
pub(crate) struct Candidates<'a> {
    flat: &'a Flat,
    request: &'a Request,
    best: Option<(Vec<u32>, Measure)>,
    scratch: Vec<bool>,
}

impl<'a> Candidates<'a> {
    pub(crate) fn new(flat: &'a Flat, request: &'a Request) -> Candidates<'a> {
        Candidates { flat, request, best: None, scratch: Vec::new() }
    }

    pub(crate) fn offer(&mut self, gaps: &[Gap]) {
        let Some(schedule) = schedule(self.flat, gaps) else { return };
        let measure = self.flat.measure(&schedule.computes, &mut self.scratch);
        let budget = self.request.budget.0.min(i64::MAX as u64) as i64;
        if self.best.as_ref().is_none_or(|(_, best)| measure.rank(budget) < best.rank(budget)) {
            self.best = Some((schedule.computes, measure));
        }
    }

    pub(crate) fn lowest_peak(&self) -> Bytes {
        let peak = self.best.as_ref().map_or(self.flat.fixed, |(_, measure)| measure.peak);
        Bytes(peak.max(0) as u64)
    }

    pub(crate) fn fits(&self) -> bool {
        self.lowest_peak() <= self.request.budget
    }

    pub(crate) fn finish(self, problem: &Problem, planner: &str) -> Outcome {
        let (computes, _) = self.best.expect("the schedule that keeps everything always exists");
        outcome(problem, self.request, planner, &computes, StopReason::BudgetMet)
    }
}

/// Turns a valid sequence of computes into an outcome, with the bound that a few cuts give.
pub(crate) fn outcome(
    problem: &Problem,
    request: &Request,
    planner: &str,
    computes: &[u32],
    stop: StopReason,
) -> Outcome {
    outcome_with_bound(problem, request, planner, computes, stop, None)
}

/// Turns a valid sequence of computes into an outcome. It is optimal when its extra cost is no more than the bound.
pub(crate) fn outcome_with_bound(
    problem: &Problem,
    request: &Request,
    planner: &str,
    computes: &[u32],
    stop: StopReason,
    extra_bound: Option<f64>,
) -> Outcome {
    let steps = free_early(problem, &node_ids(computes));
    let result = simulate(problem, &steps).expect("planners make valid sequences of computes");
    let base_cost = problem.base_cost();
    let bound_of = |cost: f64| {
        let extra = cost - base_cost;
        // Rounding of sums must not decide over a proof, so the least cost is recognised by the number of runs too.
        let is_least = computes.len() == problem.nodes.len() || extra <= 0.0;
        let extra_bound = match extra_bound {
            _ if is_least => extra,
            Some(bound) => bound,
            None => quick_bound(&Flat::new(problem), request.budget.0.min(i64::MAX as u64) as i64, extra),
        };
        Bound { cost: base_cost + extra_bound, is_met: extra - extra_bound <= 1e-9 * extra }
    };
    conclude(problem, request, planner, (Vec::new(), steps), &result, stop, bound_of)
}

/// Turns the plan of a problem with stores into an outcome. `bound`: no plan within the budget costs
/// less; without one a few cuts give it.
pub(crate) fn outcome_moving(
    problem: &Problem,
    request: &Request,
    planner: &str,
    timetable: Timetable,
    stop: StopReason,
    bound: Option<f64>,
) -> Outcome {
    let Timetable { stored, steps, .. } = timetable;
    let result = simulate_with(problem, &stored, &steps).expect("timetables have valid steps");
    let bound_of = |cost: f64| {
        let budget = request.budget.0.min(i64::MAX as u64) as i64;
        let least = problem.base_cost();
        let bound = match bound {
            Some(bound) => bound.max(least),
            None if meets(cost, least) => least,
            None => quick_cost_bound(problem, budget, cost).max(least),
        };
        Bound { cost: bound, is_met: meets(cost, bound) }
    };
    conclude(problem, request, planner, (stored, steps), &result, stop, bound_of)
}

/// Whether a plan of this cost is as cheap as a bound says that plans can be, but for the rounding of sums.
pub(crate) fn meets(cost: f64, bound: f64) -> bool {
    cost - bound <= 1e-9 * bound
}

/// A bound on the cost, and whether the plan at hand meets it.
struct Bound {
    cost: f64,
    is_met: bool,
}

/// The plan with what it claims, or the refusal where its peak is above the budget. `made`: what is stored at the start, and the steps.
fn conclude(
    problem: &Problem,
    request: &Request,
    planner: &str,
    made: (Vec<(ValueId, StoreId)>, Vec<Step>),
    result: &Simulation,
    stop: StopReason,
    bound_of: impl FnOnce(f64) -> Bound,
) -> Outcome {
    if result.peak > request.budget {
        return not_reached(problem, request, result.peak.0.min(i64::MAX as u64) as i64);
    }
    let bound = bound_of(result.cost);
    let (stored, steps) = made;
    let plan = Plan {
        problem: problem.name.clone(),
        planner: planner.to_string(),
        status: if bound.is_met { Status::Optimal } else { Status::Feasible },
        budget_bytes: request.budget,
        peak_bytes: result.peak,
        cost: result.cost,
        lower_bound: Some(if bound.is_met { result.cost } else { bound.cost.min(result.cost) }),
        stored,
        steps,
    };
    if bound.is_met { Outcome::Optimal(plan) } else { Outcome::Feasible(plan, stop) }
}

/// The answer of a planner that did not meet the budget: with a proof when the budget is below the floor.
pub(crate) fn not_reached(problem: &Problem, request: &Request, peak: i64) -> Outcome {
    let floor = memory_floor(problem);
    let why = if floor.bytes > request.budget { Why::BelowFloor(floor) } else { Why::NotReached };
    Outcome::Infeasible { lowest_peak: Bytes(peak.max(0) as u64), why }
}
