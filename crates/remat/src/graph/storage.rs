//! Which storage a value lies in. Views share the storage of what they view; memory counts storages, not tensors.

use super::Graph;
use crate::ids::{IdVec, ValueId};

/// The root of every value: itself, or for a view the value at the end of its chain of views.
#[derive(Clone, PartialEq, Debug)]
pub struct Storage {
    /// Root of each value.
    pub root: IdVec<ValueId, ValueId>,
}

impl Storage {
    /// Follows every chain of views to its end. In a schedule a view may look at a clone, whose id is larger than its own.
    pub fn compute(graph: &Graph) -> Storage {
        let mut viewed = IdVec::<ValueId, Option<ValueId>>::filled(graph.values.len(), None);
        for node in graph.nodes.iter().filter(|n| n.op.def().is_view()) {
            viewed[node.outputs[0]] = Some(node.inputs[0]);
        }
        let root = graph.values.ids().map(|value| {
            // No chain is longer than there are values, even where a broken schedule closes one to a circle.
            let chain = std::iter::successors(Some(value), |&at| *viewed.get(at)?).take(viewed.len());
            chain.last().unwrap_or(value)
        });
        Storage { root: root.collect() }
    }

    /// True for a value that has storage of its own.
    pub fn is_root(&self, value: ValueId) -> bool {
        self.root[value] == value
    }
}
