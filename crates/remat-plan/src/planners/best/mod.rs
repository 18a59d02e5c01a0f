//! The default: a portfolio that starts from the fast planners and improves their plans by local search.
//!
//! Tiny graphs are searched completely. Otherwise in stages, each within a share of the limits: (1) the fast planners
//! (portfolio.rs); (2) a scan for the best one-cut lower bound; (3) local search from many starts in two streams, and beside
//! it branch and bound, on the best single cuts first and then on several cuts at once. After each epoch of the search the lineages of both streams are ranked and the
//! worse half ends; the choices met in the branch and bound become starts, too. The best plan so far is returned when
//! time runs out, so the planner is anytime. Streams exchange plans only between epochs, which are measured in
//! work, so with a limit on work alone the result does not depend on the machine.
//!
//! Without a limit on time the search ends early when the proven gap is tiny or when two epochs in a row brought nothing.

mod keep_set;
mod moves;
mod moving;
mod news;
mod portfolio;
mod repeats;
mod replicate;
mod search;

use crate::answer::outcome_with_bound;
use crate::bounds::cut_chain::Growth;
use crate::bounds::memory_floor::memory_floor;
use crate::bounds::one_cut::Cuts;
use crate::ids::NodeId;
use crate::outcome::{Outcome, Why};
use crate::planners::{exhaustive, mu_two};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::units::Bytes;
use news::News;
use portfolio::compare;
use search::{Ending, Found, Lineage, SMALL_GAIN, Search};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Work of effort 1: about three seconds.
const UNIT_WORK: f64 = 5e8;
/// Graphs of up to this many nodes are searched completely first, up to a number of states.
const TINY: usize = 16;
const TINY_STATES: usize = 50_000;
/// Shares of the remaining limits.
const SHARE_OF_CUTS: f64 = 0.08;
const SHARE_OF_CHOICES: f64 = 0.04;
/// Of an epoch of the search, for the bound beside it: while the search keeps finding better plans, and when it has
/// stalled.
const SHARE_OF_BOUNDING: f64 = 0.4;
const SHARE_OF_BOUNDING_ALONE: f64 = 0.95;
/// A peak up to this multiple of the budget is near it.
const NEAR: f64 = 1.2;
/// A search that would need more memory than this is left out; the best plan of the fast planners is then the answer.
const MOST_BYTES: usize = 320 << 20;
/// Independent searches that run at the same time, whatever the number of processors.
const N_STREAMS: usize = 2;
/// How many lineages are alive in each epoch of the search; the epochs have equal shares of the limits.
const LINEAGES: [usize; 5] = [8, 4, 2, 2, 1];
/// Coolings that each lineage should get in an epoch.
const LEAST_COOLINGS: f64 = 2.0;
/// Without a limit on time the race ends at this proven gap, and an epoch after as many coolings per stream and lineage
/// that gained nothing.
const SMALL_GAP: f64 = 1e-4;
const PATIENCE: usize = 4;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    if !problem.stores.is_empty() {
        return moving::tiny::plan(problem, request);
    }
    if problem.nodes.len() <= TINY && memory_floor(problem).bytes <= request.budget {
        match exhaustive::answer(problem, request, "best", &Flat::new(problem), TINY_STATES) {
            // There is no plan, but a peak to ask for instead.
            Some(Outcome::Infeasible { why, .. }) => {
                return match race_without_stores(problem, request) {
                    Outcome::Infeasible { lowest_peak, .. } => Outcome::Infeasible { lowest_peak, why },
                    refutation => refutation,
                };
            }
            Some(proved) => return proved,
            None => {}
        }
    }
    race_without_stores(problem, request)
}

/// `plan` without the complete search of tiny graphs: portfolio, bounds and local search alone. On tiny graphs the
/// tests compare it with the optimum, which says what it is worth on larger ones.
pub fn race(problem: &Problem, request: &Request) -> Outcome {
    let race = if problem.stores.is_empty() { race_without_stores } else { moving::race };
    race(problem, request)
}

