//! The frontier: what each amount of memory costs.
//!
//! In: a problem, a planner, and a number of budgets between the memory floor and the peak of keeping everything. Out: one
//! point per budget, each with a checked plan or none. The curve is monotone: a plan for a smaller budget is
//! also a plan for a larger one, so a point takes over the cheaper plan of a smaller budget, and a bound that holds
//! for a larger budget holds for a smaller one.

use crate::bound::memory_floor;
use crate::ids::NodeId;
use crate::outcome::Outcome;
use crate::plan::{Plan, Status};
use crate::planners::Request;
use crate::problem::Problem;
use crate::simulate::{free_early, simulate};
use crate::solve::{Error, solve};
use crate::units::Bytes;

/// One point of the frontier.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The budget.
    pub budget: Bytes,
    /// The cheapest plan found within it, if any.
    pub plan: Option<Plan>,
    /// The lowest peak found when there is no plan.
    pub lowest_peak: Bytes,
}

/// Plans for `n_points` budgets, evenly spread from the floor to the peak of keeping everything; `request` gives the
/// limits of each. Ascending budgets.
pub fn frontier(
    problem: &Problem,
    planner: &str,
    n_points: usize,
    request: &Request,
) -> Result<Vec<Point>, Error> {
    let floor = memory_floor(problem).bytes.0;
    let order: Vec<NodeId> = problem.node_ids().collect();
    let keep_all =
        simulate(problem, &free_early(problem, &order)).expect("the problem's own order is valid").peak.0;
    let keep_all = keep_all.max(floor);
    let steps = n_points.saturating_sub(1).max(1) as u64;
    let budgets = (0..n_points as u64).map(|i| Bytes(floor + scaled(keep_all - floor, i, steps)));
    let mut points = Vec::with_capacity(n_points);
    for budget in budgets {
        let outcome = solve(problem, planner, &Request { budget, ..request.clone() })?;
        let (plan, lowest_peak) = match outcome {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => (Some(plan.clone()), plan.peak_bytes),
            Outcome::Infeasible { lowest_peak, .. } => (None, lowest_peak),
        };
        points.push(Point { budget, plan, lowest_peak });
    }
    make_monotone(&mut points);
    Ok(points)
}

/// `whole * part / parts` without overflow.
fn scaled(whole: u64, part: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64
}

fn make_monotone(points: &mut [Point]) {
    let mut cheapest: Option<Plan> = None;
    for point in points.iter_mut() {
        if let Some(known) = &cheapest
            && point.plan.as_ref().is_none_or(|plan| known.cost < plan.cost)
        {
            // The bound of the smaller budget does not hold here; the one found for this budget does.
            let lower_bound = point.plan.as_ref().and_then(|plan| plan.lower_bound);
            let lower_bound = lower_bound.map(|bound| bound.min(known.cost));
            let is_optimal = lower_bound.is_some_and(|bound| bound >= known.cost);
            let status = if is_optimal { Status::Optimal } else { Status::Feasible };
            point.plan = Some(Plan { budget_bytes: point.budget, lower_bound, status, ..known.clone() });
        }
        cheapest.clone_from(&point.plan);
    }
    let mut highest: Option<f64> = None;
    for plan in points.iter_mut().rev().filter_map(|point| point.plan.as_mut()) {
        plan.lower_bound = match (plan.lower_bound, highest) {
            (Some(own), Some(other)) => Some(own.max(other).min(plan.cost)),
            (own, other) => own.or(other),
        };
        if plan.lower_bound.is_some_and(|bound| bound >= plan.cost) {
            plan.status = Status::Optimal;
        }
        highest = plan.lower_bound;
    }
}
