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
    /// One pass over the nodes in id order. A recompute appended later reads ids that were made before it.
    pub fn compute(graph: &Graph) -> Storage {
        let mut root: IdVec<ValueId, ValueId> = graph.values.ids().collect();
        for node in graph.nodes.iter().filter(|n| n.op.def().is_view()) {
            root[node.outputs[0]] = root[node.inputs[0]];
        }
        Storage { root }
    }

    /// True for a value that has storage of its own.
    pub fn is_root(&self, value: ValueId) -> bool {
        self.root[value] == value
    }
}
