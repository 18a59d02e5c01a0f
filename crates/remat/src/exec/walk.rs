//! One walk over the schedule: kernels in order, copies beside them.

use super::copies::Copies;
use super::watch::stray_write;
use super::{Arena, Observer, StepStats};
use crate::error::Result;
use crate::graph::{Node, Storage};
use crate::ids::{IdVec, NodeId, SlotId, ValueId};
use crate::layout::Layout;
use crate::op::{Buffer, Io, Run};
use crate::rewrite::{Schedule, Step};
use remat_plan::Bytes;
use std::time::{Duration, Instant};

/// Four of these are a float that is not a number.
const POISON: u8 = 0xFF;

/// What a step need not find out again.
#[derive(Debug)]
pub(super) struct Facts {
    /// Bytes of every node's workspace.
    workspaces: IdVec<NodeId, u64>,
    /// Which storage every value lies in.
    storage: Storage,
}

impl Facts {
    pub(super) fn of(schedule: &Schedule) -> Facts {
        let workspaces = schedule.graph.nodes.ids().map(|node| schedule.workspace_bytes(node).0).collect();
        Facts { workspaces, storage: Storage::compute(&schedule.graph) }
    }
}

/// One walk over the schedule.
pub(super) struct Walk<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) layout: &'a Layout,
    pub(super) facts: &'a Facts,
    pub(super) arena: &'a mut Arena,
    pub(super) copies: Copies<'a>,
    pub(super) poison: bool,
    pub(super) watch: bool,
    pub(super) node_times: Option<&'a mut IdVec<NodeId, Duration>>,
    pub(super) peak: u64,
    pub(super) n_runs: usize,
}

impl<'a> Walk<'a> {
    /// Carries out all steps. Afterwards no copy is under way, whatever has happened.
    pub(super) fn run(
        &mut self,
        run: &Run,
        call: &mut dyn FnMut(&mut (dyn FnMut() + Send)),
        observer: Option<&mut Observer<'_>>,
    ) -> Result<()> {
        let result = self.steps(run, call, observer);
        let finished = self.copies.finish();
        result.and(finished)
    }

    /// What was done since `begin`.
    pub(super) fn stats(&self, begin: Instant) -> StepStats {
        StepStats {
            time: begin.elapsed(),
            peak: Bytes(self.peak),
            n_runs: self.n_runs,
            copies: self.copies.times(begin),
            stalls: self.copies.stalls,
        }
    }

