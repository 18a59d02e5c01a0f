//! The executor: one arena, every buffer where the layout put it, nothing of step size outside.
//!
//! It walks the schedule and calls kernels. Frees cost nothing: the layout has already decided what comes next. It
//! measures what it does: the highest address that any kernel was given is the measured peak, and with `poison` every
//! byte that holds nothing (freed buffers, workspaces, what an earlier step left) is part of a NaN, so that a read of it
//! cannot go unnoticed.

use super::watch::stray_write;
use super::{Arena, Engine, Observer};
use crate::error::Result;
use crate::graph::{Graph, Kind, Node, Source};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::layout::Layout;
use crate::op::{Buffer, Io, Run};
use crate::pipeline::Program;
use crate::rewrite::{Schedule, Step};
use crate::threads::thread_pool;
use remat_plan::Bytes;
use std::time::{Duration, Instant};

/// Four of these are a float that is not a number.
const POISON: u8 = 0xFF;

/// What one step did.
#[derive(Clone, PartialEq, Debug)]
pub struct StepStats {
    /// Wall time of the step.
    pub time: Duration,
    /// The highest address that a kernel was given, as bytes of arena.
    pub peak: Bytes,
    /// Nodes that ran, views not counted.
    pub n_runs: usize,
}

/// A compiled step with its memory.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    workspaces: Workspaces,
    arena: Arena,
    pool: rayon::ThreadPool,
    /// Fill what holds nothing with NaN.
    pub poison: bool,
    /// Check after every kernel that it changed nothing but its outputs and its workspace; copies the arena every time.
    pub watch: bool,
    /// Seconds of the last run of every node, when asked for.
    pub node_times: Option<IdVec<NodeId, Duration>>,
}

impl Executor {
    /// Reserves the arena and starts the threads. Sources are zero until filled.
    pub fn new(program: Program, n_threads: usize) -> Result<Executor> {
        let arena = Arena::new(program.peak())?;
        let pool = thread_pool(n_threads)?;
        let workspaces = workspaces(program.schedule());
        Ok(Executor { program, workspaces, arena, pool, poison: false, watch: false, node_times: None })
    }

    /// What it runs, and where everything lies.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs one training step.
    pub fn step(&mut self, run: &Run, observer: Option<&mut Observer<'_>>) -> StepStats {
        // Kernels split their work over the pool they run in.
        let Executor { program, workspaces, arena, pool, poison, watch, node_times } = self;
        let (schedule, layout) = (program.schedule(), program.layout());
        let (poison, watch, node_times) = (*poison, *watch, node_times.as_mut());
        let mut walk = Walk { schedule, layout, workspaces, arena, poison, watch, node_times, peak: 0 };
        let begin = Instant::now();
        let n_runs = match observer {
            // An observer need not be sendable, so it stays on this thread and only kernels enter the pool.
            Some(observer) => walk.run(run, &mut |kernel| pool.install(kernel), Some(observer)),
            None => pool.install(|| walk.run(run, &mut |kernel| kernel(), None)),
        };
        StepStats { time: begin.elapsed(), peak: Bytes(walk.peak), n_runs }
    }

    /// Runs another program in the same memory and with the same threads, between two steps. Its layout keeps off the
    /// state of the training step (see [`assign_around`](crate::layout::assign_around)) and lies inside the arena.
    pub fn run_other(&mut self, other: &Program, run: &Run) -> StepStats {
        let (schedule, layout) = (other.schedule(), other.layout());
        assert!(layout.arena.0 <= self.arena.len() as u64, "a layout for a larger arena");
        let workspaces = &workspaces(schedule);
        let (poison, watch) = (false, self.watch);
        let Executor { arena, pool, .. } = self;
        let mut walk = Walk { schedule, layout, workspaces, arena, poison, watch, node_times: None, peak: 0 };
        let begin = Instant::now();
        let n_runs = pool.install(|| walk.run(run, &mut |kernel| kernel(), None));
        StepStats { time: begin.elapsed(), peak: Bytes(walk.peak), n_runs }
    }

    /// The inputs of another program's batch, in the same memory.
    pub fn other_batch_mut<'a>(
        &'a mut self,
        other: &'a Program,
    ) -> (&'a Graph, Vec<(&'a Source, &'a mut [u8])>) {
        batch_mut(other, &mut self.arena)
    }

    /// All of its memory.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// All of its memory.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

