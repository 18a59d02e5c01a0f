//! The swap half of the policy as printed: Algorithms B and C.
//!
//! The activation that is inactive for the longest time is the candidate to swap. Its overhead is what of its copy back cannot be hidden: a
//! walk back from its first backward use over nodes under which no other copy is hidden, not into the peak interval. The copy
//! out is free, the store has room for everything, and the candidate need not be in memory at the peak. The copy back begins at the
//! *prefetch point* where the walk ended, and memory counts it from there. What comes of that is timed and measured exactly.

use super::{Activation, activations, believed_memory, update_candidates, update_chosen};
use crate::answer::outcome_moving;
use crate::outcome::{Outcome, StopReason, Why};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, NONE};
use crate::schedule::gaps::{Gap, Schedule, drop_at_the_turn, keep_all, schedule_moving};
use crate::schedule::moving::timetable::timetable;
use crate::schedule::moving::{Kind, Moving};
use crate::units::Bytes;

pub(super) fn plan(problem: &Problem, request: &Request, is_forward: &[bool]) -> Outcome {
    let moving = Moving::new(problem);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let mut policy = Policy::new(&moving, &Flat::new(problem), is_forward);
    let believed = policy.run(&Flat::new(problem), budget);

    let flat = &moving.flat;
    let mut gaps = keep_all(flat);
    for activation in &policy.recomputed {
        drop_at_the_turn(flat, is_forward, activation.value, &mut gaps, Gap::Drop);
    }
    for swap in &policy.swapped {
        drop_at_the_turn(flat, is_forward, swap.activation.value, &mut gaps, Gap::Move(swap.store));
    }
    let refused = |peak: i64, why: Why| Outcome::Infeasible { lowest_peak: Bytes(peak.max(0) as u64), why };
    let order: Vec<u32> = (0..moving.n_nodes as u32).collect();
    let kept_all = flat.measure(&order, &mut Vec::new()).peak.max(flat.fixed);
    let Some(schedule) = schedule_moving(&moving, &gaps, &vec![NONE; moving.n_values]) else {
        let why = "a recompute reads a parameter after its update, which the paper does not model";
        return refused(kept_all, Why::NotApplicable(why.into()));
    };
    let mut sequence = policy.prefetched(&schedule);
    flat.prune(&mut sequence);
    let peak = flat.measure(&sequence, &mut Vec::new()).peak.max(flat.fixed);
    if peak > budget {
        let is_mispredicted = believed <= budget;
        let why = Why::Mispredicted { believed: Bytes(believed.max(0) as u64) };
        return refused(peak, if is_mispredicted { why } else { Why::NotReached });
    }
    match timetable(&moving, &sequence, budget, 0.0) {
        Some(table) => {
            let stop = StopReason::BudgetMet;
            outcome_moving(problem, request, "mu-two-literal", table, stop, None)
        }
        None => {
            let why = "a store has no room for what moves there, which the paper does not model";
            refused(kept_all, Why::NotApplicable(why.into()))
        }
    }
}

/// An activation that is swapped.
struct Swap {
    activation: Activation,
    store: u32,
    /// The node before which the copy back begins.
    prefetch: usize,
}

struct Policy<'a> {
    moving: &'a Moving<'a>,
    candidates: Vec<Activation>,
    recomputed: Vec<Activation>,
    swapped: Vec<Swap>,
    kept: Vec<i64>,
}

