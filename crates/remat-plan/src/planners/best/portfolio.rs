//! The starts of the search: the plans of the fast planners.
//!
//! In: a problem and limits. Out: sequences of computes, best first, at least one. The planners run from the fastest to
//! the slowest, each within a share of what is left of the limits, so that the first plan within the budget comes
//! early on problems of any size. That every cheap planner of the table takes part is also what makes `best` never worse
//! than any of them.

use crate::answer::not_reached;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::planners::best::search::Found;
use crate::planners::best::{keep_set, repeats, replicate};
use crate::planners::{chain_dp, eviction, min_cut, mu_two, mu_two_literal, per_block, sqrt};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure};
use crate::schedule::limits::Limits;
use crate::schedule::order;
use crate::units::Bytes;
use std::cmp::Ordering;
use std::time::Instant;

type Planner = fn(&Problem, &Request) -> Outcome;
/// Planners that are run as they are, on problems with up to `OTHERS_UP_TO_NODES` nodes.
const OTHERS: [Planner; 3] = [sqrt::plan, per_block::plan, min_cut::plan];
const OTHERS_UP_TO_NODES: usize = 4000;
/// Planners that are asked again when the budget was not reached: all but those that have nothing to add or are slow.
const LAST_RESORTS: [Planner; 4] = [sqrt::plan, per_block::plan, min_cut::plan, mu_two_literal::plan];
/// The same for those that keep their limits, so that they can be asked about problems of any size.
const LIMITED_LAST_RESORTS: [Planner; 3] = [mu_two::plan, chain_dp::plan, eviction::plan];
/// Shares of the remaining limits. The first plan of a large problem may take long.
const SHARE_OF_FIRST: f64 = 0.3;
const SHARE_OF_EACH: f64 = 0.08;
/// How many plans of `eviction` are taken.
const N_EVICTED: usize = 6;

/// Plans of the fast planners, best first.
pub(crate) fn starts(
    problem: &Problem,
    flat: &Flat,
    kept_all: Measure,
    request: &Request,
    limits: &mut Limits,
) -> Vec<Found> {
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let mut starts = vec![Found { computes: (0..flat.n_nodes() as u32).collect(), measure: kept_all }];
    let is_met = |starts: &[Found]| {
        starts.iter().any(|found| found.computes.len() == flat.n_nodes() && found.measure.peak <= budget)
    };
    if is_met(&starts) || flat.n_nodes() == 0 {
        return starts;
    }
    let kept = limits.within(SHARE_OF_FIRST, |part| keep_set::plan_at(flat, kept_all.at, budget, part));
    if let Some(kept) = kept {
        starts.push(Found { computes: kept.computes, measure: kept.measure });
        let layered = limits.within(SHARE_OF_EACH, |part| {
            replicate::improve(flat, &repeats::classes(flat), kept_all.at, &kept.dropped, budget, part)
        });
        starts.extend(layered.map(|(computes, measure)| Found { computes, measure }));
    }
    let (computes, measure) = limits.within(SHARE_OF_FIRST, |part| mu_two::greedy(flat, budget, part));
    starts.push(Found { computes, measure });
    if limits.spend(0.0)
        && let Some(other) = order::eager(problem)
    {
        let eager = Flat::new(&other.problem);
        let mut offer = |found: Option<(Vec<u32>, Measure)>| {
            starts.extend(found.map(|(computes, _)| Found::new(flat, other.restore(&computes))));
        };
        let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
        let measure = eager.measure(&order, &mut Vec::new());
        offer(Some((order, measure)));
        if measure.peak > budget {
            let kept =
                limits.within(SHARE_OF_EACH, |part| keep_set::plan_at(&eager, measure.at, budget, part));
            offer(kept.map(|kept| (kept.computes, kept.measure)));
            offer(Some(limits.within(SHARE_OF_EACH, |part| mu_two::greedy(&eager, budget, part))));
        }
    }
    if !is_met(&starts) {
        let seed = request.seed;
        let evicted =
            limits.within(SHARE_OF_EACH, |part| eviction::best_runs(problem, budget, seed, N_EVICTED, part));
        starts.extend(evicted.into_iter().map(|(computes, measure)| Found { computes, measure }));
    }
    if !is_met(&starts) && limits.spend(0.0) {
        let chain = limits.within(SHARE_OF_EACH, |part| chain_dp::best_chain(problem, budget, part));
        starts.push(Found { computes: chain.0, measure: chain.1 });
    }
    if !is_met(&starts) && flat.n_nodes() <= OTHERS_UP_TO_NODES {
        for plan in OTHERS {
            let time_limit = limits.time_left().map(|time| time.mul_f64(SHARE_OF_EACH));
            if !limits.spend(0.0) {
                break;
            }
            let outcome = plan(problem, &Request { time_limit, effort: Some(1.0), ..request.clone() });
            if let Some(plan) = outcome.plan() {
                starts.push(Found::new(flat, plan.computes().map(|node| node.0).collect()));
            }
        }
    }
    starts.sort_by(|a, b| compare(a, b, budget));
    starts
}

/// The answer when the race met no plan within the budget, only the given peak: the planners run once more, each with
/// limits of its own, since none of them may reach what `best` does not.
pub(crate) fn last_resort(problem: &Problem, request: &Request, mut lowest_peak: Bytes) -> Outcome {
    let begin = Instant::now();
    let unlimited = if problem.nodes.len() > OTHERS_UP_TO_NODES { &[][..] } else { &LAST_RESORTS };
    for plan in unlimited.iter().chain(&LIMITED_LAST_RESORTS) {
        let time_limit = request.time_limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        if time_limit.is_some_and(|limit| limit.is_zero()) {
            continue;
        }
        let effort = Some(request.effort.unwrap_or(1.0));
        match plan(problem, &Request { time_limit, effort, ..request.clone() }) {
            Outcome::Infeasible { lowest_peak: peak, .. } => lowest_peak = lowest_peak.min(peak),
            Outcome::Optimal(plan) => return Outcome::Optimal(signed(plan)),
            Outcome::Feasible(plan, stop) => return Outcome::Feasible(signed(plan), stop),
        }
    }
    not_reached(problem, request, lowest_peak.0.min(i64::MAX as u64) as i64)
}

/// The lowest peak that any planner reaches for a budget that no plan meets.
pub(crate) fn lowest_peak(problem: &Problem, request: &Request, lowest_peak: Bytes) -> Bytes {
    match last_resort(problem, request, lowest_peak) {
        Outcome::Infeasible { lowest_peak, .. } => lowest_peak,
        Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => plan.peak_bytes,
    }
}

fn signed(plan: Plan) -> Plan {
    Plan { planner: "best".to_owned(), ..plan }
}

/// The better one first; see [`Measure::rank`].
pub(crate) fn compare(a: &Found, b: &Found, budget: i64) -> Ordering {
    let (a, b) = (a.measure.rank(budget), b.measure.rank(budget));
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
}
