//! PyTorch's way to choose what backward reads: a minimum cut, and a knapsack for budgets in between.
//!
//! In: a problem whose nodes have phases. Out: the forward values that are kept over the turn from forward to
//! backward; everything else that backward reads is recomputed from them, lazily, just before its first use.
//!
//! 1. *Cut.* Between what exists before the step and what the later phases read, every forward value can be cut at
//!    the price of its bytes; values that must not be recomputed can only be cut at or after themselves. The minimum cut is the
//!    smallest set of bytes from which backward can recompute all it needs.
//! 2. *Knapsack.* Of the values that backward reads, some are kept too: those that save the most cost of their makers
//!    within a number of bytes, by dynamic programming over sizes rounded up to [`SLOTS`] steps. These may no
//!    longer be recomputed, and the cut is made again.
//! 3. *Schedule.* This is where we differ: PyTorch leaves the order to others and its budget is a share of the saved
//!    bytes, not a peak. Here every knapsack size is scheduled and measured exactly, and the cheapest one within
//!    the budget is taken.
//!
//! It chooses one saved set at one moment. It never drops a value in forward, twice, or in the middle of
//! backward, so it stops well above the memory floor. Time: O([`N_SIZES`] * (cut + n) + values * [`SLOTS`]).
//! Mathematics: docs/planners/min-cut.md.

use crate::answer::{not_reached, outcome};
use crate::bounds::flow::Network;
use crate::outcome::{Outcome, StopReason};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, NONE};
use crate::schedule::limits::Limits;
use crate::spec::Phase;

/// Resolution of sizes in the knapsack.
const SLOTS: usize = 512;
/// Sizes of the knapsack that are tried.
const N_SIZES: usize = 32;
/// Work of effort 1; only graphs of many thousands of nodes come near it.
const UNIT_WORK: f64 = 2e9;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let flat = Flat::new(problem);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let mut limits = Limits::new(request, UNIT_WORK);
    let (computes, measure) = Choice::new(problem, &flat).cheapest(budget, &mut limits);
    if measure.peak <= budget || computes.is_empty() {
        outcome(problem, request, "min-cut", &computes, StopReason::BudgetMet)
    } else {
        not_reached(problem, request, measure.peak)
    }
}

/// What can be kept over the turn, and what must.
struct Choice<'a> {
    flat: &'a Flat,
    is_forward: Vec<bool>,
    /// Values made in forward that a later phase reads or that are outputs of the problem.
    is_wanted: Vec<bool>,
}

impl<'a> Choice<'a> {
    fn new(problem: &Problem, flat: &'a Flat) -> Choice<'a> {
        let is_forward: Vec<bool> = problem.nodes.iter().map(|node| node.phase == Phase::Forward).collect();
        let is_wanted = (0..flat.n_values())
            .map(|v| {
                let maker = flat.producer[v];
                maker != NONE
                    && is_forward[maker as usize]
                    && (flat.is_output[v] || flat.readers.get(v).iter().any(|&n| !is_forward[n as usize]))
            })
            .collect();
        Choice { flat, is_forward, is_wanted }
    }

    /// The cheapest schedule within the budget over all sizes of the knapsack, or the lowest one.
    fn cheapest(&self, budget: i64, limits: &mut Limits) -> (Vec<u32>, Measure) {
        let order: Vec<u32> = (0..self.flat.n_nodes() as u32).collect();
        let mut scratch = Vec::new();
        let keep_all = self.flat.measure(&order, &mut scratch);
        let mut best = (order, keep_all);
        let no_more = vec![false; self.flat.n_values()];
        if keep_all.peak <= budget {
            return best;
        }
        let Some(smallest) = self.cut(&no_more, limits) else { return best };
        let items: Vec<usize> = (0..self.flat.n_values())
            .filter(|&v| self.is_wanted[v] && !smallest[v] && !self.flat.lasting[v])
            .collect();
        for kept in knapsacks(&items, |v| self.flat.bytes[v], |v| self.price(v)) {
            let mut banned = no_more.clone();
            kept.iter().for_each(|&v| banned[v] = true);
            let Some(saved) = self.cut(&banned, limits) else { break };
            let Some(computes) = self.schedule(&saved) else { continue };
            let measure = self.flat.measure(&computes, &mut scratch);
            if measure.rank(budget) < best.1.rank(budget) {
                best = (computes, measure);
            }
            if !limits.spend(10.0 * best.0.len() as f64) {
                break;
            }
        }
        best
    }

    /// What keeping a value saves: its share of its maker's cost, as PyTorch counts it, without what the maker needs.
    fn price(&self, v: usize) -> f64 {
        let maker = self.flat.producer[v] as usize;
        let n_wanted = self.flat.outputs.get(maker).iter().filter(|&&o| self.is_wanted[o as usize]).count();
        self.flat.cost[maker] / n_wanted.max(1) as f64
    }

    /// The forward values on a minimum cut: kept over the turn. A banned value cannot be recomputed. Nothing when a
    /// limit is reached.
    ///
    /// Vertices: an entry and an exit for each value, joined by an edge of its bytes; the source enters what cannot
    /// be recomputed, what the later phases want leaves for the sink.
    fn cut(&self, banned: &[bool], limits: &mut Limits) -> Option<Vec<bool>> {
        let flat = self.flat;
        let (source, sink) = (2 * flat.n_values() as u32, 2 * flat.n_values() as u32 + 1);
        let (entry, exit) = (|v: usize| 2 * v as u32, |v: usize| 2 * v as u32 + 1);
        let mut network = Network::default();
        for (v, &is_banned) in banned.iter().enumerate() {
            let maker = flat.producer[v];
            let is_made = maker != NONE && self.is_forward[maker as usize];
            // Inputs of the problem stay where they are; values of later phases are no business of this cut.
            if !is_made {
                continue;
            }
            network.add_edge(entry(v), exit(v), flat.bytes[v] as f64);
            if flat.lasting[v] || is_banned {
                network.add_edge(source, entry(v), f64::INFINITY);
            }
            if self.is_wanted[v] {
                network.add_edge(exit(v), sink, f64::INFINITY);
            }
            // A recompute reads the inputs of its node; one that only reads inputs of the problem is free of bytes.
            for &input in flat.inputs.get(maker as usize) {
                let maker = flat.producer[input as usize];
                if maker != NONE && self.is_forward[maker as usize] {
                    network.add_edge(exit(input as usize), entry(v), f64::INFINITY);
                }
            }
        }
        network.seal(2 * flat.n_values() + 2);
        network.max_flow(source, sink, 0.0, limits)?;
        let is_cut = |v: usize| network.is_reached(entry(v)) && !network.is_reached(exit(v));
        Some((0..flat.n_values()).map(|v| flat.lasting[v] || is_cut(v)).collect())
    }

    /// The sequence of computes when only `saved` outlives forward; nothing when a recompute would need state that an
    /// update has overwritten.
    fn schedule(&self, saved: &[bool]) -> Option<Vec<u32>> {
        let flat = self.flat;
        let mut made = Made {
            flat,
            is_wanted: &self.is_wanted,
            available: flat.producer.iter().map(|&maker| maker == NONE).collect(),
            passing: Vec::new(),
            computes: Vec::with_capacity(2 * flat.n_nodes()),
        };
        for n in 0..flat.n_nodes() {
            if !self.is_forward[n] {
                for &v in flat.inputs.get(n) {
                    made.restore(v)?;
                }
            }
            made.computes.push(n as u32);
            made.passing.drain(..).for_each(|v| made.available[v as usize] = false);
            for &v in flat.outputs.get(n) {
                made.available[v as usize] = !self.is_forward[n] || saved[v as usize];
            }
            for &v in flat.consumes.get(n) {
                made.available[v as usize] = false;
            }
        }
        for v in (0..flat.n_values()).filter(|&v| flat.is_output[v]) {
            made.restore(v as u32)?;
        }
        flat.prune(&mut made.computes);
        Some(made.computes)
    }
}

/// The part of a schedule that exists, and what is live after its forward part.
struct Made<'a> {
    flat: &'a Flat,
    is_wanted: &'a [bool],
    available: Vec<bool>,
    /// Values made again for the current node that only served to make others.
    passing: Vec<u32>,
    computes: Vec<u32>,
}

