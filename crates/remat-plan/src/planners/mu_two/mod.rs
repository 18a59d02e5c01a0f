//! The policy of μ-TWO with its defects repaired. Where the problem has stores, values are moved, too (moving.rs); this file is
//! about recomputing.
//!
//! Start with everything kept. While the peak exceeds the budget, take a value that is live at the peak step and not
//! used there, the one with the largest ratio of bytes to recompute cost, and drop it in the gap that contains the
//! peak. What the paper gets wrong is right here:
//!
//! - the peak is measured on the real schedule, chain temporaries and the optimizer included: each decision is
//!   simulated exactly, and undone when it makes the peak higher;
//! - only values live at the peak are candidates, so no decision is pure cost;
//! - the cost of a recompute is the cost of all operations it needs together, given what is kept at that point;
//! - a decision that a later one made superfluous is taken back at the end;
//! - a decision that was undone is tried again when no other is left and something has changed since;
//! - a dropped value that a recompute passes through stays until its own use (it is made once), unless that is what
//!   makes the peak: then it is dropped again, as a second decision.
//!
//! Each gap is decided at most twice, and tried at most once between two decisions; a trial costs one simulation,
//! O(n). On problems with many nodes several decisions for the same peak are taken together, and one by one where
//! that fails. Mathematics: docs/planners/mu-two.md.

mod moving;

use crate::answer::{not_reached, outcome};
use crate::outcome::{Outcome, StopReason};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, NONE};
use crate::schedule::gaps::{Gap, Schedule, keep_all, schedule};
use crate::schedule::limits::Limits;

/// From this many nodes on, decisions for one peak are taken together.
const BATCH_FROM_NODES: usize = 3000;
/// A chain with more nodes than this is treated as infinitely expensive: walking it would dominate the planning.
const LONGEST_CHAIN: usize = 300;
/// Work of effort 1: a few seconds, which only problems of many thousands of nodes need.
const UNIT_WORK: f64 = 2e9;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    if !problem.stores.is_empty() {
        return moving::plan(problem, request);
    }
    let flat = Flat::new(problem);
    let mut limits = Limits::new(request, UNIT_WORK);
    let (computes, measure) = greedy(&flat, request.budget.0.min(i64::MAX as u64) as i64, &mut limits);
    if measure.peak as u64 <= request.budget.0 || computes.is_empty() {
        outcome(problem, request, "mu-two", &computes, StopReason::BudgetMet)
    } else {
        not_reached(problem, request, measure.peak)
    }
}

/// The first schedule within the budget, or the one with the lowest peak when greedy runs dry or a limit is reached.
pub(crate) fn greedy(flat: &Flat, budget: i64, limits: &mut Limits) -> (Vec<u32>, Measure) {
    greedy_from(flat, budget, keep_all(flat), limits)
        .expect("a schedule without recomputes needs no overwritten state")
}

/// The same from given decisions on; nothing when these have no schedule.
pub(crate) fn greedy_from(
    flat: &Flat,
    budget: i64,
    mut gaps: Vec<Gap>,
    limits: &mut Limits,
) -> Option<(Vec<u32>, Measure)> {
    let mut scratch = Vec::new();
    let mut now = schedule(flat, &gaps)?;
    let mut measure = flat.measure(&now.computes, &mut scratch);
    let mut chains = Chains::new(flat);
    let mut barred = vec![false; gaps.len()];
    let mut has_changed = false;
    let mut batch = if flat.n_nodes() >= BATCH_FROM_NODES { usize::MAX } else { 1 };

    while measure.peak > budget && flat.n_nodes() > 0 {
        let mut candidates =
            candidates_at_peak(flat, &gaps, &barred, &now, measure.at, &mut chains, &mut scratch);
        let work = chains.take_work() + 10.0 * now.computes.len() as f64;
        if !limits.spend(work) {
            break;
        }
        if candidates.is_empty() {
            // What raised the peak under earlier decisions may lower it under the present ones.
            if !std::mem::take(&mut has_changed) {
                break;
            }
            barred.fill(false);
            continue;
        }
        // Ties go to the earliest gap, so that the result does not depend on the sorting algorithm.
        candidates.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.gap.cmp(&b.gap)));
        let mut excess = measure.peak - budget;
        let mut undo: Vec<(usize, Gap)> = Vec::new();
        // Decisions of one batch do not see each other's chains, so a batch is a small part of the candidates.
        let most = batch.min(candidates.len() / 32).max(1);
        for candidate in candidates.iter().take(most) {
            undo.push((candidate.gap, gaps[candidate.gap]));
            gaps[candidate.gap] = if gaps[candidate.gap] == Gap::Keep { Gap::Share } else { Gap::Drop };
            excess -= candidate.bytes;
            if excess <= 0 {
                break;
            }
        }
        let next = schedule(flat, &gaps).map(|next| {
            let measure = flat.measure(&next.computes, &mut scratch);
            (next, measure)
        });
        match next {
            Some((next, better)) if better.peak <= measure.peak => {
                (now, measure) = (next, better);
                has_changed = true;
            }
            _ => {
                for &(gap, before) in &undo {
                    gaps[gap] = before;
                }
                if undo.len() == 1 {
                    barred[undo[0].0] = true;
                } else {
                    // Some decision of the batch was bad; find it with smaller batches.
                    batch = undo.len() / 2;
                    continue;
                }
            }
        }
        if flat.n_nodes() >= BATCH_FROM_NODES {
            batch = batch.saturating_mul(2).max(2);
        }
    }
    if measure.peak <= budget && flat.n_nodes() < BATCH_FROM_NODES {
        take_back(flat, budget, &mut gaps, &mut now, &mut measure, limits);
    }
    let mut computes = now.computes;
    flat.prune(&mut computes);
    let measure = flat.measure(&computes, &mut scratch);
    Some((computes, measure))
}