    fn steps(
        &mut self,
        run: &Run,
        call: &mut dyn FnMut(&mut (dyn FnMut() + Send)),
        mut observer: Option<&mut Observer<'_>>,
    ) -> Result<()> {
        let graph = &self.schedule.graph;
        // Storage that an output took over must not be poisoned when the input is freed.
        let mut handed_over: Vec<u64> = Vec::new();
        // The only memory outside the arena: the list of a node's buffers, used again by every node.
        let widest = |n: usize, node: &Node| n.max(node.inputs.len() + node.outputs.len());
        let mut buffers = Vec::with_capacity(graph.nodes.iter().fold(0, widest));
        if self.poison {
            self.poison_all_but_sources();
        }
        self.count_sources();
        for (at, step) in self.schedule.steps.iter().enumerate() {
            match *step {
                Step::Free(v) => {
                    self.copies.wait_to_write(v)?;
                    let offset = self.layout.offset[v].expect("a freed value has a place");
                    if self.poison && !handed_over.contains(&offset) {
                        self.arena.slice_mut(offset, graph.values[v].ty.bytes()).fill(POISON);
                    }
                }
                Step::Out(v, slot) => self.copy_out(at, v, slot)?,
                Step::In(slot, v) => self.copy_in(at, slot, v)?,
                Step::Discard(slot) => self.copies.discard(slot, self.poison.then_some(POISON))?,
                Step::Run(id) if graph.nodes[id].op.def().is_view() => {}
                Step::Run(id) => {
                    self.wait_for_operands(id)?;
                    let begin = self.node_times.is_some().then(Instant::now);
                    let before = self.watch.then(|| self.arena.all().to_vec());
                    self.run_node(id, run, &mut buffers, call);
                    if let Some(before) = before {
                        self.check_writes(id, &before);
                    }
                    if let (Some(times), Some(begin)) = (self.node_times.as_deref_mut(), begin) {
                        times[id] = begin.elapsed();
                    }
                    self.n_runs += 1;
                    let node = &graph.nodes[id];
                    if self.poison {
                        let taken = self.layout.shared[id].iter();
                        handed_over.clear();
                        handed_over.extend(taken.filter_map(|&(_, o)| self.layout.offset[node.outputs[o]]));
                    }
                    if let Some(observer) = observer.as_mut() {
                        for (position, &v) in node.outputs.iter().enumerate() {
                            let offset = self.layout.offset[v].expect("an output has a place");
                            let bytes = self.arena.slice(offset, graph.values[v].ty.bytes());
                            observer(self.schedule.origin(id), position, bytes);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Sources were written before the step begins, whether a kernel reads them or not: an input may have views only.
    fn count_sources(&mut self) {
        let graph = &self.schedule.graph;
        for value in graph.sources.iter().map(|source| source.value) {
            if !self.schedule.is_stored(value) {
                let offset = self.layout.offset[value].expect("a source in memory has a place");
                self.peak = self.peak.max(offset + graph.values[value].ty.buffer_bytes().0);
            }
        }
    }

    /// What a node reads has arrived, and what it overwrites is not being copied.
    fn wait_for_operands(&mut self, id: NodeId) -> Result<()> {
        let node = &self.schedule.graph.nodes[id];
        let root = &self.facts.storage.root;
        for &value in &node.inputs {
            self.copies.wait_to_read(root[value])?;
        }
        for &(input, _) in &self.layout.shared[id] {
            self.copies.wait_to_write(root[node.inputs[input]])?;
        }
        if self.watch {
            // Bytes that arrive meanwhile would look like a stray write.
            self.copies.finish()?;
        }
        Ok(())
    }

    /// Address and bytes of a storage that is copied; the copy counts as a use of that memory.
    fn copied(&mut self, value: ValueId) -> (u64, u64) {
        let ty = &self.schedule.graph.values[value].ty;
        let offset = self.layout.offset[value].expect("a value that is copied has a place");
        self.peak = self.peak.max(offset + ty.buffer_bytes().0);
        (offset, ty.bytes())
    }

    fn copy_out(&mut self, at: usize, value: ValueId, slot: SlotId) -> Result<()> {
        let (offset, bytes) = self.copied(value);
        // SAFETY: the layout's checker has shown that the buffer lies inside the arena.
        let address = unsafe { self.arena.base().add(offset as usize) };
        // SAFETY: whatever frees or overwrites the buffer waits for the copy, and no step ends before it has ended. The arena
        // outlives the stores and their threads.
        unsafe { self.copies.out(at, value, slot, (address, bytes)) }
    }

    fn copy_in(&mut self, at: usize, slot: SlotId, value: ValueId) -> Result<()> {
        let (offset, bytes) = self.copied(value);
        if self.poison {
            self.arena.slice_mut(offset, bytes).fill(POISON);
        }
        // SAFETY: as above.
        let address = unsafe { self.arena.base().add(offset as usize) };
        // SAFETY: as above; whatever reads the buffer waits for the copy, and the layout's checker has shown that nothing
        // else lies there.
        unsafe { self.copies.back(at, slot, value, (address, bytes)) }
    }

    /// Nothing of an earlier step but the sources may be read.
    fn poison_all_but_sources(&mut self) {
        let graph = &self.schedule.graph;
        let range = |value: ValueId| {
            let offset = self.layout.offset[value].expect("a source has a place");
            (offset, offset + graph.values[value].ty.bytes())
        };
        let in_memory = graph.sources.iter().filter(|source| !self.schedule.is_stored(source.value));
        let mut kept: Vec<(u64, u64)> = in_memory.map(|source| range(source.value)).collect();
        kept.sort_unstable();
        let end = self.layout.arena.0;
        let mut at = 0;
        for (begin, next) in kept.into_iter().chain([(end, end)]) {
            // An empty source may lie inside another.
            self.arena.slice_mut(at, begin.saturating_sub(at)).fill(POISON);
            at = next.max(at);
        }
    }

    /// Stops if the kernel of a node changed a byte that is not its own.
    fn check_writes(&self, id: NodeId, before: &[u8]) {
        let (graph, layout) = (&self.schedule.graph, self.layout);
        let node = &graph.nodes[id];
        let output = |&v: &ValueId| {
            let offset = layout.offset[v].expect("an output has a place");
            offset..offset + graph.values[v].ty.bytes()
        };
        let workspace = layout.workspace[id].map(|offset| offset..offset + self.facts.workspaces[id]);
        let allowed = node.outputs.iter().map(output).chain(workspace).collect();
        let stray = stray_write(before, self.arena.all(), allowed);
        assert!(
            stray.is_none(),
            "the kernel of {id} ({:?}) changed byte {stray:?} of the arena, which is not its own",
            node.op
        );
    }

    fn run_node(
        &mut self,
        id: NodeId,
        run: &Run,
        buffers: &mut Vec<Buffer<'a>>,
        call: &mut dyn FnMut(&mut (dyn FnMut() + Send)),
    ) {
        let layout = self.layout;
        let graph = &self.schedule.graph;
        let node = &graph.nodes[id];
        if let (true, Some(offset)) = (self.poison, layout.workspace[id]) {
            self.arena.slice_mut(offset, self.facts.workspaces[id]).fill(POISON);
        }
        let base = self.arena.base();
        let shared = &layout.shared[id];
        let mut peak = self.peak;
        let mut buffer = |v: ValueId, is_shared: bool| {
            let ty = &graph.values[v].ty;
            let offset = layout.offset[v].expect("a value in use has a place");
            peak = peak.max(offset + ty.buffer_bytes().0);
            // SAFETY: the layout's checker has shown that the buffer lies inside the arena.
            Buffer { ptr: unsafe { base.add(offset as usize) }, ty, shared: is_shared }
        };
        // Two inputs may be the same storage, so sharing goes by address, not by position.
        let shared_offset =
            |v: ValueId| shared.iter().any(|&(i, _)| layout.offset[node.inputs[i]] == layout.offset[v]);
        buffers.clear();
        buffers.extend(node.inputs.iter().map(|&v| buffer(v, shared_offset(v))));
        let is_shared = |o: usize| shared.iter().any(|pair| pair.1 == o);
        buffers.extend(node.outputs.iter().enumerate().map(|(o, &v)| buffer(v, is_shared(o))));
        let (inputs, outputs) = buffers.split_at(node.inputs.len());
        let workspace = match layout.workspace[id] {
            None => (std::ptr::null_mut(), 0),
            Some(offset) => {
                let bytes = self.facts.workspaces[id];
                peak = peak.max(offset + bytes);
                // SAFETY: as above.
                (unsafe { base.add(offset as usize) }, bytes as usize)
            }
        };
        self.peak = peak;
        // SAFETY: buffers lie inside the arena, are aligned, and overlap only as `shared` says: the layout's checker
        // has shown it, and the arena is borrowed exclusively for the whole step.
        let mut io = unsafe { Io::new(inputs, outputs, workspace, run) };
        call(&mut || node.op.def().run(&mut io));
    }
}
