//! Checks a layout by walking the schedule over addresses. Shares no code with the code that made it.
//!
//! At every moment the live storages are a set of address ranges. A run may place an output only on free addresses,
//! or exactly on the storage of an input that this run hands over (a consumed state, or an input that the op may
//! overwrite and that is freed before anything else runs). Nothing lies outside the arena, and state ends the step
//! where the next one expects it.

use super::Layout;
use crate::graph::ALIGNMENT;
use crate::ids::ValueId;
use crate::rewrite::{Schedule, Step};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Live address ranges: start to (end, who).
struct Addresses {
    ranges: BTreeMap<u64, (u64, String)>,
    arena: u64,
}

impl Addresses {
    fn occupy(&mut self, start: u64, bytes: u64, who: String, faults: &mut Vec<String>) {
        let end = start + bytes;
        if !start.is_multiple_of(ALIGNMENT) {
            faults.push(format!("{who} at {start} is not aligned"));
        }
        if end > self.arena {
            faults.push(format!("{who} ends at {end}, outside the arena of {} bytes", self.arena));
        }
        if bytes == 0 {
            return;
        }
        if let Some((other_start, (other_end, other))) = self.ranges.range(..end).next_back()
            && *other_end > start
        {
            faults.push(format!("{who} at {start}..{end} overlaps {other} at {other_start}..{other_end}"));
        }
        self.ranges.insert(start, (end, who));
    }

    fn release(&mut self, start: u64) {
        self.ranges.remove(&start);
    }
}

/// Every fault; empty for a right layout.
pub fn check(schedule: &Schedule, layout: &Layout) -> Vec<String> {
    let graph = &schedule.graph;
    let mut faults = Vec::new();
    let mut addresses = Addresses { ranges: BTreeMap::new(), arena: layout.arena.0 };
    // Every value made so far to the value it lies on: itself, or what it views.
    let mut owner: HashMap<ValueId, ValueId> = HashMap::new();
    let mut live: HashSet<ValueId> = HashSet::new();
    let place = |v: ValueId, faults: &mut Vec<String>| -> Option<(u64, u64)> {
        let found = layout.offset[v]
            .map(|offset| (offset, graph.values[v].ty.bytes().div_ceil(ALIGNMENT) * ALIGNMENT));
        if found.is_none() {
            faults.push(format!("{v} has no place"));
        }
        found
    };
    for source in &graph.sources {
        owner.insert(source.value, source.value);
        live.insert(source.value);
        if let Some((start, bytes)) = place(source.value, &mut faults) {
            addresses.occupy(start, bytes, source.name.clone(), &mut faults);
        }
    }
    // Inputs that an output of the running node lies on; they must be freed before the next run.
    let mut handed_over: HashMap<ValueId, String> = HashMap::new();
    for (at, step) in schedule.steps.iter().enumerate() {
        match *step {
            Step::Free(v) => {
                if handed_over.remove(&v).is_none()
                    && let Some((start, _)) = place(v, &mut faults)
                {
                    addresses.release(start);
                }
                live.remove(&v);
            }
            Step::Run(id) => {
                let node = &graph.nodes[id];
                let def = node.op.def();
                let name = graph.node_name(id);
                for who in handed_over.drain().map(|(_, who)| who) {
                    faults.push(format!("step {at}: {who} was overwritten but is still live"));
                }
                for v in &node.inputs {
                    if !owner.get(v).is_some_and(|root| live.contains(root)) {
                        faults.push(format!("step {at}: {name} reads {v}, which is not live"));
                    }
                }
                if def.is_view() {
                    if let Some(&root) = owner.get(&node.inputs[0]) {
                        owner.insert(node.outputs[0], root);
                        if layout.offset[node.outputs[0]] != layout.offset[root] {
                            faults.push(format!("step {at}: the view {name} does not lie on what it views"));
                        }
                    }
                    continue;
                }
                let types = graph.input_types(node);
                let consumed = def.consumes(&types);
                let allowed = def.reuse(&types);
                for pair in &layout.shared[id] {
                    let (input, output) = (node.inputs[pair.0], node.outputs[pair.1]);
                    let root = owner.get(&input).copied().unwrap_or(input);
                    if layout.offset[root] != layout.offset[output] {
                        faults.push(format!("step {at}: {name} shares {root} and {output}, which lie apart"));
                    }
                    if consumed.contains(pair) {
                        live.remove(&root);
                    } else if allowed.contains(pair) {
                        handed_over.insert(root, format!("{root} (by {name})"));
                    } else {
                        faults.push(format!("step {at}: {name} may not overwrite its input {input}"));
                    }
                    if let Some((start, _)) = place(root, &mut faults) {
                        addresses.release(start);
                    }
                }
                for pair in consumed.iter().filter(|pair| !layout.shared[id].contains(pair)) {
                    faults.push(format!(
                        "step {at}: {name} does not overwrite the state {}",
                        node.inputs[pair.0]
                    ));
                }
                for &v in &node.outputs {
                    owner.insert(v, v);
                    live.insert(v);
                    if let Some((start, bytes)) = place(v, &mut faults) {
                        addresses.occupy(start, bytes, format!("{v} (by {name})"), &mut faults);
                    }
                }
                let workspace =
                    def.workspace(&types, &graph.output_types(node)).div_ceil(ALIGNMENT) * ALIGNMENT;
                match layout.workspace[id] {
                    Some(start) => {
                        addresses.occupy(start, workspace, format!("workspace of {name}"), &mut faults);
                        addresses.release(start);
                    }
                    None if workspace > 0 => faults.push(format!("step {at}: {name} has no workspace")),
                    None => {}
                }
            }
        }
    }
    faults
}
