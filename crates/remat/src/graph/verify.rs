//! The graph verifier. It returns every fault it finds and trusts nothing that built the graph.
//!
//! What holds in a verified graph:
//! * every id is in range, and `producer` and `outputs` agree with each other;
//! * a value without a producer has exactly one source record, sources stand in id order, and their names are unique;
//! * a node reads only sources and outputs of earlier nodes, and repeats, if it does, an earlier node of the same op;
//! * output types are what the op's type rule gives for the input types;
//! * only state is consumed, each state at most once, and no later node reads what was consumed, through a view or not;
//! * an op that consumes is an update, and an update consumes;
//! * a view reads one value and makes one of the same size;
//! * outputs exist and are not consumed.

use super::{Effect, Graph, Names, Node, Tell, tells};
use crate::ids::{Id, IdVec, NodeId, ValueId};
use std::collections::HashMap;
use std::fmt;

/// One way in which a graph is malformed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum GraphFault {
    /// In a node, or in the lists of sources and outputs.
    NoSuchValue {
        node: Option<NodeId>,
        value: ValueId,
        n_values: usize,
    },
    OtherProducer {
        node: NodeId,
        value: ValueId,
    },
    NotMade {
        value: ValueId,
        producer: NodeId,
    },
    SourcesOutOfOrder {
        value: ValueId,
        before: ValueId,
    },
    SameName {
        value: ValueId,
        other: ValueId,
    },
    SourceWithProducer {
        value: ValueId,
    },
    NoOrigin {
        value: ValueId,
    },
    RepeatsOther {
        node: NodeId,
        origin: NodeId,
    },
    ReadsEarly {
        node: NodeId,
        value: ValueId,
    },
    ReadsReplaced {
        node: NodeId,
        value: ValueId,
        by: NodeId,
    },
    TypeRule {
        node: NodeId,
        message: String,
    },
    OtherTypes {
        node: NodeId,
    },
    UpdateWithoutState {
        node: NodeId,
    },
    ConsumesWithoutUpdate {
        node: NodeId,
    },
    ConsumesNothing {
        node: NodeId,
        input: usize,
        output: usize,
    },
    ConsumesOther {
        node: NodeId,
        value: ValueId,
    },
    ReplacedByOtherType {
        node: NodeId,
        old: ValueId,
        new: ValueId,
    },
    ReplacedTwice {
        node: NodeId,
        value: ValueId,
        by: NodeId,
    },
    NoView {
        node: NodeId,
    },
    OutputLost {
        value: ValueId,
    },
}

tells!(GraphFault);

impl Tell for GraphFault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        use GraphFault as Fault;
        let (node_name, value_name) = (|id| names.node(id), |id| names.value(id));
        if let Some(node) = self.node() {
            write!(f, "{}: ", node_name(node))?;
        }
        match *self {
            Fault::NoSuchValue { value, n_values, .. } => {
                write!(f, "{value} is out of range (there are {n_values} values)")
            }
            Fault::OtherProducer { value, .. } => {
                write!(f, "output {} records another producer", value_name(value))
            }
            Fault::NotMade { value, producer } => {
                write!(f, "{value}: its producer {} does not make it", node_name(producer))
            }
            Fault::SourcesOutOfOrder { value, before } => {
                write!(f, "source {} stands after {}", value_name(value), value_name(before))
            }
            Fault::SameName { value, other } => {
                write!(f, "{} and {} have the same name", value_name(other), value_name(value))
            }
            Fault::SourceWithProducer { value } => {
                write!(f, "source {} has a producer", value_name(value))
            }
            Fault::NoOrigin { value } => write!(f, "{value} is neither a source nor made by a node"),
            Fault::RepeatsOther { origin, .. } => {
                write!(f, "repeats {origin}, which is not an earlier node of the same op")
            }
            Fault::ReadsEarly { value, .. } => write!(f, "reads {} before it is made", value_name(value)),
            Fault::ReadsReplaced { value, by, .. } => {
                write!(f, "reads {} after {} replaced it", value_name(value), node_name(by))
            }
            Fault::TypeRule { ref message, .. } => f.write_str(message),
            Fault::OtherTypes { .. } => f.write_str("output types differ from the type rule"),
            Fault::UpdateWithoutState { .. } => f.write_str("an update must consume state"),
            Fault::ConsumesWithoutUpdate { .. } => f.write_str("only an update may consume state"),
            Fault::ConsumesNothing { input, output, .. } => {
                write!(f, "says that output {output} replaces input {input}, but does not have both")
            }
            Fault::ConsumesOther { value, .. } => {
                write!(f, "consumes {}, which is not state", value_name(value))
            }
            Fault::ReplacedByOtherType { old, new, .. } => {
                write!(f, "{new} cannot replace {}, which has another type", value_name(old))
            }
            Fault::ReplacedTwice { value, by, .. } => {
                write!(f, "{} was already replaced by {}", value_name(value), node_name(by))
            }
            Fault::NoView { .. } => f.write_str("a view has one input and one output of the same size"),
            Fault::OutputLost { value } => {
                write!(f, "output {} does not exist after the step", value_name(value))
            }
        }
    }
}