fn race_without_stores(problem: &Problem, request: &Request) -> Outcome {
    let begin = Instant::now();
    let mut limits = Limits::new(request, UNIT_WORK);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let flat = Flat::new(problem);
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let kept_all = flat.measure(&order, &mut Vec::new());
    // The plan must be written and checked in the end, which takes about as long as what was done so far.
    limits.reserve(2 * begin.elapsed());

    let base_cost = problem.base_cost();
    let news = News::new(request, begin, base_cost);
    let starts = portfolio::starts(problem, &flat, kept_all, request, &mut limits);
    let mut race = Race { flat: &flat, budget, base_cost, bound: 0.0, best: starts[0].clone(), news: &news };
    race.tell();
    if !race.is_optimal() {
        let extra = race.extra();
        let cuts = limits.within(SHARE_OF_CUTS, |part| Cuts::scan(&flat, budget, extra, part));
        race.bound = cuts.relaxed_bound();
        if race.bound.is_infinite() {
            let request = Request { time_limit: limits.time_left(), ..request.clone() };
            let lowest_peak = portfolio::lowest_peak(problem, &request, race.best.peak());
            return no_plan(problem, request.budget, lowest_peak, &cuts);
        }
        race.tell();
        race.run(starts, &cuts, request.seed, request.time_limit.is_some(), &mut limits);
    }
    if race.extra().is_infinite() {
        let request = Request { time_limit: limits.time_left(), ..request.clone() };
        return portfolio::last_resort(problem, &request, race.best.peak());
    }
    outcome_with_bound(problem, request, "best", &race.best.computes, limits.reason(), Some(race.bound))
}

/// The search for a cheaper plan and the search for a higher bound, against each other.
struct Race<'a> {
    flat: &'a Flat,
    budget: i64,
    base_cost: f64,
    /// No plan within the budget has less extra cost.
    bound: f64,
    best: Found,
    news: &'a News<'a>,
}