impl Engine for Executor {
    fn batch_mut(&mut self) -> (&Graph, Vec<(&Source, &mut [u8])>) {
        batch_mut(&self.program, &mut self.arena)
    }

    fn graph(&self) -> &Graph {
        &self.program.schedule().graph
    }

    fn bytes(&self, value: ValueId) -> &[u8] {
        let (offset, bytes) = self.program.range(value);
        self.arena.slice(offset, bytes)
    }

    fn bytes_mut(&mut self, value: ValueId) -> &mut [u8] {
        let (offset, bytes) = self.program.range(value);
        self.arena.slice_mut(offset, bytes)
    }
}

fn batch_mut<'a>(program: &'a Program, arena: &'a mut Arena) -> (&'a Graph, Vec<(&'a Source, &'a mut [u8])>) {
    let graph = &program.schedule().graph;
    let inputs = || graph.sources.iter().filter(|s| graph.values[s.value].kind == Kind::Input);
    let ranges: Vec<(u64, u64)> = inputs().map(|source| program.range(source.value)).collect();
    (graph, inputs().zip(arena.slices_mut(&ranges)).collect())
}

/// Bytes of every node's workspace, so that a step need not ask the ops again.
type Workspaces = IdVec<NodeId, u64>;

fn workspaces(schedule: &Schedule) -> Workspaces {
    schedule.graph.nodes.ids().map(|node| schedule.workspace_bytes(node).0).collect()
}

/// One walk over the schedule.
struct Walk<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    workspaces: &'a Workspaces,
    arena: &'a mut Arena,
    poison: bool,
    watch: bool,
    node_times: Option<&'a mut IdVec<NodeId, Duration>>,
    peak: u64,
}

impl<'a> Walk<'a> {
    fn run(
        &mut self,
        run: &Run,
        call: &mut dyn FnMut(&mut (dyn FnMut() + Send)),
        mut observer: Option<&mut Observer<'_>>,
    ) -> usize {
        let graph = &self.schedule.graph;
        // Storage that an output took over must not be poisoned when the input is freed.
        let mut handed_over: Vec<u64> = Vec::new();
        // The only memory outside the arena: the list of a node's buffers, used again by every node.
        let widest = |n: usize, node: &Node| n.max(node.inputs.len() + node.outputs.len());
        let mut buffers = Vec::with_capacity(graph.nodes.iter().fold(0, widest));
        let mut n_runs = 0;
        if self.poison {
            self.poison_all_but_sources();
        }
        for step in &self.schedule.steps {
            match *step {
                Step::Free(v) => {
                    let offset = self.layout.offset[v].expect("a freed value has a place");
                    if self.poison && !handed_over.contains(&offset) {
                        self.arena.slice_mut(offset, graph.values[v].ty.bytes()).fill(POISON);
                    }
                }
                Step::Run(id) if graph.nodes[id].op.def().is_view() => {}
                Step::Run(id) => {
                    let begin = self.node_times.is_some().then(Instant::now);
                    let before = self.watch.then(|| self.arena.all().to_vec());
                    self.run_node(id, run, &mut buffers, call);
                    if let Some(before) = before {
                        self.check_writes(id, &before);
                    }
                    if let (Some(times), Some(begin)) = (self.node_times.as_deref_mut(), begin) {
                        times[id] = begin.elapsed();
                    }
                    n_runs += 1;
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
        n_runs
    }

    /// Nothing of an earlier step but the sources may be read.
    fn poison_all_but_sources(&mut self) {
        let graph = &self.schedule.graph;
        let range = |value: ValueId| {
            let offset = self.layout.offset[value].expect("a source has a place");
            (offset, offset + graph.values[value].ty.bytes())
        };
        let mut kept: Vec<(u64, u64)> = graph.sources.iter().map(|source| range(source.value)).collect();
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
        let workspace = layout.workspace[id].map(|offset| offset..offset + self.workspaces[id]);
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
            self.arena.slice_mut(offset, self.workspaces[id]).fill(POISON);
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
                let bytes = self.workspaces[id];
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
