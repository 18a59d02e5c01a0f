//! The default: a portfolio that starts from the fast planners and improves their plan by local search.
//!
//! Tiny graphs are searched completely. Otherwise in stages, each within a share of the limits: (1) `mu-two`, `chain-dp`
//! and `eviction`, with the problem's order and with eager updates; (2) the one-cut lower bound with branch and bound,
//! whose choice of what to keep is nearly a plan and one more start; (3) local search in two streams, which first go on
//! from their own best plan and later from the common one, until the limits are reached or the cost meets the
//! bound. The best plan so far is returned when time runs out, so the planner is anytime; with a limit on work
//! alone it is deterministic, whatever the number of processors.

use crate::ids::NodeId;
use crate::outcome::{Outcome, StopReason, Why};
use crate::planners::flat::Flat;
use crate::planners::gaps::{Gap, keep_all};
use crate::planners::limits::Limits;
use crate::planners::one_cut::Cuts;
use crate::planners::search::{self, Found};
use crate::planners::{
    Request, chain_dp, eviction, exhaustive, mu_two, not_reached, order, outcome_with_bound,
};
use crate::problem::Problem;
use crate::units::Bytes;

/// Work of effort 1: about three seconds.
const UNIT_WORK: f64 = 5e8;
/// Graphs of up to this many nodes are searched completely first, up to a number of states.
const TINY: usize = 16;
const TINY_STATES: usize = 50_000;
/// Shares of the remaining limits for the stages before the search.
const SHARE_OF_STARTS: f64 = 0.08;
const SHARE_OF_CUTS: f64 = 0.08;
const SHARE_OF_BRANCHING: f64 = 0.15;
/// A peak up to this multiple of the budget is near it.
const NEAR: f64 = 1.2;
/// Parts of the search; in the first half the streams do not know of each other.
const N_EPOCHS: usize = 4;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let mut limits = Limits::new(request, UNIT_WORK);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let base_cost = problem.base_cost();
    let flat = Flat::new(problem);
    if flat.n_nodes() <= TINY
        && let Some(proved) = exhaustive::answer(problem, request, "best", &flat, TINY_STATES)
    {
        return proved;
    }
    let finish = |best: &Found, bound: f64, stop| {
        outcome_with_bound(problem, request, "best", &best.computes, stop, Some(bound))
    };
    let extra = |best: &Found| {
        let is_within = best.measure.peak <= budget;
        if is_within { best.measure.cost - base_cost } else { f64::INFINITY }
    };

    let starts = starts(problem, &flat, budget, request.seed, &mut limits);
    let mut best = starts[0].clone();
    // A plan that runs every node once costs the least; its sum may differ from the base cost by rounding.
    let runs_once = best.computes.len() == flat.n_nodes() && best.measure.peak <= budget;
    if runs_once || extra(&best) <= 0.0 {
        return finish(&best, 0.0, StopReason::SearchExhausted);
    }
    let cuts = limits.within(SHARE_OF_CUTS, |part| Cuts::scan(&flat, budget, extra(&best), part));
    let mut bound = cuts.relaxed_bound();
    if bound.is_infinite() {
        return no_plan(problem, best.measure.peak, &cuts);
    }
    if extra(&best).is_finite() {
        let branched = limits.within(SHARE_OF_BRANCHING, |part| cuts.branched_bound(extra(&best), part));
        bound = branched.0;
        for (at, dropped) in branched.1 {
            let gaps = dropped_at(&flat, at as u32, &dropped);
            let found = limits.within(SHARE_OF_STARTS, |part| mu_two::greedy_from(&flat, budget, gaps, part));
            if let Some(found) = found.map(|(computes, _)| Found::new(&flat, computes))
                && found.is_better_than(&best, budget)
            {
                best = found;
            }
        }
    }
    let target = base_cost + bound;
    let streams = vec![best, alternative(&starts, budget).clone()];
    best = search_in_streams(&flat, budget, streams, target, request.seed, &mut limits);
    if extra(&best).is_infinite() {
        return not_reached(problem, request, best.measure.peak);
    }
    finish(&best, bound, limits.reason())
}

