//! Problems with stores that are small enough to be searched completely.
//!
//! A short race gives a plan; then every plan that would cost less is looked for. If that ends, the answer is proved. The search
//! counts its work, not its time, so the same request gives the same plan everywhere.

use crate::bounds::memory_floor::memory_floor;
use crate::outcome::{Outcome, Why};
use crate::planners::best::TINY;
use crate::planners::best::moving::race;
use crate::planners::exhaustive;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::Flat;

/// Effort of the short race: some milliseconds.
const SHORT: f64 = 1e-3;
/// Work of the complete search: a third of a second, or up to a second with many nodes.
const MOST_STATES: usize = 1_500_000;
/// The same where the short race has no plan: any plan is worth more than a cheaper one.
const MORE_STATES: usize = 2 * MOST_STATES;
const STATES_PER_SECOND: f64 = 5e6;
/// Share of the time that is allowed.
const SHARE_OF_TIME: f64 = 0.2;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    if problem.nodes.len() > TINY || memory_floor(problem).bytes > request.budget {
        return race(problem, request);
    }
    let allowed = request.effort.unwrap_or(f64::INFINITY);
    let short =
        Request { effort: Some(allowed.min(SHORT)), time_limit: None, observer: None, ..request.clone() };
    let first = race(problem, &short);
    if matches!(first, Outcome::Optimal(_)) {
        return first;
    }
    let most_states = if first.plan().is_some() { MOST_STATES } else { MORE_STATES };
    let most = request.time_limit.map_or(most_states, |limit| {
        most_states.min((SHARE_OF_TIME * limit.as_secs_f64() * STATES_PER_SECOND) as usize)
    });
    match exhaustive::answer_from(problem, request, "best", &Flat::new(problem), first.plan(), most) {
        // There is no plan, but a peak to ask for instead.
        Some(Outcome::Infeasible { lowest_peak, why }) => match first {
            Outcome::Infeasible { lowest_peak, why: Why::NotReached } => {
                Outcome::Infeasible { lowest_peak, why }
            }
            _ => Outcome::Infeasible { lowest_peak, why },
        },
        Some(proved) => proved,
        // More effort would only repeat the short race.
        None if allowed <= SHORT => first,
        None => cheaper(race(problem, request), first),
    }
}

/// The answer with the cheaper plan.
fn cheaper(a: Outcome, b: Outcome) -> Outcome {
    let cost = |outcome: &Outcome| outcome.plan().map_or(f64::INFINITY, |plan| plan.cost);
    if cost(&b) < cost(&a) { b } else { a }
}
