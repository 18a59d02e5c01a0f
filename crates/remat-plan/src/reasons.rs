//! Why a node is recomputed: the stretch over which its outputs are dropped, the step that this relieves, and what else
//! could have been dropped there.
//!
//! In: a problem, the steps of a valid plan and the memory at each compute step. Out: one [`Reason`] for each node that runs
//! more than once. Keeping the outputs over the stretch would add their bytes to each of its steps; the step with
//! the most memory decides whether that fits. Time: O(recomputes * steps) for the stretches, plus one walk
//! over the plan for the live sets.

use crate::ids::{NodeId, ValueId};
use crate::plan::{Plan, Step};
use crate::problem::Problem;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Why a node runs again.
#[derive(Clone, PartialEq, Debug)]
pub struct Reason {
    /// The step after which the outputs are dropped.
    pub dropped_at: usize,
    /// The step that makes them again.
    pub again_at: usize,
    /// Bytes that are not held in between.
    pub bytes: Bytes,
    /// The step in between with the most memory, where the bytes would be missed most; none if nothing runs between.
    pub relieved: Option<Relieved>,
}

/// The step that a drop relieves.
#[derive(Clone, PartialEq, Debug)]
pub struct Relieved {
    /// Index into the plan's steps.
    pub at: usize,
    /// The node that runs there.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Memory there in the plan.
    pub used: Bytes,
    /// The cheapest other value that could be dropped there instead, if any: large enough, live, not used at the step.
    pub alternative: Option<Alternative>,
}

/// A value that could be dropped instead.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    /// The value.
    pub value: ValueId,
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// The cost of running its maker once more, without what that reads in turn.
    pub cost: f64,
}

impl Reason {
    /// By how much the budget would be exceeded if the outputs were kept; zero when keeping them would fit.
    pub fn excess(&self, budget: Bytes) -> Bytes {
        let used = self.relieved.as_ref().map_or(Bytes::ZERO, |step| step.used);
        (used + self.bytes).saturating_sub(budget)
    }
}

/// The reason for each node that runs again, taken from its most expensive stretch, the one with the most memory inside.
/// `curve` is the memory at each step that counts, as the simulation gives it.
pub(crate) fn reasons(problem: &Problem, plan: &Plan, curve: &[(usize, Bytes)]) -> BTreeMap<NodeId, Reason> {
    let computes: Vec<(usize, NodeId, Bytes)> = curve
        .iter()
        .filter_map(|&(at, used)| match plan.steps[at] {
            Step::Compute(node) => Some((at, node, used)),
            _ => None,
        })
        .collect();
    let mut reasons = stretches(problem, &plan.steps, &computes);
    let wanted: BTreeSet<usize> =
        reasons.values().filter_map(|reason| Some(reason.relieved.as_ref()?.at)).collect();
    let live = live_sets(problem, plan, &wanted);
    for (node, reason) in &mut reasons {
        if let Some(relieved) = &mut reason.relieved {
            relieved.alternative =
                alternative(problem, *node, relieved.node, &live[&relieved.at], reason.bytes);
        }
    }
    reasons
}

/// The stretches without outputs before every repeated run, of which the tightest is kept for each node.
fn stretches(
    problem: &Problem,
    steps: &[Step],
    computes: &[(usize, NodeId, Bytes)],
) -> BTreeMap<NodeId, Reason> {
    let mut result: BTreeMap<NodeId, Reason> = BTreeMap::new();
    let mut has_run = vec![false; problem.nodes.len()];
    let mut freed_at = vec![0usize; problem.values.len()];
    for (at, &step) in steps.iter().enumerate() {
        let node = match step {
            Step::Free(value) => {
                freed_at[value.index()] = at;
                continue;
            }
            Step::Out(..) | Step::In(..) | Step::Discard(..) => continue,
            Step::Compute(node) => node,
        };
        if !std::mem::replace(&mut has_run[node.index()], true) {
            continue;
        }
        let outputs = &problem.node(node).outputs;
        let Some(dropped_at) = outputs.iter().map(|v| freed_at[v.index()]).min() else { continue };
        let first = computes.partition_point(|&(step, ..)| step <= dropped_at);
        let last = computes.partition_point(|&(step, ..)| step < at);
        // The first of equals, so that the answer does not depend on how ties are compared.
        let tightest = computes[first..last].iter().reduce(|a, b| if b.2 > a.2 { b } else { a });
        let relieved = tightest.map(|&(at, node, used)| Relieved {
            at,
            node,
            name: problem.node(node).name.clone(),
            used,
            alternative: None,
        });
        let bytes = outputs.iter().map(|&v| problem.bytes(v)).sum();
        let reason = Reason { dropped_at, again_at: at, bytes, relieved };
        let used = |reason: &Reason| reason.relieved.as_ref().map(|step| step.used);
        if result.get(&node).is_none_or(|known| used(&reason) > used(known)) {
            result.insert(node, reason);
        }
    }
    result
}

/// The live values before the wanted steps.
fn live_sets(problem: &Problem, plan: &Plan, wanted: &BTreeSet<usize>) -> BTreeMap<usize, BTreeSet<ValueId>> {
    let mut live: BTreeSet<ValueId> = problem.inputs.iter().copied().collect();
    for (value, _) in &plan.stored {
        live.remove(value);
    }
    let mut sets = BTreeMap::new();
    for (at, &step) in plan.steps.iter().enumerate() {
        if wanted.contains(&at) {
            sets.insert(at, live.clone());
        }
        match step {
            Step::Free(value) => {
                live.remove(&value);
            }
            Step::In(value, _) => {
                live.insert(value);
            }
            Step::Out(..) | Step::Discard(..) => {}
            Step::Compute(node) => {
                for value in &problem.node(node).consumes {
                    live.remove(value);
                }
                live.extend(&problem.node(node).outputs);
            }
        }
    }
    sets
}

/// The cheapest value that is live at a step, is not used by the node there, can be made again and frees as much.
fn alternative(
    problem: &Problem,
    dropped: NodeId,
    running: NodeId,
    live: &BTreeSet<ValueId>,
    bytes: Bytes,
) -> Option<Alternative> {
    let candidates = live.iter().filter(|&&value| {
        problem.bytes(value) >= bytes.max(Bytes(1))
            && problem.is_recomputable(value)
            && problem.producer(value) != Some(dropped)
            && !problem.node(running).inputs.contains(&value)
    });
    let price = |value: ValueId| {
        let maker = problem.producer(value).expect("a value that can be made again has a maker");
        problem.node(maker).cost
    };
    let cheapest = candidates.copied().reduce(|a, b| if price(b) < price(a) { b } else { a })?;
    Some(Alternative {
        value: cheapest,
        name: problem.value(cheapest).name.clone(),
        bytes: problem.bytes(cheapest),
        cost: price(cheapest),
    })
}
