//! The graph verifier. It returns every fault it finds and trusts nothing that built the graph.
//!
//! What holds in a verified graph:
//! * every id is in range, and `producer` and `outputs` agree with each other;
//! * a value without a producer has exactly one source record, sources stand in id order, and their names are unique;
//! * a node reads only sources and outputs of earlier nodes;
//! * output types are what the op's type rule gives for the input types;
//! * only state is consumed, each state at most once, and no later node reads what was consumed;
//! * an op that consumes is an update, and an update consumes;
//! * a view reads one value and makes one of the same size;
//! * outputs exist and are not consumed.

use super::Graph;
use crate::ids::{Id, IdVec, NodeId, ValueId};
use crate::op::Effect;

impl Graph {
    /// Every fault, each with its place; empty for a well-formed graph.
    pub fn verify(&self) -> Vec<String> {
        let mut faults = self.verify_ids();
        if faults.is_empty() {
            self.verify_sources(&mut faults);
            self.verify_nodes(&mut faults);
        }
        faults
    }

    /// Range checks come first: the others index by what was checked here.
    fn verify_ids(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let in_range = |v: &ValueId| v.index() < self.values.len();
        for (id, node) in self.nodes.enumerate() {
            for v in node.inputs.iter().chain(&node.outputs).filter(|v| !in_range(v)) {
                faults.push(format!("{id}: {v} is out of range (there are {} values)", self.values.len()));
            }
            for (position, &v) in node.outputs.iter().enumerate().filter(|(_, v)| in_range(v)) {
                if self.values[v].producer != Some((id, position)) {
                    faults.push(format!("{id}: output {v} records another producer"));
                }
            }
        }
        for (v, value) in self.values.enumerate() {
            if let Some((node, position)) = value.producer {
                let found = self.nodes.get(node).and_then(|n| n.outputs.get(position));
                if found != Some(&v) {
                    faults.push(format!("{v}: its producer {node} does not make it"));
                }
            }
        }
        for v in self.sources.iter().map(|s| &s.value).chain(&self.outputs).filter(|v| !in_range(v)) {
            faults.push(format!("{v} is out of range (there are {} values)", self.values.len()));
        }
        faults
    }

    fn verify_sources(&self, faults: &mut Vec<String>) {
        let mut names = std::collections::HashSet::new();
        let mut is_source = IdVec::<ValueId, bool>::filled(self.values.len(), false);
        for pair in self.sources.windows(2) {
            if pair[0].value >= pair[1].value {
                faults.push(format!("source {} stands after {}", pair[1].value, pair[0].value));
            }
        }
        for source in &self.sources {
            is_source[source.value] = true;
            if !names.insert(source.name.as_str()) {
                faults.push(format!("two sources are named `{}`", source.name));
            }
            if self.values[source.value].producer.is_some() {
                faults.push(format!("source `{}` has a producer", source.name));
            }
        }
        for (v, value) in self.values.enumerate() {
            if value.producer.is_none() && !is_source[v] {
                faults.push(format!("{v} is neither a source nor made by a node"));
            }
        }
    }

    fn verify_nodes(&self, faults: &mut Vec<String>) {
        let mut defined = IdVec::<ValueId, bool>::filled(self.values.len(), false);
        let mut consumed_by = IdVec::<ValueId, Option<NodeId>>::filled(self.values.len(), None);
        for source in &self.sources {
            defined[source.value] = true;
        }
        for (id, node) in self.nodes.enumerate() {
            let name = self.node_name(id);
            for &v in &node.inputs {
                if !defined[v] {
                    faults.push(format!("{name}: reads {v} before it is made"));
                }
                if let Some(by) = consumed_by[v] {
                    faults.push(format!("{name}: reads {v} after {} replaced it", self.node_name(by)));
                }
            }
            let types = self.input_types(node);
            match node.op.def().infer(&types) {
                Err(message) => faults.push(format!("{name}: {message}")),
                Ok(expected) => {
                    if !expected.iter().eq(self.output_types(node).iter().copied()) {
                        faults.push(format!("{name}: output types differ from the type rule"));
                    }
                }
            }
            let consumes = node.op.def().consumes(&types);
            if consumes.is_empty() == (node.op.def().effect() == Effect::Update) {
                faults.push(format!("{name}: consuming state and being an update must go together"));
            }
            for (input, output) in consumes {
                let (old, new) = (node.inputs[input], node.outputs[output]);
                if !self.values[old].kind.is_state() {
                    faults.push(format!("{name}: consumes {old}, which is not state"));
                }
                if self.values[old].ty != self.values[new].ty {
                    faults.push(format!("{name}: {new} cannot replace {old}, which has another type"));
                }
                if let Some(by) = consumed_by[old] {
                    faults.push(format!("{name}: {old} was already replaced by {}", self.node_name(by)));
                }
                consumed_by[old] = Some(id);
            }
            if node.op.def().is_view() {
                let same_size = node.inputs.len() == 1
                    && node.outputs.len() == 1
                    && self.values[node.inputs[0]].ty.bytes() == self.values[node.outputs[0]].ty.bytes();
                if !same_size {
                    faults.push(format!("{name}: a view has one input and one output of the same size"));
                }
            }
            for &v in &node.outputs {
                defined[v] = true;
            }
        }
        for &v in &self.outputs {
            if !defined[v] || consumed_by[v].is_some() {
                faults.push(format!("output {v} does not exist after the step"));
            }
        }
    }
}
