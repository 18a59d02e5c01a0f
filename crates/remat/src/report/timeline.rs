//! The timeline of a program: what runs when, and which storage lives from which run to which.
//!
//! Time counts runs that are not views. The bytes in use while run `i` runs are the sum of all lives that contain `i`
//! plus the run's workspace; that sum is the memory curve, and its maximum is what the layout has to place.
//! O(runs + values).

use super::{CopyRow, copies};
use crate::exec::CopyTime;
use crate::graph::{Graph, Kind, Phase, Storage};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::layout::Layout;
use crate::pipeline::{Prepared, Program};
use crate::rewrite::{Schedule, Step};
use remat_plan::{Bytes, Plan, Problem, SimulationError, simulate_with};
use serde::{Deserialize, Serialize};

/// A program over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// In order of execution.
    pub runs: Vec<TimelineRun>,
    /// In order of their first run.
    pub lives: Vec<Life>,
    /// Copies to and from stores, in the order in which they are begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyRow>,
    /// Where the program waits for copies in the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<TimelineWait>,
}

/// A stretch of time in which nothing runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimelineWait {
    /// The run that begins later because of it; the number of runs for a wait at the end.
    pub run: usize,
    /// What is copied meanwhile.
    pub value: String,
    /// When it begins, in seconds since the beginning of the step.
    pub start: f64,
    /// How long it lasts.
    pub seconds: f64,
}

/// One node as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimelineRun {
    /// Name of the node; a recompute has the name of the node it repeats.
    pub node: String,
    /// What it computes.
    pub op: String,
    /// Module path.
    pub module: String,
    /// Part of the step that the node belongs to; a forward node keeps its phase when it runs again in backward.
    pub phase: Phase,
    /// Whether it has run before in this step.
    pub recompute: bool,
    /// How long it takes.
    pub seconds: f64,
    /// Scratch memory.
    pub workspace_bytes: Bytes,
}

/// One storage while it lives.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Name of the value.
    pub value: String,
    /// Module that made it; empty for sources.
    pub module: String,
    /// What it is for.
    pub kind: Kind,
    /// Size of its buffer.
    pub bytes: Bytes,
    /// Where it lies in the arena.
    pub offset: u64,
    /// The first run during which it exists.
    pub start: usize,
    /// The last run during which it exists.
    pub end: usize,
    /// Whether a recompute made it.
    pub recompute: bool,
}

impl Timeline {
    /// Walks a program whose nodes take as long as they did before planning.
    pub fn predicted(program: &Program, seconds: &IdVec<NodeId, f64>) -> Timeline {
        Timeline::of(program.schedule(), program.layout(), |id| seconds[program.schedule().origin(id)])
    }

    /// The same for a program of this step, with its copies to and from stores.
    pub fn planned(prepared: &Prepared, program: &Program) -> Timeline {
        Timeline::predicted(program, &prepared.seconds)
            .with_copies(&prepared.problem.problem, program.plan(), &[])
            .expect("the plan of a program has passed its checker")
    }

    /// Walks a schedule; `seconds` says how long each of its nodes takes, clones included.
    pub fn of(schedule: &Schedule, layout: &Layout, seconds: impl Fn(NodeId) -> f64) -> Timeline {
        Walk::new(schedule, layout).finish(seconds)
    }

    /// Adds what the plan copies and where it waits. `measured` are the copies of one run of its program, or empty.
    pub fn with_copies(
        self,
        problem: &Problem,
        plan: &Plan,
        measured: &[CopyTime],
    ) -> Result<Timeline, SimulationError> {
        if !plan.uses_stores() {
            return Ok(self);
        }
        let result = simulate_with(problem, &plan.stored, &plan.steps)?;
        let name = |value| problem.value(value).name.clone();
        let (mut n_runs, mut next) = (0, 0);
        let mut waits = Vec::new();
        for wait in &result.waits {
            let passed = plan.steps[next..wait.at].iter();
            n_runs += passed.filter(|step| matches!(step, remat_plan::Step::Compute(_))).count();
            next = wait.at;
            let (value, seconds) = (name(wait.value), wait.end - wait.start);
            waits.push(TimelineWait { run: n_runs, value, start: wait.start, seconds });
        }
        // A step ends when its last copy has ended.
        let running: f64 = self.runs.iter().map(|run| run.seconds).sum();
        let start = running + waits.iter().map(|wait| wait.seconds).sum::<f64>();
        let last = result.transfers.iter().max_by(|a, b| a.end.total_cmp(&b.end));
        if let Some(last) = last.filter(|last| last.end > start) {
            let (value, seconds) = (name(last.value), last.end - start);
            waits.push(TimelineWait { run: self.runs.len(), value, start, seconds });
        }
        Ok(Timeline { copies: copies(problem, plan, measured)?, waits, ..self })
    }

    /// When each run begins, waits included.
    pub fn starts(&self) -> Vec<f64> {
        let mut waits = self.waits.iter().peekable();
        let mut now = 0.0;
        let start = |(number, run): (usize, &TimelineRun)| {
            while let Some(wait) = waits.next_if(|wait| wait.run <= number) {
                now += wait.seconds;
            }
            let start = now;
            now += run.seconds;
            start
        };
        self.runs.iter().enumerate().map(start).collect()
    }

    /// Bytes in use while each run runs.
    pub fn total_bytes(&self) -> Vec<Bytes> {
        self.bytes_where(|_| true)
            .into_iter()
            .zip(&self.runs)
            .map(|(bytes, run)| bytes + run.workspace_bytes)
            .collect()
    }

