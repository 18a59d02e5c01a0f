//! The frontier: what each amount of memory costs.
//!
//! In: a problem, a planner, and a number of budgets between the memory floor and the peak of keeping everything. Out: one
//! point per budget, each with a checked plan and a lower bound, or with the reason why there is none.
//! Invariant: along ascending budgets the cost never rises, the bound never rises, and no peak exceeds its budget.
//!
//! Work is shared between budgets by two facts. A plan with the peak p is a plan for *every* budget from p on, so a
//! point may take over the plan of any other one, above or below it. A bound for a budget holds for every *smaller*
//! budget, because fewer plans fit there; so does a proof that no plan exists. The budgets are visited by
//! bisection, outermost first: where the cheapest known plan that fits meets the highest known bound, the
//! point is answered without planning. Mathematics: docs/frontier.md.

use crate::bounds::memory_floor::memory_floor;
use crate::ids::NodeId;
use crate::outcome::{Outcome, Why};
use crate::plan::{Plan, Status};
use crate::problem::Problem;
use crate::request::Request;
use crate::simulate::{free_early, simulate};
use crate::solve::{Error, solve};
use crate::units::Bytes;
use std::time::Instant;

/// Costs are sums of many numbers; two that differ by less than this, relatively, are equal.
const COST_TOLERANCE: f64 = 1e-9;

/// One point of the frontier.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The budget.
    pub budget: Bytes,
    /// The cheapest plan found within it, if any.
    pub plan: Option<Plan>,
    /// With a plan its peak, otherwise the lowest peak that was found.
    pub lowest_peak: Bytes,
    /// No plan within the budget costs less, if a bound is known; also known for some budgets without a plan.
    pub lower_bound: Option<f64>,
    /// Why there is no plan, where there is none.
    pub why: Option<Why>,
    /// Whether the planner was asked; otherwise the neighbours answered.
    pub was_planned: bool,
}

impl Point {
    /// How far the cost is above its lower bound, in percent; nothing without a plan or a bound.
    pub fn gap_percent(&self) -> Option<f64> {
        let (cost, bound) = (self.plan.as_ref()?.cost, self.lower_bound?);
        Some(if bound > 0.0 { 100.0 * (cost / bound - 1.0).max(0.0) } else { 0.0 })
    }
}

/// The whole curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Frontier {
    /// No plan has a lower peak.
    pub floor: Bytes,
    /// The peak when nothing is recomputed, in the problem's order.
    pub keep_all_peak: Bytes,
    /// The cost of running every node once.
    pub base_cost: f64,
    /// The points, by ascending budget.
    pub points: Vec<Point>,
}

/// Plans for `n_points` budgets, evenly spread from the floor to the peak of keeping everything. `request` gives the
/// effort for each point and the time for all of them together; its budget is not used. `progress` is told how many
/// of the points are done.
pub fn frontier(
    problem: &Problem,
    planner: &str,
    n_points: usize,
    request: &Request,
    mut progress: impl FnMut(usize),
) -> Result<Frontier, Error> {
    let begin = Instant::now();
    let floor = memory_floor(problem).bytes;
    let order: Vec<NodeId> = problem.node_ids().collect();
    let keep_all_peak =
        simulate(problem, &free_early(problem, &order)).expect("the problem's own order is valid").peak;
    let range = keep_all_peak.saturating_sub(floor).0;
    let n_steps = n_points.saturating_sub(1).max(1) as u64;
    let mut curve = Curve {
        // One point alone is the one that always exists.
        budgets: match n_points {
            1 => vec![keep_all_peak.max(floor)],
            _ => (0..n_points as u64).map(|i| floor + Bytes(scaled(range, i, n_steps))).collect(),
        },
        answers: vec![None; n_points],
    };
    for (done, at) in bisection(n_points).into_iter().enumerate() {
        let answer = match curve.known(at) {
            Some(answer) => answer,
            None => {
                let n_left = (n_points - done) as u32;
                let time_limit =
                    request.time_limit.map(|limit| limit.saturating_sub(begin.elapsed()) / n_left);
                let request = Request { budget: curve.budgets[at], time_limit, ..request.clone() };
                Answer::of(solve(problem, planner, &request)?)
            }
        };
        curve.answers[at] = Some(answer);
        progress(done + 1);
    }
    Ok(Frontier { floor, keep_all_peak, base_cost: problem.base_cost(), points: curve.into_points() })
}

/// `whole * part / parts` without overflow.
fn scaled(whole: u64, part: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64
}

