//! The executor: one arena, every buffer where the layout put it, nothing of step size outside.
//!
//! It [walks](super::walk) the schedule and calls kernels, while threads of their own copy to and from stores. Frees cost
//! nothing: the layout has already decided what comes next. It measures what it does: the highest address that any kernel or
//! copy was given, or that a source lies at, is the measured peak. With `poison` every byte that holds nothing (freed
//! buffers, workspaces, slots, what an earlier step left) is part of a NaN, so that a read of it cannot go unnoticed.

use super::copies::{Copies, CopyTime};
use super::walk::{Facts, Walk};
use super::{Arena, Engine, Observer};
use crate::error::Result;
use crate::graph::{Graph, Kind, Source};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::op::Run;
use crate::pipeline::Program;
use crate::store::{PAGE, Store};
use crate::threads::thread_pool;
use remat_plan::Bytes;
use std::time::{Duration, Instant};

/// What one step did.
#[derive(Clone, PartialEq, Debug)]
pub struct StepStats {
    /// Wall time of the step.
    pub time: Duration,
    /// The highest address that a kernel or a copy was given or that a source lies at, as bytes of arena.
    pub peak: Bytes,
    /// Nodes that ran, views not counted.
    pub n_runs: usize,
    /// Copies to and from stores, in the order of their starts.
    pub copies: Vec<CopyTime>,
    /// How long the program waited for copies.
    pub stalls: Duration,
}

impl StepStats {
    /// Of a step that has not begun.
    pub(crate) fn none() -> StepStats {
        let zero = Duration::ZERO;
        StepStats { time: zero, peak: Bytes(0), n_runs: 0, copies: Vec::new(), stalls: zero }
    }

    /// This step and then another, as one.
    pub(crate) fn add(&mut self, later: StepStats) {
        let shifted = later.copies.into_iter().map(|copy| CopyTime {
            start: copy.start + self.time,
            end: copy.end + self.time,
            ..copy
        });
        self.copies.extend(shifted);
        self.time += later.time;
        self.peak = self.peak.max(later.peak);
        self.n_runs += later.n_runs;
        self.stalls += later.stalls;
    }
}

/// A compiled step with its memory.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    facts: Facts,
    // Dropped before the arena: their threads may still copy into it.
    stores: Vec<Store>,
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
    /// Reserves the arena and the stores and starts the threads. Sources are zero until filled.
    pub fn new(program: Program, n_threads: usize) -> Result<Executor> {
        let opened = program.stores().iter().zip(&program.layout().stores);
        let stores = opened.map(|(setup, &size)| Store::open(setup, size)).collect::<Result<Vec<_>>>()?;
        // What is copied by direct I/O lies on whole pages.
        let arena = match stores.is_empty() {
            true => Arena::new(program.peak())?,
            false => Arena::aligned(program.peak(), PAGE as usize)?,
        };
        let pool = thread_pool(n_threads)?;
        let facts = Facts::of(program.schedule());
        let (poison, watch, node_times) = (false, false, None);
        Ok(Executor { program, facts, stores, arena, pool, poison, watch, node_times })
    }

    /// What the user should know about the stores, where they are not what they promise.
    pub fn warnings(&self) -> Vec<String> {
        self.stores.iter().filter_map(Store::warning).collect()
    }

    /// What it runs, and where everything lies.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs one training step. An error comes from a store; the state is lost then, up to the last checkpoint.
    pub fn step(&mut self, run: &Run, observer: Option<&mut Observer<'_>>) -> Result<StepStats> {
        // Kernels split their work over the pool they run in.
        let Executor { program, facts, stores, arena, pool, poison, watch, node_times } = self;
        let (schedule, layout) = (program.schedule(), program.layout());
        let (poison, watch, node_times) = (*poison, *watch, node_times.as_mut());
        let copies = Copies::new(schedule, layout, stores);
        let mut walk =
            Walk { schedule, layout, facts, arena, copies, poison, watch, node_times, peak: 0, n_runs: 0 };
        let begin = Instant::now();
        let result = match observer {
            // An observer need not be sendable, so it stays on this thread and only kernels enter the pool.
            Some(observer) => walk.run(run, &mut |kernel| pool.install(kernel), Some(observer)),
            None => pool.install(|| walk.run(run, &mut |kernel| kernel(), None)),
        };
        result.map(|()| walk.stats(begin))
    }

    /// Runs another program in the same memory and with the same threads, between two steps. Its layout keeps off the
    /// state of the training step (see [`assign_around`](crate::layout::assign_around)) and lies inside the arena.
    pub fn run_other(&mut self, other: &Program, run: &Run) -> Result<StepStats> {
        let (schedule, layout) = (other.schedule(), other.layout());
        assert!(layout.arena.0 <= self.arena.len() as u64, "a layout for a larger arena");
        let sizes = &self.program.layout().stores;
        let fits = layout.stores.len() <= sizes.len() && layout.stores.iter().zip(sizes).all(|(a, b)| a <= b);
        assert!(fits, "a layout for larger stores");
        let facts = &Facts::of(schedule);
        let (poison, watch) = (false, self.watch);
        let Executor { arena, pool, stores, .. } = self;
        let copies = Copies::new(schedule, layout, stores);
        let node_times = None;
        let mut walk =
            Walk { schedule, layout, facts, arena, copies, poison, watch, node_times, peak: 0, n_runs: 0 };
        let begin = Instant::now();
        pool.install(|| walk.run(run, &mut |kernel| kernel(), None))?;
        Ok(walk.stats(begin))
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

    fn is_in_memory(&self, value: ValueId) -> bool {
        !self.program.schedule().is_stored(value)
    }

    fn read(&self, value: ValueId, first: u64, to: &mut [u8]) -> Result<()> {
        match self.program.stored(value).next() {
            Some((store, offset)) => self.stores[store].read(offset + first, to),
            None => {
                to.copy_from_slice(&self.bytes(value)[first as usize..][..to.len()]);
                Ok(())
            }
        }
    }

    fn write(&mut self, value: ValueId, first: u64, from: &[u8]) -> Result<()> {
        if self.is_in_memory(value) {
            self.bytes_mut(value)[first as usize..][..from.len()].copy_from_slice(from);
            return Ok(());
        }
        let mut places = self.program.stored(value);
        places.try_for_each(|(store, offset)| self.stores[store].write(offset + first, from))
    }
}

fn batch_mut<'a>(program: &'a Program, arena: &'a mut Arena) -> (&'a Graph, Vec<(&'a Source, &'a mut [u8])>) {
    let graph = &program.schedule().graph;
    let inputs = || graph.sources.iter().filter(|s| graph.values[s.value].kind == Kind::Input);
    let ranges: Vec<(u64, u64)> = inputs().map(|source| program.range(source.value)).collect();
    (graph, inputs().zip(arena.slices_mut(&ranges)).collect())
}