    /// Bytes of the lives that `wanted` picks, at each run.
    pub fn bytes_where(&self, wanted: impl Fn(&Life) -> bool) -> Vec<Bytes> {
        let mut change = vec![0i64; self.runs.len() + 1];
        for life in self.lives.iter().filter(|life| wanted(life)) {
            change[life.start] += life.bytes.0 as i64;
            change[life.end + 1] -= life.bytes.0 as i64;
        }
        let mut now = 0;
        change[..self.runs.len()]
            .iter()
            .map(|delta| {
                now += delta;
                Bytes(now as u64)
            })
            .collect()
    }

    /// The first run with the most memory.
    pub fn peak(&self) -> Option<(usize, Bytes)> {
        self.total_bytes().into_iter().enumerate().rev().max_by_key(|&(_, bytes)| bytes)
    }

    /// The lives that contain a run, the largest first.
    pub fn live_at(&self, run: usize) -> Vec<&Life> {
        let mut live: Vec<&Life> = self.lives.iter().filter(|l| l.start <= run && run <= l.end).collect();
        live.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.value.cmp(&b.value)));
        live
    }

    /// The first run of each phase that occurs, in order of time. Recomputes do not begin a phase.
    pub fn phase_starts(&self) -> Vec<(Phase, usize)> {
        let first = |phase| {
            self.runs.iter().position(|r| r.phase == phase && !r.recompute).map(|start| (phase, start))
        };
        let mut starts: Vec<_> =
            [Phase::Forward, Phase::Backward, Phase::Optimizer].into_iter().filter_map(first).collect();
        starts.sort_by_key(|&(_, start)| start);
        starts
    }
}

struct Walk<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    storage: Storage,
    /// The open life of each root value.
    open: IdVec<ValueId, Option<usize>>,
    lives: Vec<Life>,
    order: Vec<NodeId>,
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, layout: &'a Layout) -> Walk<'a> {
        let graph = &schedule.graph;
        let storage = Storage::compute(graph);
        let open = IdVec::filled(graph.values.len(), None);
        Walk { schedule, layout, storage, open, lives: Vec::new(), order: Vec::new() }
    }

    fn finish(mut self, seconds: impl Fn(NodeId) -> f64) -> Timeline {
        let graph = &self.schedule.graph;
        for source in graph.sources.iter().filter(|source| !self.schedule.is_stored(source.value)) {
            self.begin(source.value);
        }
        for &step in &self.schedule.steps {
            match step {
                Step::Free(v) => {
                    if let Some(life) = self.open[v].take() {
                        self.lives[life].end = self.order.len().saturating_sub(1);
                        // What came from a store and left before anything ran was there during no run.
                        if self.lives[life].end < self.lives[life].start {
                            self.lives[life].bytes = Bytes(0);
                            self.lives[life].end = self.lives[life].start;
                        }
                    }
                }
                Step::In(_, v) => self.begin(v),
                Step::Out(..) | Step::Discard(_) => {}
                Step::Run(id) if graph.nodes[id].op.def().is_view() => {}
                Step::Run(id) => self.run(id),
            }
        }
        let last = self.order.len().saturating_sub(1);
        for life in &mut self.lives {
            life.end = life.end.min(last);
        }
        // A program without runs has no time in which anything could live.
        if self.order.is_empty() {
            self.lives.clear();
        }
        let runs = self.order.iter().map(|&id| run_row(self.schedule, id, seconds(id))).collect();
        Timeline { runs, lives: self.lives, ..Timeline::default() }
    }

    fn run(&mut self, id: NodeId) {
        let graph = &self.schedule.graph;
        let node = &graph.nodes[id];
        let now = self.order.len();
        for &(input, output) in &self.layout.shared[id] {
            let (root, made) = (self.storage.root[node.inputs[input]], node.outputs[output]);
            let Some(life) = self.open[root].take() else { continue };
            if graph.values[root].kind == graph.values[made].kind && graph.values[root].kind.is_state() {
                // An update writes state where it was: one life, from the first run to the last.
                self.open[made] = Some(life);
            } else {
                self.lives[life].end = now.saturating_sub(1);
                // A storage that was handed over at the run that made it never existed by itself.
                if self.lives[life].start == now {
                    self.lives[life].bytes = Bytes(0);
                    self.lives[life].end = now;
                }
            }
        }
        for &v in &node.outputs {
            if self.open[v].is_none() {
                self.begin(v);
            }
        }
        self.order.push(id);
    }

    fn begin(&mut self, v: ValueId) {
        let graph = &self.schedule.graph;
        let value = &graph.values[v];
        let producer = value.producer.map(|(node, _)| &graph.nodes[node]);
        self.open[v] = Some(self.lives.len());
        self.lives.push(Life {
            value: graph.value_name(self.schedule.original(v)),
            module: producer.map_or_else(String::new, |node| node.scope.clone()),
            kind: value.kind,
            bytes: value.ty.buffer_bytes(),
            offset: self.layout.offset[v].unwrap_or(0),
            start: self.order.len(),
            end: usize::MAX,
            recompute: producer.is_some_and(|node| node.origin.is_some()),
        });
    }
}

fn run_row(schedule: &Schedule, id: NodeId, seconds: f64) -> TimelineRun {
    let graph: &Graph = &schedule.graph;
    let (node, origin) = (&graph.nodes[id], schedule.origin(id));
    TimelineRun {
        node: graph.node_name(origin),
        op: node.op.name().to_owned(),
        module: node.scope.clone(),
        phase: node.phase,
        recompute: node.origin.is_some(),
        seconds,
        workspace_bytes: schedule.workspace_bytes(id),
    }
}
