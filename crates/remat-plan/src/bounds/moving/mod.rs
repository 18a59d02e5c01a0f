//! A lower bound on the cost of every plan of a problem with stores: one cut through time, with channels.
//!
//! As in one_cut.rs, look at the first run of a node c. What later nodes need is live then, is made again afterwards, or is brought back from a
//! store; in that last case its copy to the store ended before the cut (a value that is not live has been freed, and a free
//! waits) and its copy back begins after it. So the time before the cut is at least the cost of the ancestors and at least the load of each
//! channel there, and the time after it is at least the cost of the descendants and of what is made again, and at least the load of
//! each channel there. With a weight for each of these, a price for a byte in memory and one for a byte in each store with a
//! limit, a value crosses the cut at the cheapest of its prices, and the least sum is a minimum cut. Any weights give a valid bound;
//! weights.rs finds good ones.
//!
//! The bound holds for every order of execution. Mathematics: docs/bounds/moving.md.

mod chain;
mod loads;
mod weights;

use crate::bounds::one_cut::{Cut, Cuts, IMPOSSIBLE, room_at};
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::schedule::precedence::Precedence;
use chain::chain_with_stores;
use loads::{Route, Routes, Rows, Sides};
use weights::{Available, Taken, Weights, best_weights};

/// How often the weights of a cut are improved at most.
const MOST_ROUNDS: usize = 40;
/// The bound of a cut is good enough when it may rise by this share of the cost of all nodes at most.
const CLOSE: f64 = 1e-6;
/// How far the weights move towards the proposed ones.
const STEP: f64 = 0.5;
/// Work of a bound that is wanted at once.
pub(crate) const QUICK_WORK: f64 = 1e7;
/// Cuts that are tried first.
const N_SPREAD: usize = 100;

/// Problems with more nodes, times stores, have programmes that are too large.
const MOST_NODES_OF_A_CHAIN: usize = 700;
/// How many moments may come into a chain.
const MOST_CANDIDATES: usize = 6;
/// The share of what is left of the work that the trial of a chain gets.
const SHARE_OF_A_CHAIN: f64 = 0.2;
/// Where no plan is known, costs up to this multiple of a bound are told apart.
const MOST_TIME: f64 = 4.0;

/// One cut of a problem with stores.
struct MovingCut<'a> {
    flat: &'a Flat,
    cut: Cut<'a>,
    n_channels: usize,
    /// The ways of each value of the cut.
    routes: Vec<Vec<Route>>,
    place: Vec<u32>,
    available: Available,
    /// What the rows have in any case, and the cost of the nodes that run first on either side of the cut.
    constants: Vec<f64>,
    either: f64,
}

