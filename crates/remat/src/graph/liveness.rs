//! When each storage is made and last used, in the order of the graph's nodes.

use super::{Graph, Phase, Storage};
use crate::ids::{IdVec, NodeId, ValueId};

/// Life of every storage, recorded at its root value.
#[derive(Clone, PartialEq, Debug)]
pub struct Liveness {
    /// The node that makes it; `None` for sources.
    pub made: IdVec<ValueId, Option<NodeId>>,
    /// The last node that reads it; `None` when nothing does.
    pub last_use: IdVec<ValueId, Option<NodeId>>,
    /// The last forward node that reads it.
    pub last_forward_use: IdVec<ValueId, Option<NodeId>>,
    /// The first node after the forward phase that reads it.
    pub first_backward_use: IdVec<ValueId, Option<NodeId>>,
}

impl Liveness {
    /// One pass over the nodes.
    pub fn compute(graph: &Graph, storage: &Storage) -> Liveness {
        let blank = IdVec::filled(graph.values.len(), None);
        let mut live = Liveness {
            made: blank.clone(),
            last_use: blank.clone(),
            last_forward_use: blank.clone(),
            first_backward_use: blank,
        };
        for (id, node) in graph.nodes.enumerate().filter(|(_, n)| !n.op.def().is_view()) {
            for &v in &node.inputs {
                let root = storage.root[v];
                live.last_use[root] = Some(id);
                if node.phase == Phase::Forward {
                    live.last_forward_use[root] = Some(id);
                } else {
                    live.first_backward_use[root].get_or_insert(id);
                }
            }
            for &v in &node.outputs {
                live.made[storage.root[v]] = Some(id);
            }
        }
        live
    }
}
