//! The blocks of a schedule: which bytes are needed from when to when, and which value lies in which.

use super::pack::{Block, lower_bound};
use crate::graph::Storage;
use crate::ids::{IdVec, NodeId, ValueId};
use crate::rewrite::{Schedule, Step};
use crate::store::{DIRECT_BYTES, PAGE};
use std::collections::HashMap;

/// The blocks of a schedule and which value lies in which.
pub(super) struct Lives {
    pub(super) blocks: Vec<Block>,
    pub(super) block_of: IdVec<ValueId, Option<usize>>,
    pub(super) workspace_of: IdVec<NodeId, Option<usize>>,
    /// The first moment that counts: sources that are freed before it only have to be somewhere.
    first: u32,
}

impl Lives {
    pub(super) fn compute(
        schedule: &Schedule,
        storage: &Storage,
        shared: &IdVec<NodeId, Vec<(usize, usize)>>,
    ) -> Lives {
        let graph = &schedule.graph;
        let first = u32::from(frees_before_first_moment(schedule));
        let mut walk = Walk {
            schedule,
            lives: Lives {
                blocks: Vec::new(),
                block_of: IdVec::filled(graph.values.len(), None),
                workspace_of: IdVec::filled(graph.nodes.len(), None),
                first,
            },
            live: IdVec::filled(graph.values.len(), false),
            time: 0,
        };
        for source in graph.sources.iter().filter(|source| !schedule.is_stored(source.value)) {
            walk.begin(source.value);
        }
        walk.time = first;
        for step in &schedule.steps {
            match *step {
                Step::Free(v) => walk.free(v),
                Step::Run(id) if graph.nodes[id].op.def().is_view() => {}
                Step::Run(id) => walk.run(id, storage, &shared[id]),
                Step::In(_, v) => {
                    walk.begin(v);
                    walk.align(v);
                    walk.time += 1;
                }
                Step::Out(v, _) => walk.align(v),
                Step::Discard(_) => {}
            }
        }
        walk.end()
    }

    /// The most bytes at a moment that counts.
    pub(super) fn most_used(&self) -> u64 {
        let counting =
            self.blocks.iter().filter(|block| block.end >= self.first).map(|block| match block.gap {
                // It was there before the first moment only, and then after the gap.
                Some((from, to)) if from <= self.first => Block { start: to + 1, gap: None, ..*block },
                _ => *block,
            });
        lower_bound(&counting.collect::<Vec<_>>())
    }
}

/// Whether something is freed before the first run or copy from a store.
fn frees_before_first_moment(schedule: &Schedule) -> bool {
    let is_moment = |step: &Step| match *step {
        Step::Run(node) => !schedule.graph.nodes[node].op.def().is_view(),
        Step::In(..) => true,
        Step::Free(_) | Step::Out(..) | Step::Discard(_) => false,
    };
    let before = schedule.steps.iter().take_while(|step| !is_moment(step));
    let is_at_the_end = !schedule.steps.iter().any(is_moment);
    !is_at_the_end && before.into_iter().any(|step| matches!(step, Step::Free(_)))
}

struct Walk<'a> {
    schedule: &'a Schedule,
    lives: Lives,
    live: IdVec<ValueId, bool>,
    /// The number of the next moment.
    time: u32,
}

impl Walk<'_> {
    fn begin(&mut self, v: ValueId) {
        let bytes = self.schedule.graph.values[v].ty.buffer_bytes().0;
        self.lives.block_of[v] = Some(self.lives.blocks.len());
        self.live[v] = true;
        self.lives.blocks.push(Block::new(self.time, u32::MAX, bytes));
    }

    fn free(&mut self, v: ValueId) {
        // Storage that an output took over lives on in that output.
        if std::mem::replace(&mut self.live[v], false) {
            let block = self.lives.block_of[v].expect("a live value lies in a block");
            self.lives.blocks[block].end = self.time.saturating_sub(1);
        }
    }

    /// The buffer is copied to or from a store.
    fn align(&mut self, v: ValueId) {
        let block = self.lives.block_of[v].expect("what is copied lies in a block");
        let block = &mut self.lives.blocks[block];
        block.align = if block.bytes >= DIRECT_BYTES { PAGE } else { 1 };
    }

    fn run(&mut self, id: NodeId, storage: &Storage, shared: &[(usize, usize)]) {
        let node = &self.schedule.graph.nodes[id];
        for &(i, o) in shared {
            let root = storage.root[node.inputs[i]];
            self.live[root] = false;
            self.lives.block_of[node.outputs[o]] = self.lives.block_of[root];
        }
        for &v in &node.outputs {
            match self.lives.block_of[v] {
                Some(_) => self.live[v] = true,
                None => self.begin(v),
            }
        }
        let workspace = self.schedule.workspace_bytes(id).0;
        if workspace > 0 {
            self.lives.workspace_of[id] = Some(self.lives.blocks.len());
            self.lives.blocks.push(Block::new(self.time, self.time, workspace));
        }
        self.time += 1;
    }

    fn end(mut self) -> Lives {
        let last = self.time.saturating_sub(1);
        self.lives.blocks.iter_mut().for_each(|b| b.end = b.end.min(last));
        self.join_state();
        self.lives
    }

    /// State that was away in between has one block: it ends the step where it began it.
    fn join_state(&mut self) {
        let graph = &self.schedule.graph;
        if self.schedule.copy_of.is_empty() {
            return;
        }
        let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
        let mut source_of: HashMap<ValueId, ValueId> = states.map(|v| (v, v)).collect();
        let replaced = graph.nodes.iter().filter(|node| node.origin.is_none()).flat_map(|node| {
            let consumed = node.op.def().consumes(&graph.input_types(node)).into_iter();
            consumed.map(|(i, o)| (self.schedule.original(node.inputs[i]), node.outputs[o]))
        });
        for (old, new) in replaced.collect::<Vec<_>>() {
            if let Some(&source) = source_of.get(&old) {
                source_of.insert(new, source);
            }
        }
        let lasting: Vec<ValueId> = graph.values.ids().filter(|&v| self.live[v]).collect();
        for v in lasting {
            let source = source_of.get(&self.schedule.original(v));
            let Some(&source) = source.filter(|&&source| !self.schedule.is_stored(source)) else { continue };
            if let (Some(from), Some(to)) = (self.lives.block_of[source], self.lives.block_of[v])
                && from != to
            {
                self.join(from, to);
            }
        }
    }

    fn join(&mut self, first: usize, second: usize) {
        let blocks = &mut self.lives.blocks;
        let later = std::mem::replace(&mut blocks[second], Block::new(0, 0, 0));
        let block = &mut blocks[first];
        block.gap = (block.end + 1 < later.start).then(|| (block.end + 1, later.start - 1));
        (block.end, block.align) = (later.end, block.align.max(later.align));
        for (_, of) in self.lives.block_of.enumerate_mut() {
            if *of == Some(second) {
                *of = Some(first);
            }
        }
    }
}