impl Race<'_> {
    /// What the best plan costs beyond running every node once; infinite while none is within the budget.
    fn extra(&self) -> f64 {
        let is_within = self.best.measure.peak <= self.budget;
        if is_within { self.best.measure.cost - self.base_cost } else { f64::INFINITY }
    }

    /// Tells the observer what is known.
    fn tell(&self) {
        self.news.bound(self.base_cost + self.bound);
        if self.extra().is_finite() {
            self.news.plan(self.best.measure.cost);
        }
    }

    fn is_optimal(&self) -> bool {
        // A plan that runs every node once costs the least; its sum may differ from the base cost by rounding.
        let runs_once = self.best.computes.len() == self.flat.n_nodes() && self.extra().is_finite();
        runs_once || self.extra() <= self.bound
    }

    fn offer(&mut self, found: &Found) {
        if found.is_better_than(&self.best, self.budget) {
            self.best = found.clone();
        }
    }

    /// Anneals from many starts and keeps the promising ones, with branch and bound beside it as soon as there is a plan.
    fn run(&mut self, starts: Vec<Found>, cuts: &Cuts, seed: u64, is_patient: bool, limits: &mut Limits) {
        if Search::bytes(self.flat, self.best.computes.len()) > MOST_BYTES {
            return;
        }
        let mut lineages: Vec<Lineage> =
            promising(starts, self.budget).into_iter().map(|start| Lineage::new(self.flat, start)).collect();
        let mut streams: Vec<Search> = (0..N_STREAMS as u64)
            .map(|i| Search::new(self.flat, self.budget, seed.wrapping_mul(N_STREAMS as u64).wrapping_add(i)))
            .collect();
        let mut growth: Option<Growth> = None;
        let mut costs: Vec<f64> = Vec::new();
        for epoch in 0..LINEAGES.len() {
            let share = 1.0 / (LINEAGES.len() - epoch) as f64;
            lineages.truncate(self.n_lineages(epoch, share * limits.expected_work()));
            // When an epoch brought nothing, one stream rests and the bound gets its processor, if that can make use of it.
            let has_stalled = matches!(costs[..], [.., before, now] if before - now <= SMALL_GAIN * now)
                && growth.as_ref().is_some_and(Growth::is_open);
            let (n_streams, share_of_bounding) = if has_stalled {
                (N_STREAMS - 1, SHARE_OF_BOUNDING_ALONE)
            } else {
                (N_STREAMS, SHARE_OF_BOUNDING)
            };
            for (i, stream) in streams.iter_mut().enumerate() {
                stream.lineages = lineages.iter().skip(i).step_by(n_streams).cloned().collect();
                if stream.lineages.is_empty() {
                    stream.lineages.push(lineages[0].clone());
                }
            }
            let is_over = AtomicBool::new(false);
            let patience = if is_patient { usize::MAX } else { PATIENCE * streams[0].lineages.len() };
            let ending =
                Ending { target: self.base_cost + self.bound, is_over: &is_over, patience, news: self.news };
            let extra = self.extra();
            let mut parts: Vec<Limits> = streams.iter().map(|_| limits.part(share)).collect();
            let mut bounding = limits.part(share_of_bounding * share);
            let bounded = std::thread::scope(|scope| {
                for (stream, part) in streams.iter_mut().zip(&mut parts).take(n_streams) {
                    scope.spawn(move || stream.run(ending, part));
                }
                // Without a plan there is nothing to prove yet.
                extra.is_finite().then(|| {
                    let (mut bound, mut choices) = (self.bound, Vec::new());
                    if growth.is_none() {
                        (bound, choices) = cuts.branched_bound(extra, &mut bounding);
                    }
                    if bound < extra {
                        bound = bound.max(
                            growth.get_or_insert_with(|| Growth::new(cuts)).advance(extra, &mut bounding),
                        );
                    }
                    is_over.store(bound >= extra, Ordering::Relaxed);
                    (bound, choices)
                })
            });
            if bounded.as_ref().is_some_and(|(bound, _)| *bound >= extra) {
                // The plan from before this epoch is proved optimal, whatever the streams met until they heard of it.
                self.bound = extra;
                self.tell();
                return;
            }
            limits.absorb(&parts[0]);
            lineages = streams.iter_mut().flat_map(|stream| stream.lineages.drain(..)).collect();
            if let Some((bound, choices)) = bounded {
                self.bound = self.bound.max(bound);
                for (at, dropped) in choices {
                    let gaps = keep_set::dropped_at(self.flat, at as u32, &dropped);
                    let found = limits.within(SHARE_OF_CHOICES, |part| {
                        mu_two::greedy_from(self.flat, self.budget, gaps, part)
                    });
                    lineages.extend(
                        found.map(|(computes, _)| Lineage::new(self.flat, Found::new(self.flat, computes))),
                    );
                }
            }
            lineages.sort_by(|a, b| compare(&a.best, &b.best, self.budget));
            self.offer(&lineages[0].best);
            self.tell();
            costs.push(self.best.measure.cost);
            if self.is_optimal() || !limits.spend(0.0) || (!is_patient && self.is_good_enough(&costs)) {
                return;
            }
        }
    }

    /// As many lineages as can cool a few times.
    fn n_lineages(&self, epoch: usize, work: f64) -> usize {
        let n_coolings = N_STREAMS as f64 * work / Search::work_of_cooling(self.best.computes.len());
        LINEAGES[epoch].min((n_coolings / LEAST_COOLINGS) as usize).max(1)
    }

    /// Whether the gap is tiny, or the last two epochs gained next to nothing. `costs`: the best cost after each epoch.
    fn is_good_enough(&self, costs: &[f64]) -> bool {
        let has_stalled = match costs {
            [.., before, _, now] => before - now <= SMALL_GAIN * now,
            _ => false,
        };
        let gap = (self.extra() - self.bound) / (self.base_cost + self.bound).max(f64::MIN_POSITIVE);
        self.extra().is_finite() && (has_stalled || gap <= SMALL_GAP)
    }
}

/// The starts worth a lineage, in the order in which they get one: the best plan, then plans that are not far above
/// the budget, the cheapest first. The search repairs a small excess quickly, and a cheap plan just above the budget is
/// often nearer to the best one than an expensive plan below it.
fn promising(mut starts: Vec<Found>, budget: i64) -> Vec<Found> {
    let rest = starts.split_off(1);
    let mut near: Vec<Found> =
        rest.into_iter().filter(|found| found.measure.peak as f64 <= NEAR * budget as f64).collect();
    near.sort_by(|a, b| a.measure.cost.total_cmp(&b.measure.cost).then(a.measure.peak.cmp(&b.measure.peak)));
    near.dedup_by(|a, b| a.measure == b.measure);
    starts.extend(near);
    starts
}

/// The answer when a cut proves that the budget cannot be met; that one node alone does not fit is the simpler proof.
fn no_plan(problem: &Problem, budget: Bytes, lowest_peak: Bytes, cuts: &Cuts) -> Outcome {
    let (node, floor) = (NodeId::new(cuts.ranked[0].1), memory_floor(problem));
    let why = if floor.bytes > budget {
        Why::BelowFloor(floor)
    } else {
        Why::CutTooLarge { node, node_name: problem.node(node).name.clone() }
    };
    Outcome::Infeasible { lowest_peak, why }
}
