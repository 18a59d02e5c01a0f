//! Checks that a schedule computes what the original graph computes. Shares no code with the rewriter.
//!
//! The argument: give every value of the schedule the original value it stands for (a clone's output stands for the
//! same output of its origin). If every node that runs has its origin's op and reads, input by input, values that
//! stand for its origin's inputs, then by induction over the steps every value holds the bits of what it stands for,
//! since ops are functions of their inputs, their attributes and the step's key. What remains: inputs are live when
//! read, every node ran, updates ran once, and what must survive the step does.

use super::{Schedule, Step};
use crate::graph::Graph;
use crate::ids::{Id, NodeId, ValueId};
use crate::op::Effect;
use std::collections::{HashMap, HashSet};

/// What is in memory now.
#[derive(Default)]
struct Live {
    /// For each live value: the original it stands for, and the value whose storage it lies in.
    values: HashMap<ValueId, (ValueId, ValueId)>,
    /// For each storage: the values that lie in it.
    storages: HashMap<ValueId, Vec<ValueId>>,
}

impl Live {
    /// False when the value was live already.
    fn insert(&mut self, value: ValueId, stands_for: ValueId, storage: ValueId) -> bool {
        self.storages.entry(storage).or_default().push(value);
        self.values.insert(value, (stands_for, storage)).is_none()
    }

    /// False when there is no such storage.
    fn remove_storage(&mut self, storage: ValueId) -> bool {
        let values = self.storages.remove(&storage);
        values.iter().flatten().for_each(|v| {
            self.values.remove(v);
        });
        values.is_some()
    }

    fn stands_for(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).map(|v| v.0)
    }

    fn storage(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).map(|v| v.1)
    }
}

/// Every fault; empty for a right schedule.
pub fn check(original: &Graph, schedule: &Schedule) -> Vec<String> {
    let mut faults = Vec::new();
    let graph = &schedule.graph;
    let mut live = Live::default();
    for source in &original.sources {
        live.insert(source.value, source.value, source.value);
    }
    let mut n_runs = vec![0usize; original.nodes.len()];
    for (at, step) in schedule.steps.iter().enumerate() {
        match *step {
            Step::Free(v) => {
                if !live.remove_storage(v) {
                    faults.push(format!("step {at}: frees {v}, which holds no storage now"));
                }
            }
            Step::Run(id) => {
                let Some(node) = graph.nodes.get(id) else {
                    faults.push(format!("step {at}: there is no node {id}"));
                    continue;
                };
                let origin_id = node.origin.unwrap_or(id);
                let Some(origin) = original.nodes.get(origin_id) else {
                    faults.push(format!("step {at}: {id} stands for {origin_id}, which is not in the graph"));
                    continue;
                };
                n_runs[origin_id.index()] += 1;
                if node.op != origin.op {
                    faults.push(format!("step {at}: {id} has another op than {origin_id}"));
                }
                let stands_for: Vec<Option<ValueId>> =
                    node.inputs.iter().map(|&v| live.stands_for(v)).collect();
                if !stands_for.iter().copied().eq(origin.inputs.iter().map(|&v| Some(v))) {
                    faults.push(format!(
                        "step {at}: {id} reads {:?}, standing for {stands_for:?} instead of {:?}",
                        node.inputs, origin.inputs
                    ));
                }
                let def = node.op.def();
                for (input, _) in def.consumes(&graph.input_types(node)) {
                    if let Some(storage) = live.storage(node.inputs[input]) {
                        live.remove_storage(storage);
                    }
                }
                for (&v, &stands_for) in node.outputs.iter().zip(&origin.outputs) {
                    let viewed = node.inputs.first().filter(|_| def.is_view()).and_then(|&x| live.storage(x));
                    if !live.insert(v, stands_for, viewed.unwrap_or(v)) {
                        faults.push(format!("step {at}: {id} makes {v} a second time"));
                    }
                }
            }
        }
    }
    for (id, node) in original.nodes.enumerate() {
        check_count(id, n_runs[id.index()], node.op.def().effect(), node.op.def().is_view(), &mut faults);
    }
    let surviving: HashSet<ValueId> = live.values.values().map(|&(stands_for, _)| stands_for).collect();
    let survives = |v: ValueId| surviving.contains(&v);
    let replaced: HashMap<ValueId, ValueId> = original.updates().into_iter().collect();
    let states = original.sources.iter().map(|s| s.value).filter(|&v| original.values[v].kind.is_state());
    for state in states {
        let last = replaced.get(&state).copied().unwrap_or(state);
        if !survives(last) {
            faults.push(format!("the state `{}` is lost", original.value_name(state)));
        }
    }
    let outputs: Vec<Option<ValueId>> = schedule.graph.outputs.iter().map(|&v| live.stands_for(v)).collect();
    if !outputs.iter().copied().eq(original.outputs.iter().map(|&v| Some(v))) {
        faults.push(format!("the outputs {:?} stand for {outputs:?} at the end", schedule.graph.outputs));
    }
    faults
}

fn check_count(id: NodeId, n_runs: usize, effect: Effect, is_view: bool, faults: &mut Vec<String>) {
    if n_runs == 0 && !is_view {
        faults.push(format!("{id} never runs"));
    }
    if n_runs > 1 && effect == Effect::Update {
        faults.push(format!("{id} is an update and runs {n_runs} times"));
    }
}
