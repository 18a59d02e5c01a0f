//! A schedule: a graph with its order of execution, its frees, and its copies to and from stores.

use crate::graph::Graph;
use crate::ids::{IdVec, NodeId, SlotId, ValueId};
use remat_plan::{Bytes, StoreId};
use std::collections::BTreeMap;

/// One step of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Run a node.
    Run(NodeId),
    /// Give the storage of a value back; views of it are gone too.
    Free(ValueId),
    /// Begin to copy a storage to a slot. It stays where it is.
    Out(ValueId, SlotId),
    /// Begin to copy a slot into new memory, which is a value of its own.
    In(SlotId, ValueId),
    /// Give a slot back.
    Discard(SlotId),
}

/// A place in a store for one copy of one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The store.
    pub store: StoreId,
    /// The value of the original graph whose bytes it holds.
    pub of: ValueId,
}

/// State that rests in a store between two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carried {
    /// The source.
    pub source: ValueId,
    /// Where it is at the beginning of the step.
    pub begin: SlotId,
    /// Where what replaces it is at the end: the same place of the same store.
    pub end: SlotId,
}

/// A graph with its order of execution and its frees.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// The original nodes and values, then the clones. Node order is *not* the order of execution. The outputs are
    /// the copies that are live at the end.
    pub graph: Graph,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Everything that is ever in a store.
    pub slots: IdVec<SlotId, Slot>,
    /// State that is in a store at the beginning and at the end.
    pub carried: Vec<Carried>,
    /// For every value that a copy from a store makes: the value of the original graph that it is a copy of.
    pub copy_of: BTreeMap<ValueId, ValueId>,
}

impl Schedule {
    /// A schedule that does nothing yet.
    pub(super) fn of(graph: Graph, n_steps: usize) -> Schedule {
        let steps = Vec::with_capacity(n_steps);
        Schedule { graph, steps, slots: IdVec::new(), carried: Vec::new(), copy_of: BTreeMap::new() }
    }

    /// Nodes in order of execution, views included.
    pub fn runs(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.steps.iter().filter_map(|step| match *step {
            Step::Run(node) => Some(node),
            _ => None,
        })
    }

    /// The node as it is in the original graph.
    pub fn origin(&self, node: NodeId) -> NodeId {
        self.graph.nodes[node].origin.unwrap_or(node)
    }

    /// The value of the original graph that a value stands for.
    pub fn original(&self, value: ValueId) -> ValueId {
        if let Some(&original) = self.copy_of.get(&value) {
            return original;
        }
        match self.graph.values[value].producer {
            Some((node, position)) => self.graph.nodes[self.origin(node)].outputs[position],
            None => value,
        }
    }

    /// Whether a source is in a store, not in memory, when the step begins.
    pub fn is_stored(&self, source: ValueId) -> bool {
        self.carried.iter().any(|carried| carried.source == source)
    }

    /// Scratch memory of a node, as a whole buffer.
    pub fn workspace_bytes(&self, node: NodeId) -> Bytes {
        self.graph.workspace_bytes(node)
    }

    /// Bytes of what is copied to a slot.
    pub fn slot_bytes(&self, slot: SlotId) -> Bytes {
        self.graph.values[self.slots[slot].of].ty.buffer_bytes()
    }

    /// The steps as text, one per line, in the form of [`Graph::to_text`] with lines for frees and copies between.
    pub fn to_text(&self) -> String {
        self.steps.iter().map(|step| self.step_text(step) + "\n").collect()
    }

    /// One step as text.
    pub fn step_text(&self, step: &Step) -> String {
        match *step {
            Step::Run(node) => self.graph.node_text(&self.graph.nodes[node]),
            Step::Free(value) => format!("free {value}"),
            Step::Out(value, slot) => format!("out {value} {slot}"),
            Step::In(slot, value) => format!("in {slot} {value}"),
            Step::Discard(slot) => format!("discard {slot}"),
        }
    }

    /// How many nodes run a second time or more, views not counted.
    pub fn n_recomputes(&self) -> usize {
        let is_recompute = |n: &NodeId| {
            let node = &self.graph.nodes[*n];
            node.origin.is_some() && !node.op.def().is_view()
        };
        self.runs().filter(is_recompute).count()
    }

    /// How many copies to and from stores a step makes.
    pub fn n_copies(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Out(..) | Step::In(..))).count()
    }
}