impl<'a> MovingCut<'a> {
    fn new(problem: &Problem, cuts: &Cuts<'a>, routes: &Routes, at: usize) -> Option<MovingCut<'a>> {
        let Cuts { flat, order, .. } = cuts;
        let cut = cuts.cut(at)?;
        let sides = Sides { at, is_before: order.ancestors(at), is_after: order.descendants(at) };
        let n_channels = problem.channels.len();
        let rows = routes.rows(cut.values(), &sides);
        let mut constants = rows.constants();
        let sum = |side: &[bool]| (0..flat.n_nodes()).filter(|&n| side[n]).map(|n| flat.cost[n]).sum::<f64>();
        constants[Rows::PROGRAM_BEFORE] = sum(&sides.is_before);
        constants[Rows::program_after(n_channels)] = sum(&sides.is_after);
        let is_either: Vec<bool> =
            (0..flat.n_nodes()).map(|n| !sides.is_before[n] && !sides.is_after[n]).collect();
        let mut place = vec![0; flat.n_values()];
        (0..).zip(cut.values()).for_each(|(i, &v)| place[v as usize] = i);
        Some(MovingCut {
            flat,
            n_channels,
            routes: cut.values().iter().map(|&v| routes.of(v as usize, &rows, &sides)).collect(),
            place,
            available: Available {
                room: cut.room(),
                capacity: (problem.stores.iter())
                    .map(|store| store.capacity_bytes.map_or(f64::INFINITY, |bytes| bytes.0 as f64))
                    .collect(),
            },
            constants,
            either: sum(&is_either),
            cut,
        })
    }

    /// The cheapest way of a value across the cut: its price, and the route unless it is kept.
    fn crossing(&self, v: u32, weights: &Weights) -> (f64, Option<usize>) {
        let bytes = self.flat.bytes[v as usize] as f64;
        let mut best = (weights.memory * bytes, None);
        for (i, route) in self.routes[self.place[v as usize] as usize].iter().enumerate() {
            let time: f64 = route.loads.iter().map(|&(row, time)| weights.rows[row] * time).sum();
            let price = time + weights.stores[route.store] * bytes;
            if price < best.0 {
                best = (price, Some(i));
            }
        }
        best
    }

    /// The bound at some weights, and the choice that it belongs to.
    fn evaluate(&mut self, weights: &Weights, limits: &mut Limits) -> Option<(f64, Taken)> {
        let after = Rows::program_after(self.n_channels);
        let prices: Vec<(f64, Option<usize>)> =
            self.cut.values().iter().map(|&v| self.crossing(v, weights)).collect();
        let place = &self.place;
        let found =
            self.cut.cheapest(|v| prices[place[v as usize] as usize].0, weights.rows[after], limits)?;
        let mut taken = Taken {
            loads: self.constants.clone(),
            kept: 0.0,
            stored: vec![0.0; self.available.capacity.len()],
        };
        taken.loads[after] += found.again;
        // What may run on either side runs where time counts less.
        let lighter = if weights.rows[Rows::PROGRAM_BEFORE] < weights.rows[after] {
            Rows::PROGRAM_BEFORE
        } else {
            after
        };
        taken.loads[lighter] += self.either;
        for &v in &found.crossing {
            let i = self.place[v as usize] as usize;
            let bytes = self.flat.bytes[v as usize] as f64;
            match prices[i].1.map(|route| &self.routes[i][route]) {
                None => taken.kept += bytes,
                Some(route) => {
                    taken.stored[route.store] += bytes;
                    route.loads.iter().for_each(|&(row, time)| taken.loads[row] += time);
                }
            }
        }
        let certain: f64 = weights.rows.iter().zip(&self.constants).map(|(weight, load)| weight * load).sum();
        let work = certain + weights.rows[lighter] * self.either;
        let of_stores: f64 = (weights.stores.iter().zip(&self.available.capacity))
            .map(|(&price, &most)| if price > 0.0 { price * most } else { 0.0 })
            .sum();
        let bound = work + found.value - weights.memory * self.available.room - of_stores;
        Some((bound, taken))
    }

    /// Whether the values that can neither move nor be made again do not fit.
    fn is_impossible(&mut self, limits: &mut Limits) -> bool {
        let (routes, place, flat) = (&self.routes, &self.place, self.flat);
        let price = |v: u32| {
            let can_move = !routes[place[v as usize] as usize].is_empty();
            if can_move { 0.0 } else { flat.bytes[v as usize] as f64 }
        };
        let least = self.cut.cheapest(price, 0.0, limits);
        least.is_some_and(|found| found.value > self.available.room * (1.0 + 1e-9) + 1.0)
    }

    /// The best bound of this cut, from some weights on; the weights become the best ones.
    fn bound(&mut self, weights: &mut Weights, target: f64, limits: &mut Limits) -> f64 {
        if self.is_impossible(limits) {
            return IMPOSSIBLE;
        }
        let whole: f64 = self.flat.cost.iter().sum();
        let mut known = Vec::new();
        let mut best = 0.0;
        let mut next = weights.clone();
        for round in 0..MOST_ROUNDS {
            let Some((bound, taken)) = self.evaluate(&next, limits) else { break };
            if bound > best || round == 0 {
                best = bound;
                *weights = next;
            }
            known.push(taken);
            let (height, proposed) = best_weights(self.n_channels, &known, &self.available);
            if best >= target || height <= best + CLOSE * whole {
                break;
            }
            next = if round < 2 { proposed } else { weights.towards(&proposed, STEP) };
        }
        best
    }
}

/// A bound from a few cuts, for planners that take milliseconds themselves.
pub(crate) fn quick_cost_bound(problem: &Problem, budget: i64, target: f64) -> f64 {
    cost_bound(problem, budget, target, &mut Limits::of_work(QUICK_WORK))
}

/// A lower bound on the cost of every plan within the budget, at most `target`; infinite where there is no plan.
pub(crate) fn cost_bound(problem: &Problem, budget: i64, target: f64, limits: &mut Limits) -> f64 {
    let flat = Flat::new(problem);
    let cuts = Cuts { flat: &flat, order: Precedence::in_every_plan(&flat), budget, ranked: Vec::new() };
    let mut scan = Scan::new(problem, &cuts, target);
    scan.run(limits);
    let (bound, at) = scan.best;
    let is_large = flat.n_nodes() * problem.stores.len() > MOST_NODES_OF_A_CHAIN;
    if bound >= target || flat.n_nodes() == 0 || is_large {
        return bound.min(target);
    }
    bound.max(chain_bound(problem, &cuts, at, bound, target, limits)).min(target)
}

/// Cuts all over the problem, and more of them around the best.
struct Scan<'a> {
    problem: &'a Problem,
    cuts: &'a Cuts<'a>,
    routes: Routes<'a>,
    /// The best ones so far, where the next cut begins.
    weights: Weights,
    tried: Vec<bool>,
    /// The best bound, and its node.
    best: (f64, usize),
    target: f64,
}

