//! The race where the problem has stores: keep, recompute or move.
//!
//! A plan begins as a sequence that recomputes so much that it fits a *wider* budget, made by the planners without stores
//! (`keep_set`, `mu-two`, in the problem's order and with eager updates); what is still too much is moved (`Spans`). The
//! best width is searched, since recomputing less means moving more. Where copies do not overlap with computing their costs add up, and the
//! annealing of `search` applies to the wider problem as it is. At last every plan is improved by small changes that
//! are timed exactly (polish.rs), in two streams that exchange their best plans between epochs.

mod polish;
#[cfg(test)]
mod timetable_test;
pub(crate) mod tiny;

use crate::answer::{meets, not_reached, outcome_moving};
use crate::bounds::moving::{QUICK_WORK, cost_bound};
use crate::outcome::Outcome;
use crate::planners::best::keep_set;
use crate::planners::best::news::News;
use crate::planners::best::search::{Ending, Found, Lineage, Search};
use crate::planners::mu_two;
use crate::planners::swap::{self, Moved};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::schedule::moving::spans::Spans;
use crate::schedule::moving::timetable::timetable;
use crate::schedule::moving::{Kind, Moving};
use crate::schedule::order;
use crate::schedule::random::Random;
use polish::Polish;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Work of effort 1: about three seconds.
const UNIT_WORK: f64 = 5e8;
/// Shares of the remaining limits.
const SHARE_OF_SWAP: f64 = 0.05;
const SHARE_OF_WIDTHS: f64 = 0.3;
const SHARE_OF_ONE: f64 = 0.1;
const SHARE_OF_ORDERS: f64 = 0.15;
const SHARE_OF_RECOMPUTING: f64 = 0.12;
const SHARE_OF_BOUND: f64 = 0.04;
/// The same where no channel overlaps.
const SHARE_OF_RECOMPUTING_ALONE: f64 = 0.45;
const SHARE_OF_ANNEALING: f64 = 0.7;
/// Widths between the budget and what keeping everything takes.
const N_WIDTHS: usize = 8;
const N_REFINEMENTS: usize = 6;
/// Problems of up to this many nodes are tried in so many other orders.
const MOST_NODES_FOR_ORDERS: usize = 64;
const N_ORDERS: usize = 48;
/// How much memory is left for copies under way, in times of their duration.
const MARGINS: [f64; 4] = [1.0, 0.0, 2.0, 4.0];
/// How early copies in may begin, as parts of the cost of the step.
const LEADS: [f64; 4] = [0.01, 0.0, 0.1, 1.0];
/// Work of a timetable for each slot.
const WORK_PER_SLOT: f64 = 20.0;
/// A search that would need more memory than this is left out.
const MOST_BYTES: usize = 320 << 20;
const N_STREAMS: usize = 2;
const N_EPOCHS: usize = 5;

/// The best plan so far.
struct Plans<'a> {
    moving: &'a Moving<'a>,
    budget: i64,
    base_cost: f64,
    /// The lead of the best plan.
    lead: f64,
    best: Option<Moved>,
    /// No plan within the budget costs less.
    bound: f64,
    lowest: i64,
}

