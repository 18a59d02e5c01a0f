//! A step while it is rewritten: a list of nodes that still name values by the ids of the step it came from.
//!
//! A rewrite replaces, moves or removes nodes of the list; values that nothing makes any more are simply not part of
//! the result. [`Draft::finish`] renumbers everything.

use crate::graph::{Node, Storage, Type};
use crate::ids::{IdVec, ValueId};
use crate::step::TrainingStep;
use std::collections::HashSet;

/// A training step in the course of rewriting.
pub(super) struct Draft<'a> {
    step: &'a TrainingStep,
    /// Nodes in order of execution.
    pub(super) nodes: Vec<Node>,
    /// Which storage a value lies in.
    pub(super) storage: Storage,
    /// Values that must exist: what the host reads and the gradients of parameters.
    fixed: HashSet<ValueId>,
}

/// What makes and what reads each value, by position in the list of nodes.
pub(super) struct Uses {
    /// The node that makes a value.
    pub(super) maker: IdVec<ValueId, Option<usize>>,
    /// The nodes that read a value, in order, each once.
    pub(super) readers: IdVec<ValueId, Vec<usize>>,
}

impl<'a> Draft<'a> {
    pub(super) fn of(step: &'a TrainingStep) -> Draft<'a> {
        let gradients = step.roles.gradients.iter().map(|&(_, gradient)| gradient);
        let fixed = step.graph.outputs.iter().copied().chain(gradients).chain([step.roles.loss]).collect();
        let nodes = step.graph.nodes.iter().cloned().collect();
        Draft { step, nodes, storage: Storage::compute(&step.graph), fixed }
    }

    pub(super) fn ty(&self, value: ValueId) -> &'a Type {
        &self.step.graph.values[value].ty
    }

    pub(super) fn types(&self, values: &[ValueId]) -> Vec<&'a Type> {
        values.iter().map(|&v| self.ty(v)).collect()
    }

    /// True for a value that somebody outside the graph asks for.
    pub(super) fn is_fixed(&self, value: ValueId) -> bool {
        self.fixed.contains(&value)
    }

    /// True for storage that is there from the beginning of the step to its end.
    pub(super) fn is_permanent(&self, value: ValueId) -> bool {
        self.is_fixed(value) || self.step.graph.values[value].kind.is_state()
    }

    /// The makers and readers of all values, in the list of nodes as it is now.
    pub(super) fn uses(&self) -> Uses {
        let n_values = self.step.graph.values.len();
        let mut uses =
            Uses { maker: IdVec::filled(n_values, None), readers: IdVec::filled(n_values, Vec::new()) };
        for (at, node) in self.nodes.iter().enumerate() {
            for &v in &node.outputs {
                uses.maker[v] = Some(at);
            }
            for &v in &node.inputs {
                if uses.readers[v].last() != Some(&at) {
                    uses.readers[v].push(at);
                }
            }
        }
        uses
    }

    /// The rewritten step, with new ids.
    pub(super) fn finish(self) -> TrainingStep {
        let (graph, renamed) = self.step.graph.with_nodes(self.nodes);
        let new = |v: ValueId| renamed[v].expect("a rewrite keeps every value that has a role");
        TrainingStep { roles: self.step.roles.renamed(new), graph }
    }
}
