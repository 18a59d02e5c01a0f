//! The policy of μ-TWO as the paper prints it, kept as a baseline; with stores swaps.rs has the other branch.
//!
//! Activations (values made in forward and read later) are dropped in order of bytes / total recompute time until the
//! paper's own simulator says that the budget is met. That simulator charges a recompute only for the value itself,
//! not for the temporaries of its chain, so it is too optimistic; the counts of repeated recomputes follow the
//! paper's two procedures, which disagree with each other. The schedule is executable and its true peak is
//! reported: where that exceeds the budget the answer is infeasible, with what the paper believed.
//! Time: O(activations * n). Source and defects: docs/planners/mu-two-literal.md.

mod swaps;

use crate::answer::outcome;
use crate::outcome::{Outcome, StopReason, Why};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, NONE};
use crate::schedule::gaps::{Gap, drop_at_the_turn, keep_all, schedule};
use crate::spec::Phase;
use crate::units::Bytes;
use std::collections::BTreeSet;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let is_forward: Vec<bool> = problem.nodes.iter().map(|node| node.phase == Phase::Forward).collect();
    if !problem.stores.is_empty() {
        return swaps::plan(problem, request, &is_forward);
    }
    let flat = Flat::new(problem);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let (dropped, believed) = policy(&flat, &is_forward, budget);

    let mut gaps = keep_all(&flat);
    for &v in &dropped {
        drop_at_the_turn(&flat, &is_forward, v, &mut gaps, Gap::Drop);
    }
    let Some(schedule) = schedule(&flat, &gaps) else {
        let why = "a recompute reads a parameter after its update, which the paper does not model";
        // There is no schedule to measure; what remains is to keep everything, which does not fit.
        let keep_all = believed_memory(&flat).into_iter().max().unwrap_or(flat.fixed);
        return Outcome::Infeasible {
            lowest_peak: Bytes(keep_all.max(0) as u64),
            why: Why::NotApplicable(why.into()),
        };
    };
    let peak = flat.measure(&schedule.computes, &mut Vec::new()).peak.max(0) as u64;
    if peak <= request.budget.0 || schedule.computes.is_empty() {
        outcome(problem, request, "mu-two-literal", &schedule.computes, StopReason::BudgetMet)
    } else if believed <= budget {
        Outcome::Infeasible {
            lowest_peak: Bytes(peak),
            why: Why::Mispredicted { believed: Bytes(believed as u64) },
        }
    } else {
        Outcome::Infeasible { lowest_peak: Bytes(peak), why: Why::NotReached }
    }
}

/// A candidate or chosen activation, in the paper's terms.
struct Activation {
    value: usize,
    /// Kept activations and inputs from which it is recomputed.
    sources: BTreeSet<usize>,
    recompute_time: f64,
    total_recompute_time: f64,
    last_forward: usize,
    first_backward: usize,
    last_backward: usize,
}

impl Activation {
    /// Whether a dropped activation is in memory again when node `n` runs: from its first to its last backward use.
    fn is_resident_at(&self, n: usize) -> bool {
        (self.first_backward..=self.last_backward).contains(&n)
    }

    fn ratio(&self, flat: &Flat) -> f64 {
        flat.bytes[self.value] as f64 / self.total_recompute_time
    }
}

/// Algorithm B, recompute branch: the values to drop, and the peak that the paper's simulator then sees.
fn policy(flat: &Flat, is_forward: &[bool], budget: i64) -> (Vec<usize>, i64) {
    let mut memory = believed_memory(flat);
    let mut candidates = activations(flat, is_forward);
    let mut chosen: Vec<Activation> = Vec::new();
    loop {
        let peak = memory.iter().copied().max().unwrap_or(flat.fixed);
        // The first of equals wins, as in the paper's argmax over a list.
        let best = candidates
            .iter()
            .enumerate()
            .reduce(|best, next| if next.1.ratio(flat) > best.1.ratio(flat) { next } else { best })
            .map(|(at, _)| at);
        let Some(best) = best.filter(|_| peak > budget) else {
            return (chosen.iter().map(|activation| activation.value).collect(), peak);
        };
        let taken = candidates.remove(best);
        // Where backward begins before forward has ended, an activation may have no idle time at all.
        let idle = memory.get_mut(taken.last_forward + 1..taken.first_backward).unwrap_or_default();
        idle.iter_mut().for_each(|used| *used -= flat.bytes[taken.value]);
        let count = update_chosen(&mut chosen, &taken);
        update_candidates(&mut candidates, &chosen, &taken, count);
        chosen.push(taken);
    }
}

