//! The reference executor: every value has memory of its own, nothing is freed, shared or recomputed.
//!
//! It runs the original graph in its own order with the same kernels, so any difference in a bit is the fault of
//! planning, rewriting, layout or execution. It needs as much memory as all values together.

use super::{Engine, Observer};
use crate::error::Result;
use crate::graph::{Graph, Kind, Source};
use crate::ids::{IdVec, ValueId};
use crate::op::{Buffer, Io, Owned, Run};
use std::collections::HashMap;

/// A training step with all its values.
#[derive(Debug)]
pub struct Reference {
    graph: Graph,
    memory: IdVec<ValueId, Owned>,
    updates: Vec<(ValueId, ValueId)>,
    pool: rayon::ThreadPool,
}

impl Reference {
    /// Allocates every value of the graph.
    pub fn new(graph: Graph, n_threads: usize) -> Result<Reference> {
        let pool = crate::threads::thread_pool(n_threads)?;
        let memory = graph.values.iter().map(|v| Owned::of(&v.ty)).collect();
        let updates = graph.updates();
        Ok(Reference { graph, memory, updates, pool })
    }

    /// Runs one training step; afterwards every value can be read, and state holds what the updates made.
    pub fn step(&mut self, run: &Run, mut observer: Option<&mut Observer<'_>>) {
        for id in self.graph.nodes.ids() {
            let node = &self.graph.nodes[id];
            let workspace_bytes = self.graph.workspace_bytes(id).0 as usize;
            let mut workspace = Owned::zeroed(workspace_bytes);
            let memory = &mut self.memory;
            let mut buffer =
                |v: ValueId| Buffer { ptr: memory[v].address(), ty: &self.graph.values[v].ty, shared: false };
            let inputs: Vec<Buffer<'_>> = node.inputs.iter().map(|&v| buffer(v)).collect();
            let outputs: Vec<Buffer<'_>> = node.outputs.iter().map(|&v| buffer(v)).collect();
            if node.op.def().is_view() {
                let copy = self.memory[node.inputs[0]].clone();
                self.memory[node.outputs[0]] = copy;
            } else {
                let space = (workspace.address(), workspace_bytes);
                // SAFETY: every value and the workspace have memory of their own; inputs and outputs of a node are
                // different values, and `self` is borrowed exclusively.
                let mut io = unsafe { Io::new(&inputs, &outputs, space, run) };
                self.pool.install(|| node.op.def().run(&mut io));
            }
            if let Some(observer) = observer.as_mut() {
                for (position, &v) in self.graph.nodes[id].outputs.iter().enumerate() {
                    observer(id, position, self.bytes(v));
                }
            }
        }
        for &(old, new) in &self.updates {
            self.memory[old] = self.memory[new].clone();
        }
    }
}

impl Engine for Reference {
    fn batch_mut(&mut self) -> (&Graph, Vec<(&Source, &mut [u8])>) {
        let graph = &self.graph;
        let is_input = |s: &&Source| graph.values[s.value].kind == Kind::Input;
        let mut memory: HashMap<ValueId, &mut Owned> = self.memory.enumerate_mut().collect();
        let mut bytes = |s: &Source| memory.remove(&s.value).expect("every source has memory").bytes_mut();
        (graph, graph.sources.iter().filter(is_input).map(|s| (s, bytes(s))).collect())
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn bytes(&self, value: ValueId) -> &[u8] {
        self.memory[value].bytes()
    }

    fn bytes_mut(&mut self, value: ValueId) -> &mut [u8] {
        self.memory[value].bytes_mut()
    }
}