/// Keeps dropped gaps again, the most expensive recomputes first, where the budget allows it and it saves cost.
fn take_back(
    flat: &Flat,
    budget: i64,
    gaps: &mut [Gap],
    now: &mut Schedule,
    measure: &mut Measure,
    limits: &mut Limits,
) {
    let mut scratch = Vec::new();
    let mut chains = Chains::new(flat);
    let mut dropped: Vec<(f64, usize)> = Vec::new();
    for v in 0..flat.n_values() {
        for gap in flat.readers.range(v).filter(|&gap| gaps[gap] != Gap::Keep) {
            dropped.push((chains.cost(flat, gaps, v, flat.readers.item(gap)), gap));
        }
    }
    dropped.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, gap) in dropped {
        if !limits.spend(10.0 * now.computes.len() as f64) {
            return;
        }
        let before = std::mem::replace(&mut gaps[gap], Gap::Keep);
        let next = schedule(flat, gaps).map(|next| (flat.measure(&next.computes, &mut scratch), next));
        match next {
            Some((better, next)) if better.peak <= budget && better.cost < measure.cost => {
                (*now, *measure) = (next, better);
            }
            _ => gaps[gap] = before,
        }
    }
}

struct Candidate {
    gap: usize,
    bytes: i64,
    ratio: f64,
}

/// The droppable gaps that contain the peak.
fn candidates_at_peak(
    flat: &Flat,
    gaps: &[Gap],
    barred: &[bool],
    now: &Schedule,
    at: usize,
    chains: &mut Chains,
    scratch: &mut Vec<bool>,
) -> Vec<Candidate> {
    let (running, serves) = (now.computes[at] as usize, now.serves[at]);
    let mut candidates = Vec::new();
    flat.walk_back(&now.computes, scratch, |i, _, needed| {
        if i > at {
            return true;
        }
        for v in (0..flat.n_values()).filter(|&v| needed[v] && !flat.lasting[v] && flat.bytes[v] > 0) {
            if flat.inputs.get(running).contains(&(v as u32)) {
                continue;
            }
            // The gap that is open while node `serves` is being prepared or run.
            let reads = flat.readers.get(v);
            let after = reads.partition_point(|&n| n < serves || (n == serves && running == serves as usize));
            let gap = flat.readers.range(v).start + after;
            if after == reads.len() || barred[gap] || gaps[gap] == Gap::Drop {
                continue;
            }
            let cost = chains.cost(flat, gaps, v, reads[after]);
            candidates.push(Candidate { gap, bytes: flat.bytes[v], ratio: flat.bytes[v] as f64 / cost });
        }
        false
    });
    candidates
}

/// Costs of recomputes: the union of the operations between a value and what is kept.
struct Chains {
    visited: Vec<u32>,
    mark: u32,
    stack: Vec<u32>,
    work: f64,
}

impl Chains {
    fn new(flat: &Flat) -> Chains {
        Chains { visited: vec![0; flat.n_nodes()], mark: 0, stack: Vec::new(), work: 0.0 }
    }

    /// The work since this was last asked.
    fn take_work(&mut self) -> f64 {
        std::mem::take(&mut self.work)
    }

    /// The cost of making `value` again just before node `at`; zero only if every operation on the way is free.
    fn cost(&mut self, flat: &Flat, gaps: &[Gap], value: usize, at: u32) -> f64 {
        self.mark += 1;
        self.work += 8.0;
        self.stack.clear();
        self.stack.push(flat.producer[value]);
        let mut cost = 0.0;
        let mut n_ops = 0;
        while let Some(n) = self.stack.pop() {
            let node = n as usize;
            if std::mem::replace(&mut self.visited[node], self.mark) == self.mark {
                continue;
            }
            cost += flat.cost[node];
            self.work += 10.0;
            n_ops += 1;
            if n_ops > LONGEST_CHAIN {
                return f64::INFINITY;
            }
            for &v in flat.inputs.get(node) {
                if flat.producer[v as usize] != NONE && !is_kept_at(flat, gaps, v as usize, at) {
                    self.stack.push(flat.producer[v as usize]);
                }
            }
        }
        cost
    }
}

fn is_kept_at(flat: &Flat, gaps: &[Gap], v: usize, at: u32) -> bool {
    let reads = flat.readers.get(v);
    let next = reads.partition_point(|&n| n < at);
    flat.lasting[v]
        || if next == reads.len() {
            flat.is_output[v]
        } else {
            matches!(gaps[flat.readers.range(v).start + next], Gap::Keep | Gap::Move(_))
        }
}