impl Plans<'_> {
    fn is_optimal(&self) -> bool {
        self.best.as_ref().is_some_and(|best| meets(best.timetable.cost, self.bound))
    }

    /// Raises the bound by cuts with channels, which may prove that the best plan is optimal.
    fn raise_bound(&mut self, news: &News, limits: &mut Limits) {
        let Some(best) = &self.best else { return };
        let (problem, budget, cost) = (self.moving.problem, self.budget, best.timetable.cost);
        let is_short = SHARE_OF_BOUND * limits.expected_work() < QUICK_WORK;
        let mut part = if is_short { Limits::of_work(QUICK_WORK) } else { limits.part(SHARE_OF_BOUND) };
        self.bound = self.bound.max(cost_bound(problem, budget, cost, &mut part));
        if !is_short {
            limits.absorb(&part);
        }
        news.bound(self.bound);
    }

    /// Times a sequence with copies; its cost, infinite if it is not within the budget.
    fn time(&mut self, sequence: &[u32], limits: &mut Limits) -> f64 {
        let mut cost = f64::INFINITY;
        for lead in LEADS {
            limits.spend(WORK_PER_SLOT * sequence.len() as f64);
            let table = timetable(self.moving, sequence, self.budget, lead * self.base_cost);
            let Some(timetable) = table else { continue };
            self.lowest = self.lowest.min(timetable.peak);
            if timetable.peak > self.budget {
                continue;
            }
            cost = cost.min(timetable.cost);
            if self.best.as_ref().is_none_or(|best| timetable.cost < best.timetable.cost) {
                self.best = Some(Moved { sequence: sequence.to_vec(), timetable });
                self.lead = lead;
            }
        }
        cost
    }

    /// Moves what does not fit of a sequence without copies; the cost.
    fn relieve(&mut self, sequence: &[u32], limits: &mut Limits) -> f64 {
        let mut cost = f64::INFINITY;
        for margin in MARGINS {
            if self.best.is_some() && !limits.spend(0.0) {
                break;
            }
            let mut spans = Spans::new(self.moving, sequence, self.budget);
            let (sequence, work) = spans.relieve(1.0, margin);
            limits.spend(work);
            cost = cost.min(self.time(&sequence, limits));
        }
        cost
    }

    /// Sequences that fit wider budgets by recomputing, and what is left by moving.
    fn widths(&mut self, problem: &Problem, limits: &mut Limits) {
        let eager = order::eager(problem);
        let orders = std::iter::once((Flat::new(problem), None))
            .chain(eager.as_ref().map(|other| (Flat::new(&other.problem), Some(other))));
        for (flat, other) in orders {
            let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
            let kept_all = flat.measure(&order, &mut Vec::new());
            let restored = |computes: Vec<u32>| other.map_or(computes.clone(), |o| o.restore(&computes));
            self.relieve(&restored(order), limits);
            let excess = (kept_all.peak - self.budget).max(0) as f64;
            type Maker<'m> = Box<dyn Fn(i64, &mut Limits) -> Option<Vec<u32>> + 'm>;
            let makers: [Maker; 2] = [
                Box::new(|wider, part| Some(mu_two::greedy(&flat, wider, part).0)),
                Box::new(|wider, part| {
                    keep_set::plan_at(&flat, kept_all.at, wider, part).map(|kept| kept.computes)
                }),
            ];
            for make in makers {
                let cost_at = |plans: &mut Self, width: f64, limits: &mut Limits| {
                    if !limits.spend(0.0) {
                        return f64::INFINITY;
                    }
                    let wider = plans.budget + (excess * width) as i64;
                    let computes = limits.within(SHARE_OF_ONE, |part| make(wider, part));
                    computes.map_or(f64::INFINITY, |computes| plans.relieve(&restored(computes), limits))
                };
                let step = 1.0 / N_WIDTHS as f64;
                let mut best = (f64::INFINITY, 0.0);
                for i in 0..N_WIDTHS {
                    let width = i as f64 * step;
                    let cost = cost_at(self, width, limits);
                    best = if cost < best.0 { (cost, width) } else { best };
                }
                let mut distance = step / 2.0;
                for i in 0..N_REFINEMENTS {
                    let width = best.1 + if i % 2 == 0 { distance } else { -distance };
                    if width > 0.0 && width < 1.0 {
                        let cost = cost_at(self, width, limits);
                        best = if cost < best.0 { (cost, width) } else { best };
                    }
                    distance *= if i % 2 == 0 { 1.0 } else { 0.5 };
                }
            }
        }
    }

    /// Other orders of execution, without recomputes and with as many as make them fit.
    fn orders(&mut self, problem: &Problem, seed: u64, limits: &mut Limits) {
        let mut random = Random::new(seed);
        for _ in 0..N_ORDERS {
            if self.is_optimal() || !limits.spend(0.0) {
                return;
            }
            let other = order::shuffled(problem, &mut random);
            let flat = Flat::new(&other.problem);
            self.relieve(&other.original, limits);
            let (computes, _) = limits.within(SHARE_OF_ONE, |part| mu_two::greedy(&flat, self.budget, part));
            self.relieve(&other.restore(&computes), limits);
        }
    }

    /// The race without stores, whose plan may be the best as it is.
    fn recompute(&mut self, problem: &Problem, request: &Request, share: f64, limits: &mut Limits) {
        let time_limit = limits.time_left().map(|time| time.mul_f64(share));
        let effort =
            request.effort.or(request.time_limit.is_none().then_some(1.0)).map(|effort| effort * share);
        let request = Request { time_limit, effort, observer: None, ..request.clone() };
        let outcome = super::race_without_stores(&problem.without_stores(), &request);
        if let Some(plan) = outcome.plan() {
            let computes: Vec<u32> = plan.computes().map(|node| node.0).collect();
            self.time(&computes, limits);
        }
        limits.spend(effort.unwrap_or(0.0) * UNIT_WORK);
    }

    /// Annealing where costs add up.
    fn anneal(&mut self, news: &News, seed: u64, limits: &mut Limits) {
        let mut flat = self.moving.flat.clone();
        for n in self.moving.n_nodes as u32..flat.n_nodes() as u32 {
            if let Kind::In(v, s) = self.moving.kind(n) {
                let is_frozen = self.moving.carried_by[v as usize] == v;
                let out = if is_frozen { 0.0 } else { self.moving.out_cost(v, s) };
                flat.cost[n as usize] = self.moving.back_cost(v, s) + out;
            }
        }
        let Some(best) = &self.best else { return };
        if Search::bytes(&flat, best.sequence.len()) > MOST_BYTES {
            return;
        }
        let start = best.sequence.clone();
        let found: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..N_STREAMS as u64)
                .map(|i| {
                    let (flat, start, mut part) = (&flat, start.clone(), limits.part(SHARE_OF_ANNEALING));
                    let (moving, budget) = (self.moving, self.budget);
                    scope.spawn(move || {
                        let mut search = Search::with_stores(moving, flat, budget, seed.wrapping_mul(2) + i);
                        search.lineages.push(Lineage::new(flat, Found::new(flat, start)));
                        let is_over = AtomicBool::new(false);
                        let patience = usize::MAX;
                        search.run(Ending { target: 0.0, is_over: &is_over, patience, news }, &mut part);
                        search.lineages.swap_remove(0).best.computes
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().expect("a stream ends")).collect()
        });
        limits.spend(limits.expected_work().min(UNIT_WORK * 1e3) * SHARE_OF_ANNEALING);
        for sequence in found {
            self.time(&sequence, limits);
        }
    }

    /// Small changes, timed exactly.
    fn polish(&mut self, news: &News, seed: u64, limits: &mut Limits) {
        let Some(start) = self.best.clone() else { return };
        if Search::bytes(&self.moving.flat, start.sequence.len()) > MOST_BYTES {
            return;
        }
        let flat = &self.moving.flat;
        let mut streams: Vec<Polish> = (0..N_STREAMS as u64)
            .map(|i| {
                let lead = self.lead * self.base_cost;
                Polish::new(
                    self.moving,
                    flat,
                    (self.budget, self.bound),
                    start.clone(),
                    lead,
                    seed.wrapping_mul(2) + i,
                )
            })
            .collect();
        for epoch in 0..N_EPOCHS {
            let share = 1.0 / (N_EPOCHS - epoch) as f64;
            let mut parts: Vec<Limits> = streams.iter().map(|_| limits.part(share)).collect();
            std::thread::scope(|scope| {
                for (stream, part) in streams.iter_mut().zip(&mut parts) {
                    scope.spawn(move || stream.run(part));
                }
            });
            limits.absorb(&parts[0]);
            let best = streams
                .iter()
                .map(|stream| &stream.best)
                .reduce(|a, b| if b.timetable.cost < a.timetable.cost { b } else { a })
                .expect("there are streams")
                .clone();
            news.plan(best.timetable.cost);
            if self.best.as_ref().is_none_or(|known| best.timetable.cost < known.timetable.cost) {
                self.best = Some(best.clone());
            }
            if !limits.spend(0.0) || meets(best.timetable.cost, self.bound) {
                return;
            }
            streams.iter_mut().for_each(|stream| stream.restart(best.clone()));
        }
    }
}