impl<'a> Scan<'a> {
    fn new(problem: &'a Problem, cuts: &'a Cuts<'a>, target: f64) -> Scan<'a> {
        let n_nodes = cuts.flat.n_nodes();
        Scan {
            problem,
            cuts,
            routes: Routes::new(problem, cuts.flat, &cuts.order),
            weights: Weights::first(problem.channels.len(), problem.stores.len()),
            tried: vec![false; n_nodes],
            best: (problem.base_cost(), n_nodes / 2),
            target,
        }
    }

    fn run(&mut self, limits: &mut Limits) {
        let n_nodes = self.cuts.flat.n_nodes();
        let step = n_nodes.div_ceil(N_SPREAD).max(1);
        let middle = n_nodes / 2;
        for i in 0..=N_SPREAD {
            for at in [Some(middle + i * step), middle.checked_sub((i + 1) * step)].into_iter().flatten() {
                self.try_at(at, limits);
            }
        }
        let mut step = step.div_ceil(2);
        while self.best.0 < self.target && limits.spend(0.0) {
            let centre = self.best.1;
            for at in [centre.checked_sub(step), Some(centre + step)].into_iter().flatten() {
                self.try_at(at, limits);
            }
            if self.best.1 == centre {
                if step == 1 {
                    break;
                }
                step /= 2;
            }
        }
    }

    fn try_at(&mut self, at: usize, limits: &mut Limits) {
        let n_nodes = self.cuts.flat.n_nodes();
        let is_over = self.best.0 >= self.target || at >= n_nodes;
        if is_over || std::mem::replace(&mut self.tried[at], true) || !limits.spend(n_nodes as f64 * 8.0) {
            return;
        }
        match MovingCut::new(self.problem, self.cuts, &self.routes, at) {
            None => self.best = (IMPOSSIBLE, at),
            Some(mut cut) => {
                let bound = cut.bound(&mut self.weights, self.target, limits);
                if bound > self.best.0 {
                    self.best = (bound, at);
                }
            }
        }
    }
}

/// The bound of a chain of cuts that grows from one of them by the tightest moments that raise it.
fn chain_bound(
    problem: &Problem,
    cuts: &Cuts,
    at: usize,
    known: f64,
    target: f64,
    limits: &mut Limits,
) -> f64 {
    let base = problem.base_cost();
    let most_time = if target.is_finite() { target } else { MOST_TIME * known };
    let mut best = known;
    let mut chain = vec![at];
    let mut candidates = tight_moments(cuts, at);
    candidates.truncate(MOST_CANDIDATES);
    let prove = |chain: &[usize], best: f64, limits: &mut Limits| {
        let mut programme = chain_with_stores(problem, cuts, chain, most_time)?;
        let bound = limits.within(SHARE_OF_A_CHAIN, |part| programme.advance(target - base, part));
        Some((base + bound).min(most_time)).filter(|&bound| bound > best)
    };
    best = prove(&chain, best, limits).unwrap_or(best);
    loop {
        let mut leader = None;
        for &candidate in &candidates {
            let mut longer = chain.clone();
            longer.push(candidate);
            longer.sort_unstable();
            if best >= target || !limits.spend(0.0) {
                return best;
            }
            if let Some(bound) = prove(&longer, best, limits) {
                best = bound;
                leader = Some(candidate);
            }
        }
        let Some(leader) = leader else { return best };
        chain.push(leader);
        chain.sort_unstable();
        candidates.retain(|&candidate| candidate != leader);
    }
}

/// The nodes before and after a node that have the least room among their neighbours in the order; the least room first.
fn tight_moments(cuts: &Cuts, at: usize) -> Vec<usize> {
    let n_nodes = cuts.flat.n_nodes();
    let room: Vec<i64> = (0..n_nodes).map(|n| room_at(cuts.flat, n, cuts.budget).unwrap_or(-1)).collect();
    let reach = n_nodes / 30;
    let (before, after) = (cuts.order.ancestors(at), cuts.order.descendants(at));
    let is_tight = |n: usize| {
        let mut around = n.saturating_sub(reach)..(n + reach + 1).min(n_nodes);
        around.all(|m| (room[n], n) <= (room[m], m))
    };
    let mut moments: Vec<usize> =
        (0..n_nodes).filter(|&n| n != at && (before[n] || after[n]) && is_tight(n)).collect();
    moments.sort_by_key(|&n| (room[n], n));
    moments
}