impl GraphFault {
    /// The node at which it was found, if it is about one.
    pub fn node(&self) -> Option<NodeId> {
        use GraphFault as Fault;
        match *self {
            Fault::NoSuchValue { node, .. } => node,
            Fault::OtherProducer { node, .. }
            | Fault::RepeatsOther { node, .. }
            | Fault::ReadsEarly { node, .. }
            | Fault::ReadsReplaced { node, .. }
            | Fault::TypeRule { node, .. }
            | Fault::OtherTypes { node }
            | Fault::UpdateWithoutState { node }
            | Fault::ConsumesWithoutUpdate { node }
            | Fault::ConsumesNothing { node, .. }
            | Fault::ConsumesOther { node, .. }
            | Fault::ReplacedByOtherType { node, .. }
            | Fault::ReplacedTwice { node, .. }
            | Fault::NoView { node } => Some(node),
            Fault::NotMade { .. }
            | Fault::SourcesOutOfOrder { .. }
            | Fault::SameName { .. }
            | Fault::SourceWithProducer { .. }
            | Fault::NoOrigin { .. }
            | Fault::OutputLost { .. } => None,
        }
    }
}

impl Graph {
    /// Every fault, each with its place; empty for a well-formed graph.
    pub fn verify(&self) -> Vec<GraphFault> {
        let mut faults = self.verify_ids();
        if faults.is_empty() {
            self.verify_sources(&mut faults);
            Walk::new(self, &mut faults).run();
        }
        faults
    }

    /// Range checks come first: the others index by what was checked here.
    fn verify_ids(&self) -> Vec<GraphFault> {
        let mut faults = Vec::new();
        let n_values = self.values.len();
        let in_range = |v: &ValueId| v.index() < n_values;
        for (id, node) in self.nodes.enumerate() {
            for &value in node.inputs.iter().chain(&node.outputs).filter(|v| !in_range(v)) {
                faults.push(GraphFault::NoSuchValue { node: Some(id), value, n_values });
            }
            for (position, &value) in node.outputs.iter().enumerate().filter(|(_, v)| in_range(v)) {
                if self.values[value].producer != Some((id, position)) {
                    faults.push(GraphFault::OtherProducer { node: id, value });
                }
            }
        }
        for (value, made) in self.values.enumerate() {
            if let Some((producer, position)) = made.producer {
                let found = self.nodes.get(producer).and_then(|n| n.outputs.get(position));
                if found != Some(&value) {
                    faults.push(GraphFault::NotMade { value, producer });
                }
            }
        }
        for &value in self.sources.iter().map(|s| &s.value).chain(&self.outputs).filter(|v| !in_range(v)) {
            faults.push(GraphFault::NoSuchValue { node: None, value, n_values });
        }
        faults
    }

    fn verify_sources(&self, faults: &mut Vec<GraphFault>) {
        let mut names = HashMap::new();
        let mut is_source = IdVec::<ValueId, bool>::filled(self.values.len(), false);
        for pair in self.sources.windows(2) {
            let (before, value) = (pair[0].value, pair[1].value);
            if before >= value {
                faults.push(GraphFault::SourcesOutOfOrder { value, before });
            }
        }
        for source in &self.sources {
            let value = source.value;
            is_source[value] = true;
            if let Some(other) = names.insert(source.name.as_str(), value) {
                faults.push(GraphFault::SameName { value, other });
            }
            if self.values[value].producer.is_some() {
                faults.push(GraphFault::SourceWithProducer { value });
            }
        }
        for (value, made) in self.values.enumerate() {
            if made.producer.is_none() && !is_source[value] {
                faults.push(GraphFault::NoOrigin { value });
            }
        }
    }
}