/// Algorithm E: what was recomputed from `taken` is now recomputed from its sources. Totals are not refreshed.
fn update_chosen(chosen: &mut [Activation], taken: &Activation) -> f64 {
    let mut count = 1.0;
    for other in chosen {
        if other.sources.remove(&taken.value) {
            other.sources.extend(&taken.sources);
            other.recompute_time += taken.recompute_time;
            count += 1.0;
        }
    }
    count
}

/// Algorithm F, both arms as printed: a candidate that is first read while `taken` is resident keeps it as its source.
fn update_candidates(candidates: &mut [Activation], chosen: &[Activation], taken: &Activation, count: f64) {
    for candidate in candidates {
        let is_resident = taken.is_resident_at(candidate.first_backward);
        if !is_resident && candidate.sources.remove(&taken.value) {
            candidate.sources.extend(&taken.sources);
            candidate.recompute_time += taken.recompute_time;
            let n_readers = chosen.iter().filter(|other| other.sources.contains(&candidate.value)).count();
            candidate.total_recompute_time = candidate.recompute_time * (1 + n_readers) as f64;
        }
        if taken.sources.contains(&candidate.value) {
            candidate.total_recompute_time = count * candidate.recompute_time;
        }
    }
}

/// The activations in the order of their making, each with its sources among the others.
fn activations(flat: &Flat, is_forward: &[bool]) -> Vec<Activation> {
    let is_activation: Vec<bool> = (0..flat.n_values())
        .map(|v| {
            flat.producer[v] != NONE
                && is_forward[flat.producer[v] as usize]
                && flat.readers.get(v).iter().any(|&reader| !is_forward[reader as usize])
        })
        .collect();
    let candidates =
        (0..flat.n_values()).filter(|&v| is_activation[v] && !flat.lasting[v] && !flat.is_output[v]);
    candidates.map(|v| activation(flat, is_forward, &is_activation, v)).collect()
}

fn activation(flat: &Flat, is_forward: &[bool], is_activation: &[bool], v: usize) -> Activation {
    let maker = flat.producer[v] as usize;
    let mut sources = BTreeSet::new();
    let mut seen = BTreeSet::from([maker]);
    let mut stack = vec![maker];
    let mut time = 0.0;
    while let Some(node) = stack.pop() {
        time += flat.cost[node];
        for &input in flat.inputs.get(node) {
            let input = input as usize;
            if is_activation[input] || flat.lasting[input] {
                sources.insert(input);
            } else if seen.insert(flat.producer[input] as usize) {
                stack.push(flat.producer[input] as usize);
            }
        }
    }
    let reads = flat.readers.get(v);
    Activation {
        value: v,
        sources,
        recompute_time: time,
        total_recompute_time: time,
        last_forward: reads.iter().rev().find(|&&n| is_forward[n as usize]).map_or(maker, |&n| n as usize),
        first_backward: reads.iter().find(|&&n| !is_forward[n as usize]).map_or(maker, |&n| n as usize),
        last_backward: reads.iter().rev().find(|&&n| !is_forward[n as usize]).map_or(maker, |&n| n as usize),
    }
}

/// Algorithm G with everything kept: the memory at each node of the order. Dropping an activation later takes its bytes
/// off the steps between its last forward and its first backward use, and adds nothing anywhere.
fn believed_memory(flat: &Flat) -> Vec<i64> {
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let mut memory = vec![0; flat.n_nodes()];
    flat.walk_back(&order, &mut Vec::new(), |i, used, _| {
        memory[i] = used;
        true
    });
    memory
}