pub(crate) fn race(problem: &Problem, request: &Request) -> Outcome {
    let begin = Instant::now();
    let mut limits = Limits::new(request, UNIT_WORK);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let moving = Moving::new(problem);
    limits.reserve(2 * begin.elapsed());
    let base_cost = problem.base_cost();
    let news = News::new(request, begin, base_cost);
    let mut plans = Plans {
        moving: &moving,
        budget,
        base_cost,
        lead: LEADS[0],
        best: None,
        bound: base_cost,
        lowest: i64::MAX,
    };
    match limits.within(SHARE_OF_SWAP, |part| swap::greedy(&moving, budget, part)) {
        Ok(moved) => plans.best = Some(moved),
        Err(peak) => plans.lowest = peak,
    }
    let adds_up = problem.channels.iter().all(|channel| !channel.overlaps);
    if !plans.is_optimal() {
        limits.within(SHARE_OF_WIDTHS, |part| plans.widths(problem, part));
    }
    if problem.nodes.len() <= MOST_NODES_FOR_ORDERS {
        limits.within(SHARE_OF_ORDERS, |part| plans.orders(problem, request.seed, part));
    }
    if !plans.is_optimal() {
        let share = if adds_up { SHARE_OF_RECOMPUTING_ALONE } else { SHARE_OF_RECOMPUTING };
        plans.recompute(problem, request, share, &mut limits);
    }
    if !plans.is_optimal() {
        plans.raise_bound(&news, &mut limits);
    }
    if !plans.is_optimal() && adds_up {
        plans.anneal(&news, request.seed, &mut limits);
    }
    if !plans.is_optimal() {
        plans.polish(&news, request.seed, &mut limits);
    }
    let Plans { best, bound, lowest, .. } = plans;
    match best {
        Some(moved) => {
            outcome_moving(problem, request, "best", moved.timetable, limits.reason(), Some(bound))
        }
        None => not_reached(problem, request, lowest),
    }
}