/// The walk over the nodes in order.
struct Walk<'a> {
    graph: &'a Graph,
    faults: &'a mut Vec<GraphFault>,
    is_made: IdVec<ValueId, bool>,
    /// What a value lies on: itself, or what it views.
    lies_on: IdVec<ValueId, ValueId>,
    replaced_by: IdVec<ValueId, Option<NodeId>>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, faults: &'a mut Vec<GraphFault>) -> Walk<'a> {
        let mut is_made = IdVec::filled(graph.values.len(), false);
        for source in &graph.sources {
            is_made[source.value] = true;
        }
        let lies_on = graph.values.ids().collect();
        let replaced_by = IdVec::filled(graph.values.len(), None);
        Walk { graph, faults, is_made, lies_on, replaced_by }
    }

    fn run(mut self) {
        for (id, node) in self.graph.nodes.enumerate() {
            self.visit(id, node);
        }
        for &value in &self.graph.outputs {
            if !self.is_made[value] || self.replaced(value).is_some() {
                self.faults.push(GraphFault::OutputLost { value });
            }
        }
    }

    fn replaced(&self, value: ValueId) -> Option<NodeId> {
        self.replaced_by[self.lies_on[value]]
    }

    fn visit(&mut self, id: NodeId, node: &Node) {
        let graph = self.graph;
        for &value in &node.inputs {
            if !self.is_made[value] {
                self.faults.push(GraphFault::ReadsEarly { node: id, value });
            }
            if let Some(by) = self.replaced(value) {
                self.faults.push(GraphFault::ReadsReplaced { node: id, value, by });
            }
        }
        if let Some(origin) = node.origin {
            let repeated = graph.nodes.get(origin).filter(|_| origin < id);
            if repeated.is_none_or(|repeated| repeated.op != node.op) {
                self.faults.push(GraphFault::RepeatsOther { node: id, origin });
            }
        }
        match node.op.def().infer(&graph.input_types(node)) {
            // What an op says of inputs that it does not take means nothing.
            Err(message) => self.faults.push(GraphFault::TypeRule { node: id, message }),
            Ok(expected) => {
                if !expected.iter().eq(graph.output_types(node).iter().copied()) {
                    self.faults.push(GraphFault::OtherTypes { node: id });
                }
                self.replace_state(id, node);
            }
        }
        if node.op.def().is_view() {
            match (&node.inputs[..], &node.outputs[..]) {
                (&[x], &[y]) if graph.values[x].ty.bytes() == graph.values[y].ty.bytes() => {
                    self.lies_on[y] = self.lies_on[x];
                }
                _ => self.faults.push(GraphFault::NoView { node: id }),
            }
        }
        for &value in &node.outputs {
            self.is_made[value] = true;
        }
    }

    fn replace_state(&mut self, id: NodeId, node: &Node) {
        let values = &self.graph.values;
        let consumes = node.op.def().consumes(&self.graph.input_types(node));
        match (node.op.def().effect(), consumes.is_empty()) {
            (Effect::Update, true) => self.faults.push(GraphFault::UpdateWithoutState { node: id }),
            (Effect::Pure, false) => self.faults.push(GraphFault::ConsumesWithoutUpdate { node: id }),
            (Effect::Update, false) | (Effect::Pure, true) => {}
        }
        for (input, output) in consumes {
            let (Some(&old), Some(&new)) = (node.inputs.get(input), node.outputs.get(output)) else {
                self.faults.push(GraphFault::ConsumesNothing { node: id, input, output });
                continue;
            };
            if !values[old].kind.is_state() {
                self.faults.push(GraphFault::ConsumesOther { node: id, value: old });
            }
            if values[old].ty != values[new].ty {
                self.faults.push(GraphFault::ReplacedByOtherType { node: id, old, new });
            }
            let place = self.lies_on[old];
            if let Some(by) = self.replaced_by[place].replace(id) {
                self.faults.push(GraphFault::ReplacedTwice { node: id, value: old, by });
            }
        }
    }
}