impl<'a> Policy<'a> {
    fn new(moving: &'a Moving<'a>, flat: &Flat, is_forward: &[bool]) -> Policy<'a> {
        Policy {
            moving,
            candidates: activations(flat, is_forward),
            recomputed: Vec::new(),
            swapped: Vec::new(),
            kept: believed_memory(flat),
        }
    }

    /// Algorithm B: decides until the simulated peak is within the budget or nothing is left; that peak.
    fn run(&mut self, flat: &Flat, budget: i64) -> i64 {
        loop {
            let memory = self.simulate(flat);
            let peak = memory.iter().copied().max().unwrap_or(flat.fixed);
            if peak <= budget || self.candidates.is_empty() {
                return peak;
            }
            // The first of equals wins, as in the paper's argmax over a list.
            let largest = |score: &dyn Fn(&Activation) -> f64| {
                let scored = self.candidates.iter().enumerate().map(|(at, one)| (at, score(one)));
                scored.reduce(|best, next| if next.1 > best.1 { next } else { best })
            };
            let swap = largest(&|one| match self.store_of(one.value) {
                Some(_) => inactive_time(flat, one),
                None => -1.0,
            });
            let swap = swap.filter(|&(_, time)| time >= 0.0).map(|(at, _)| at);
            let Some((again, _)) = largest(&|one| one.ratio(flat)) else { return peak };
            let interval = peak_interval(&memory, budget);
            let is_cheaper = swap.is_some_and(|at| {
                let one = &self.candidates[at];
                self.overhead(flat, one, &self.swapped, &interval).0
                    < self.candidates[again].total_recompute_time
            });
            if let Some(at) = swap.filter(|_| is_cheaper) {
                let activation = self.candidates.remove(at);
                let store = self.store_of(activation.value).unwrap_or(0);
                let prefetch = activation.first_backward;
                self.swapped.push(Swap { activation, store, prefetch });
            } else {
                let taken = self.candidates.remove(again);
                let count = update_chosen(&mut self.recomputed, &taken);
                update_candidates(&mut self.candidates, &self.recomputed, &taken, count);
                self.recomputed.push(taken);
            }
            self.place_again(flat, &interval);
        }
    }

    /// The store that the paper would have: the one whose copies back take least.
    fn store_of(&self, v: usize) -> Option<u32> {
        let cost = |s: u32| self.moving.back_cost(v as u32, s);
        self.moving.stores_of(v as u32).min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
    }

    /// Algorithm C: the stall of a swap, and its prefetch point, beside the swaps that have theirs.
    fn overhead(
        &self,
        flat: &Flat,
        one: &Activation,
        placed: &[Swap],
        interval: &std::ops::Range<usize>,
    ) -> (f64, usize) {
        let mut left = match self.store_of(one.value) {
            Some(store) => self.moving.back_cost(one.value as u32, store),
            None => return (f64::INFINITY, one.first_backward),
        };
        let mut point = one.first_backward;
        let earliest = (one.last_forward + 1).min(one.first_backward);
        for n in (earliest..one.first_backward).rev() {
            if left <= 0.0 || interval.contains(&n) {
                break;
            }
            let is_taken =
                placed.iter().any(|other| (other.prefetch..other.activation.first_backward).contains(&n));
            if !is_taken {
                let again = self.recomputed.iter().filter(|other| other.first_backward == n);
                left -= flat.cost[n] + again.map(|other| other.recompute_time).sum::<f64>();
                point = n;
            }
        }
        (left.max(0.0), point)
    }

    /// Gives every swap its prefetch point anew, in the order in which they were chosen.
    fn place_again(&mut self, flat: &Flat, interval: &std::ops::Range<usize>) {
        for at in 0..self.swapped.len() {
            let (_, point) = self.overhead(flat, &self.swapped[at].activation, &self.swapped[..at], interval);
            self.swapped[at].prefetch = point;
        }
    }

    /// Algorithm G: the memory at each node that the paper's simulator sees.
    fn simulate(&self, flat: &Flat) -> Vec<i64> {
        let mut memory = self.kept.clone();
        let recomputed = self.recomputed.iter().map(|one| (one, one.first_backward));
        let swapped = self.swapped.iter().map(|swap| (&swap.activation, swap.prefetch));
        for (one, end) in recomputed.chain(swapped) {
            // Where backward begins before forward has ended, an activation may have no idle time at all.
            let idle = memory.get_mut(one.last_forward + 1..end).unwrap_or_default();
            idle.iter_mut().for_each(|used| *used -= flat.bytes[one.value]);
        }
        memory
    }

    /// The sequence with every copy back at its prefetch point.
    fn prefetched(&self, schedule: &Schedule) -> Vec<u32> {
        let mut early: Vec<Vec<u32>> = vec![Vec::new(); self.moving.n_nodes + 1];
        for swap in &self.swapped {
            let node = self.moving.in_node(swap.activation.value as u32, swap.store);
            early[swap.prefetch].extend(node);
        }
        let is_late = |n: u32, serves: u32| {
            let Kind::In(v, _) = self.moving.kind(n) else { return false };
            let of_value = |swap: &&Swap| swap.activation.value == v as usize;
            let swap = self.swapped.iter().find(of_value);
            swap.is_some_and(|swap| swap.activation.first_backward == serves as usize)
        };
        let mut sequence = Vec::with_capacity(schedule.computes.len());
        let mut next = 0;
        for (&n, &serves) in schedule.computes.iter().zip(&schedule.serves) {
            while next <= serves as usize {
                sequence.append(&mut early[next]);
                next += 1;
            }
            if !is_late(n, serves) {
                sequence.push(n);
            }
        }
        sequence
    }
}

/// The time between the last forward and the first backward use.
fn inactive_time(flat: &Flat, one: &Activation) -> f64 {
    flat.cost.get(one.last_forward + 1..one.first_backward).map_or(0.0, |costs| costs.iter().sum())
}

/// From the first to the last node above the budget.
fn peak_interval(memory: &[i64], budget: i64) -> std::ops::Range<usize> {
    let first = memory.iter().position(|&used| used > budget).unwrap_or(0);
    let last = memory.iter().rposition(|&used| used > budget).map_or(0, |last| last + 1);
    first..last
}
