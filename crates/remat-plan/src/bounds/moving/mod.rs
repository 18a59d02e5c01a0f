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

mod loads;
mod weights;

use crate::bounds::one_cut::{Cut, IMPOSSIBLE};
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::schedule::precedence::Precedence;
use loads::{Route, Routes, Rows, Sides};
use weights::{Available, Taken, Weights, best_weights};

/// How often the weights of a cut are improved at most.
const MOST_ROUNDS: usize = 40;
/// The bound of a cut is good enough when it may rise by this share of the cost of all nodes at most.
const CLOSE: f64 = 1e-6;
/// How far the weights move towards the proposed ones.
const STEP: f64 = 0.5;
/// Work of a bound that is wanted at once.
const QUICK_WORK: f64 = 1e7;
/// Cuts that are tried first.
const N_SPREAD: usize = 100;

/// One cut of a problem with stores.
pub(crate) struct MovingCut<'a> {
    flat: &'a Flat,
    cut: Cut<'a>,
    rows: Rows,
    /// The ways of each value of the cut.
    routes: Vec<Vec<Route>>,
    place: Vec<u32>,
    available: Available,
    /// Cost of the nodes that run first before the cut, after it, and on either side.
    before: f64,
    after: f64,
    either: f64,
}

impl<'a> MovingCut<'a> {
    fn new(
        problem: &Problem,
        flat: &'a Flat,
        order: &Precedence,
        routes: &Routes,
        at: usize,
        budget: i64,
    ) -> Option<MovingCut<'a>> {
        let cut = Cut::new(flat, order, at, budget)?;
        let sides = Sides { is_before: order.ancestors(at), is_after: order.descendants(at) };
        let sum = |side: &[bool]| (0..flat.n_nodes()).filter(|&n| side[n]).map(|n| flat.cost[n]).sum::<f64>();
        let (before, after) = (sum(&sides.is_before), sum(&sides.is_after));
        let is_either: Vec<bool> =
            (0..flat.n_nodes()).map(|n| !sides.is_before[n] && !sides.is_after[n]).collect();
        let mut place = vec![0; flat.n_values()];
        (0..).zip(cut.values()).for_each(|(i, &v)| place[v as usize] = i);
        Some(MovingCut {
            flat,
            rows: Rows::new(problem),
            routes: cut.values().iter().map(|&v| routes.of(v as usize, at, &sides)).collect(),
            place,
            available: Available {
                room: cut.room(),
                capacity: (problem.stores.iter())
                    .map(|store| store.capacity_bytes.map_or(f64::INFINITY, |bytes| bytes.0 as f64))
                    .collect(),
            },
            before,
            after,
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
        let after = self.rows.program_after();
        let prices: Vec<(f64, Option<usize>)> =
            self.cut.values().iter().map(|&v| self.crossing(v, weights)).collect();
        let place = &self.place;
        let found =
            self.cut.cheapest(|v| prices[place[v as usize] as usize].0, weights.rows[after], limits)?;
        let mut taken = Taken {
            loads: vec![0.0; self.rows.len()],
            kept: 0.0,
            stored: vec![0.0; self.available.capacity.len()],
        };
        taken.loads[Rows::PROGRAM_BEFORE] = self.before;
        taken.loads[after] = self.after + found.again;
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
        let work = weights.rows[Rows::PROGRAM_BEFORE] * self.before
            + weights.rows[after] * self.after
            + weights.rows[lighter] * self.either;
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
        let whole = self.before + self.after + self.either;
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
            let (height, proposed) = best_weights(self.rows, &known, &self.available);
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
    let n_nodes = flat.n_nodes();
    let base = problem.base_cost();
    let order = Precedence::in_every_plan(&flat);
    let routes = Routes::new(problem, &flat);
    let mut weights = Weights::first(Rows::new(problem), problem.stores.len());
    let mut tried = vec![false; n_nodes];
    let mut best = (base, n_nodes / 2);
    let mut try_at = |at: usize, best: &mut (f64, usize), limits: &mut Limits| {
        if at >= n_nodes || std::mem::replace(&mut tried[at], true) || best.0 >= target {
            return;
        }
        let Some(mut cut) = MovingCut::new(problem, &flat, &order, &routes, at, budget) else {
            *best = (IMPOSSIBLE, at);
            return;
        };
        if !limits.spend(n_nodes as f64 * 8.0) {
            return;
        }
        let bound = cut.bound(&mut weights, target, limits);
        if bound > best.0 {
            *best = (bound, at);
        }
    };
    let step = n_nodes.div_ceil(N_SPREAD).max(1);
    for i in 0..=N_SPREAD {
        let middle = n_nodes / 2;
        for at in [Some(middle + i * step), middle.checked_sub((i + 1) * step)].into_iter().flatten() {
            try_at(at, &mut best, limits);
        }
    }
    let mut step = step.div_ceil(2);
    while best.0 < target && limits.spend(0.0) {
        let centre = best.1;
        for at in [centre.checked_sub(step), Some(centre + step)].into_iter().flatten() {
            try_at(at, &mut best, limits);
        }
        if best.1 == centre {
            if step == 1 {
                break;
            }
            step /= 2;
        }
    }
    best.0.min(target)
}