/// The plans of the fast planners, best first.
fn starts(problem: &Problem, here: &Flat, budget: i64, seed: u64, limits: &mut Limits) -> Vec<Found> {
    let (computes, _) = limits.within(SHARE_OF_STARTS, |part| mu_two::greedy(here, budget, part));
    let mut starts = vec![Found::new(here, computes)];
    if let Some(other) = order::eager(problem) {
        let flat = Flat::new(&other.problem);
        let (computes, _) = limits.within(SHARE_OF_STARTS, |part| mu_two::greedy(&flat, budget, part));
        starts.push(Found::new(here, other.restore(&computes)));
    }
    starts.push(Found::new(here, chain_dp::best_chain(problem, budget).0));
    let evicted = limits.within(SHARE_OF_STARTS, |part| eviction::best_run(problem, budget, seed, part).0);
    starts.push(Found::new(here, evicted));
    starts.sort_by(|a, b| {
        let (a, b) = (a.measure.rank(budget), b.measure.rank(budget));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    });
    starts
}

/// Drops the given values in their gap at node `at`, and keeps everything else.
fn dropped_at(flat: &Flat, at: u32, dropped: &[u32]) -> Vec<Gap> {
    let mut gaps = keep_all(flat);
    for &v in dropped.iter().filter(|&&v| !flat.lasting[v as usize]) {
        let reads = flat.readers.get(v as usize);
        let next = reads.partition_point(|&reader| reader < at);
        if next < reads.len() && flat.producer[v as usize] < at {
            gaps[flat.readers.range(v as usize).start + next] = Gap::Share;
        }
    }
    gaps
}

/// The start of the second stream: the cheapest other plan that is not far above the budget. The search repairs a small
/// excess quickly, and a cheap plan just above the budget is often nearer to the best one than a dear plan below.
fn alternative(starts: &[Found], budget: i64) -> &Found {
    let is_near = |found: &&Found| found.measure.peak as f64 <= NEAR * budget as f64;
    let others = starts[1..].iter().filter(is_near);
    others.reduce(|a, b| if b.measure.cost < a.measure.cost { b } else { a }).unwrap_or(&starts[0])
}

fn search_in_streams(
    flat: &Flat,
    budget: i64,
    mut found: Vec<Found>,
    target: f64,
    seed: u64,
    limits: &mut Limits,
) -> Found {
    for epoch in 0..N_EPOCHS {
        let share = 1.0 / (N_EPOCHS - epoch) as f64;
        let mut parts: Vec<Limits> = found.iter().map(|_| limits.part(share)).collect();
        std::thread::scope(|scope| {
            for (stream, (found, part)) in found.iter_mut().zip(&mut parts).enumerate() {
                let seed = seed.wrapping_add(1 + stream as u64 + 2 * epoch as u64);
                scope.spawn(move || *found = search::improve(flat, budget, found, target, seed, part));
            }
        });
        limits.absorb(&parts[0]);
        let best = best_of(&found, budget).clone();
        if epoch + 1 == N_EPOCHS || best.measure.peak <= budget && best.measure.cost <= target {
            return best;
        }
        if epoch + 1 >= N_EPOCHS / 2 {
            found.fill(best);
        }
    }
    best_of(&found, budget).clone()
}

fn best_of(found: &[Found], budget: i64) -> &Found {
    found
        .iter()
        .reduce(|a, b| if b.is_better_than(a, budget) { b } else { a })
        .expect("there is at least one stream")
}

/// The answer when a cut proves that the budget cannot be met.
fn no_plan(problem: &Problem, lowest_peak: i64, cuts: &Cuts) -> Outcome {
    let node = NodeId::new(cuts.ranked[0].1);
    let why = Why::CutTooLarge { node, node_name: problem.node(node).name.clone() };
    Outcome::Infeasible { lowest_peak: Bytes(lowest_peak.max(0) as u64), why }
}
