//! The memory curve: bytes in use while each node of a schedule runs, split by kind.

use super::Storage;
use crate::graph::{Kind, Phase};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::layout::Layout;
use crate::rewrite::{Schedule, Step};
use remat_plan::Bytes;

/// Memory while one node runs.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryPoint {
    /// The node.
    pub node: NodeId,
    /// Its part of the step.
    pub phase: Phase,
    /// Bytes by kind, in the order of [`Kind::ALL`].
    pub by_kind: [Bytes; Kind::ALL.len()],
    /// Scratch memory of the node.
    pub workspace: Bytes,
}

impl MemoryPoint {
    /// All bytes.
    pub fn total(&self) -> Bytes {
        self.by_kind.iter().copied().sum::<Bytes>() + self.workspace
    }
}

/// Memory over the step: one point per node that runs, recomputes included, views not.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryCurve {
    /// In order of execution.
    pub points: Vec<MemoryPoint>,
}

impl MemoryCurve {
    /// Walks the schedule once; buffers that share storage are counted once, under the kind of the newer value.
    pub fn compute(schedule: &Schedule, layout: &Layout) -> MemoryCurve {
        let graph = &schedule.graph;
        let storage = Storage::compute(graph);
        let mut live = IdVec::<ValueId, bool>::filled(graph.values.len(), false);
        let mut by_kind = [Bytes(0); Kind::ALL.len()];
        let slot = |v: ValueId| graph.values[v].kind as usize;
        let bytes = |v: ValueId| graph.values[v].ty.buffer_bytes();
        for source in &graph.sources {
            live[source.value] = true;
            by_kind[slot(source.value)] += bytes(source.value);
        }
        let mut points = Vec::new();
        for &step in &schedule.steps {
            match step {
                Step::Free(v) => {
                    if std::mem::replace(&mut live[v], false) {
                        by_kind[slot(v)] -= bytes(v);
                    }
                }
                Step::Run(id) => {
                    let node = &graph.nodes[id];
                    if node.op.def().is_view() {
                        continue;
                    }
                    // A shared or consumed input hands its bytes over to the output, here and now.
                    for &(input, _) in &layout.shared[id] {
                        let root = storage.root[node.inputs[input]];
                        if std::mem::replace(&mut live[root], false) {
                            by_kind[slot(root)] -= bytes(root);
                        }
                    }
                    for &v in &node.outputs {
                        live[v] = true;
                        by_kind[slot(v)] += bytes(v);
                    }
                    let workspace = schedule.workspace_bytes(id);
                    points.push(MemoryPoint { node: id, phase: node.phase, by_kind, workspace });
                }
            }
        }
        MemoryCurve { points }
    }

    /// The first point with the most memory.
    pub fn peak(&self) -> Option<&MemoryPoint> {
        self.points.iter().rev().max_by_key(|p| p.total())
    }
}