/// The numbers below `n` in the order last, first, middle, and so on into both halves, level by level.
fn bisection(n: usize) -> Vec<usize> {
    let Some(last) = n.checked_sub(1) else { return Vec::new() };
    let mut order = vec![last];
    order.extend((last > 0).then_some(0));
    let mut ranges = std::collections::VecDeque::from([(0, last)]);
    while let Some((low, high)) = ranges.pop_front() {
        let middle = low + (high - low) / 2;
        if middle > low {
            order.push(middle);
            ranges.extend([(low, middle), (middle, high)]);
        }
    }
    order
}

/// What is known about one budget.
#[derive(Clone)]
struct Answer {
    plan: Option<Plan>,
    lowest_peak: Bytes,
    lower_bound: Option<f64>,
    why: Option<Why>,
    was_planned: bool,
}

impl Answer {
    fn of(outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => Answer {
                lowest_peak: plan.peak_bytes,
                lower_bound: plan.lower_bound,
                plan: Some(plan),
                why: None,
                was_planned: true,
            },
            Outcome::Infeasible { lowest_peak, why } => {
                Answer { plan: None, lowest_peak, lower_bound: None, why: Some(why), was_planned: true }
            }
        }
    }

    fn is_proof_of_absence(&self) -> bool {
        self.why.as_ref().is_some_and(Why::is_proof)
    }
}

/// The budgets, ascending, and what is known so far.
struct Curve {
    budgets: Vec<Bytes>,
    answers: Vec<Option<Answer>>,
}

impl Curve {
    fn answered(&self) -> impl Iterator<Item = (usize, &Answer)> {
        self.answers.iter().enumerate().filter_map(|(at, answer)| Some((at, answer.as_ref()?)))
    }

    /// The cheapest known plan that fits, whichever budget it was made for.
    fn cheapest(&self, at: usize) -> Option<&Plan> {
        let fits = |plan: &&Plan| plan.peak_bytes <= self.budgets[at];
        let plans = self.answered().filter_map(|(_, answer)| answer.plan.as_ref()).filter(fits);
        plans.reduce(|best, next| if next.cost < best.cost { next } else { best })
    }

    /// The highest bound of this budget and all larger ones.
    fn bound(&self, at: usize) -> Option<f64> {
        let bounds = self.answered().filter(|(other, _)| *other >= at);
        bounds.filter_map(|(_, answer)| answer.lower_bound).reduce(f64::max)
    }

    /// The answer that follows from the others, if it is final.
    fn known(&self, at: usize) -> Option<Answer> {
        let mut larger = self.answered().filter(|(other, _)| *other >= at);
        if let Some((_, refused)) = larger.find(|(_, answer)| answer.is_proof_of_absence()) {
            return Some(Answer { was_planned: false, ..refused.clone() });
        }
        let (plan, bound) = (self.cheapest(at)?, self.bound(at)?);
        (plan.cost <= bound * (1.0 + COST_TOLERANCE)).then(|| Answer {
            plan: Some(plan.clone()),
            lowest_peak: plan.peak_bytes,
            lower_bound: Some(bound),
            why: None,
            was_planned: false,
        })
    }

    /// Gives every point the best of all that is known; this makes the curve monotone.
    fn into_points(self) -> Vec<Point> {
        let point = |at: usize| {
            let answer = self.answers[at].as_ref().expect("every budget was visited");
            let bound = self.bound(at);
            let plan = self.cheapest(at).map(|plan| {
                // A bound is a sum in another order than the cost, so it may pass it by rounding.
                let lower_bound = bound.map(|bound| bound.min(plan.cost));
                let is_optimal = lower_bound.is_some_and(|bound| plan.cost <= bound * (1.0 + COST_TOLERANCE));
                let status = if is_optimal { Status::Optimal } else { Status::Feasible };
                let lower_bound = if is_optimal { Some(plan.cost) } else { lower_bound };
                Plan { budget_bytes: self.budgets[at], lower_bound, status, ..plan.clone() }
            });
            Point {
                budget: self.budgets[at],
                lowest_peak: plan.as_ref().map_or(answer.lowest_peak, |plan| plan.peak_bytes),
                lower_bound: plan.as_ref().map_or(bound, |plan| plan.lower_bound),
                why: if plan.is_none() { answer.why.clone() } else { None },
                was_planned: answer.was_planned,
                plan,
            }
        };
        (0..self.budgets.len()).map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bisection_visits_every_number_once_and_the_ends_first() {
        for n in 0..40 {
            let order = bisection(n);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
        }
        assert_eq!(bisection(5), [4, 0, 2, 1, 3]);
    }

    #[test]
    fn budgets_of_any_size_do_not_overflow() {
        assert_eq!(scaled(u64::MAX, 3, 4), (u128::from(u64::MAX) * 3 / 4) as u64);
    }
}