impl Made<'_> {
    /// Makes a value again where it is missing, and first what that needs: depth first with an explicit stack.
    fn restore(&mut self, value: u32) -> Option<()> {
        let flat = self.flat;
        let mut stack = vec![(value, 0usize)];
        while let Some((v, k)) = stack.last_mut() {
            let value = *v as usize;
            if self.available[value] {
                stack.pop();
                continue;
            }
            if flat.lasting[value] {
                return None;
            }
            let maker = flat.producer[value] as usize;
            if let Some(&input) = flat.inputs.get(maker).get(*k) {
                *k += 1;
                stack.push((input, 0));
                continue;
            }
            self.computes.push(maker as u32);
            for &v in flat.outputs.get(maker) {
                self.available[v as usize] = true;
                if !self.is_wanted[v as usize] {
                    self.passing.push(v);
                }
            }
            stack.pop();
        }
        Some(())
    }
}

/// The sets of items of the largest total price for [`N_SIZES`] total sizes, the smallest first: one table answers all.
fn knapsacks(items: &[usize], bytes: impl Fn(usize) -> i64, price: impl Fn(usize) -> f64) -> Vec<Vec<usize>> {
    let total: i64 = items.iter().map(|&v| bytes(v)).sum();
    // Sizes round up, so a set never holds more bytes than its slots allow.
    let slots = |v: usize| (bytes(v) as u128 * SLOTS as u128).div_ceil(total.max(1) as u128) as usize;
    let mut best = vec![0.0f64; SLOTS + 1];
    let mut is_taken = vec![false; items.len() * (SLOTS + 1)];
    for (i, &v) in items.iter().enumerate() {
        for size in (slots(v)..=SLOTS).rev() {
            let with = best[size - slots(v)] + price(v);
            // An item without price is taken only where it is free.
            if with > best[size] || slots(v) == 0 {
                best[size] = with;
                is_taken[i * (SLOTS + 1) + size] = true;
            }
        }
    }
    let set = |mut size: usize| {
        let mut set = Vec::new();
        for (i, &v) in items.iter().enumerate().rev() {
            if is_taken[i * (SLOTS + 1) + size] {
                size -= slots(v);
                set.push(v);
            }
        }
        set
    };
    let mut sets: Vec<Vec<usize>> = (0..=N_SIZES).map(|k| set(k * SLOTS / N_SIZES)).collect();
    sets.dedup();
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knapsack_holds_the_dearest_items_that_fit() {
        let (bytes, price) = ([60, 50, 50, 0], [10.0, 6.0, 6.0, 1.0]);
        let sets = knapsacks(&[0, 1, 2, 3], |v| bytes[v], |v| price[v]);
        let total = |set: &[usize]| set.iter().map(|&v| bytes[v]).sum::<i64>();
        assert_eq!(sets[0], [3], "what has no bytes is always kept");
        let of_100 = sets.iter().rfind(|set| total(set) <= 100).unwrap();
        assert_eq!(of_100, &[3, 2, 1], "two cheaper items beat the most expensive one");
        assert_eq!(total(sets.last().unwrap()), 160, "the largest size holds everything");
    }
}
