//! Checks that a schedule computes what the original graph computes. Shares no code with the rewriter.
//!
//! The argument: give every value of the schedule the original value it stands for (a clone's output stands for the
//! same output of its origin). If every node that runs has its origin's op and reads, input by input, values that
//! stand for its origin's inputs, then by induction over the steps every value holds the bits of what it stands for,
//! since ops are functions of their inputs, their attributes and the step's key. What remains: inputs are live when
//! read, every node ran, updates ran once, and what must survive the step does; and since kernels write every output,
//! read or not, every clone has all outputs of its origin with their types.
//!
//! Copies to and from stores move bits without changing them: a slot stands for what was copied there, and a value that
//! comes from it stands for the same. A slot is written once, and no slot keeps what a node overwrites.

use super::{Schedule, ScheduleFault, Step};
use crate::graph::{Graph, Node};
use crate::ids::{Id, NodeId, SlotId, ValueId};
use crate::op::Effect;
use std::collections::{HashMap, HashSet};

/// What is in memory now.
#[derive(Default)]
struct Live {
    /// For each live value: the original it stands for, and the value whose storage it lies in.
    values: HashMap<ValueId, (ValueId, ValueId)>,
    /// For each storage: the values that lie in it.
    storages: HashMap<ValueId, Vec<ValueId>>,
}

impl Live {
    /// False when the value was live already.
    fn insert(&mut self, value: ValueId, stands_for: ValueId, storage: ValueId) -> bool {
        self.storages.entry(storage).or_default().push(value);
        self.values.insert(value, (stands_for, storage)).is_none()
    }

    /// False when there is no such storage.
    fn remove_storage(&mut self, storage: ValueId) -> bool {
        let values = self.storages.remove(&storage);
        values.iter().flatten().for_each(|v| {
            self.values.remove(v);
        });
        values.is_some()
    }

    fn stands_for(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).map(|v| v.0)
    }

    fn storage(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).map(|v| v.1)
    }
}

/// Every fault; empty for a right schedule.
pub fn check(original: &Graph, schedule: &Schedule) -> Vec<ScheduleFault> {
    let mut walk = Walk {
        original,
        schedule,
        graph: &schedule.graph,
        faults: Vec::new(),
        live: Live::default(),
        stored: HashMap::new(),
        written: HashSet::new(),
        copied: HashSet::new(),
        has_run: vec![false; schedule.graph.nodes.len()],
        n_runs: vec![0; original.nodes.len()],
    };
    walk.check_sources();
    for (at, step) in schedule.steps.iter().enumerate() {
        match *step {
            Step::Run(node) => walk.run(at, node),
            Step::Free(value) => {
                if !walk.live.remove_storage(value) {
                    walk.faults.push(ScheduleFault::FreesNothing { at, value });
                }
            }
            Step::Out(value, slot) => walk.copy_out(at, value, slot),
            Step::In(slot, value) => walk.copy_in(at, slot, value),
            Step::Discard(slot) => {
                if walk.stored.remove(&slot).is_none() {
                    walk.faults.push(ScheduleFault::SlotEmpty { at, slot });
                }
            }
        }
    }
    walk.check_counts();
    walk.check_survivors();
    walk.faults
}

/// What has happened so far.
struct Walk<'a> {
    original: &'a Graph,
    schedule: &'a Schedule,
    graph: &'a Graph,
    faults: Vec<ScheduleFault>,
    live: Live,
    /// For each slot that holds something: the original it stands for.
    stored: HashMap<SlotId, ValueId>,
    /// Slots that were written, discarded or not.
    written: HashSet<SlotId>,
    /// Values that copies have made.
    copied: HashSet<ValueId>,
    /// By node of the schedule.
    has_run: Vec<bool>,
    /// By node of the original graph.
    n_runs: Vec<usize>,
}

impl Walk<'_> {
    /// Sources are those of the original, and all of them are there at the beginning.
    fn check_sources(&mut self) {
        let (original, graph) = (self.original, self.graph);
        let is_same = |v: ValueId| original.values.get(v) == graph.values.get(v);
        if graph.sources != original.sources || !original.sources.iter().all(|s| is_same(s.value)) {
            self.faults.push(ScheduleFault::OtherSources);
        }
        for source in &original.sources {
            self.live.insert(source.value, source.value, source.value);
        }
        for carried in &self.schedule.carried {
            let (source, slot) = (carried.source, carried.begin);
            let is_state =
                original.sources.iter().any(|s| s.value == source) && original.values[source].kind.is_state();
            if !is_state {
                self.faults.push(ScheduleFault::CarriesNoState { value: source });
            }
            self.live.remove_storage(source);
            self.write(None, slot, source);
        }
    }

    /// A slot gets what stands for an original value.
    fn write(&mut self, at: Option<usize>, slot: SlotId, stands_for: ValueId) {
        match self.schedule.slots.get(slot) {
            None => self.faults.push(ScheduleFault::NoSuchSlot { at, slot }),
            Some(known) if known.of != stands_for => {
                self.faults.push(ScheduleFault::SlotOfOther { at, slot, of: known.of, stands_for });
            }
            Some(_) => {}
        }
        if !self.written.insert(slot) {
            self.faults.push(ScheduleFault::SlotTaken { at, slot });
        }
        self.stored.insert(slot, stands_for);
    }

    fn copy_out(&mut self, at: usize, value: ValueId, slot: SlotId) {
        let stands_for = self.live.stands_for(value).filter(|_| self.live.storage(value) == Some(value));
        match stands_for {
            None => self.faults.push(ScheduleFault::CopiesDead { at, value }),
            Some(stands_for) => self.write(Some(at), slot, stands_for),
        }
    }

    fn copy_in(&mut self, at: usize, slot: SlotId, value: ValueId) {
        let Some(&stands_for) = self.stored.get(&slot) else {
            self.faults.push(ScheduleFault::SlotEmpty { at, slot });
            return;
        };
        let Some(made) = self.graph.values.get(value) else {
            self.faults.push(ScheduleFault::CopyOutOfRange { at, value });
            return;
        };
        // What is carried need not exist, which was reported at the beginning.
        let expected = self.original.values.get(stands_for);
        if expected.is_some_and(|expected| (&made.ty, made.kind) != (&expected.ty, expected.kind)) {
            self.faults.push(ScheduleFault::CopyOfOtherType { at, value, original: stands_for });
        }
        let is_said = self.schedule.copy_of.get(&value) == Some(&stands_for);
        let is_new = self.original.values.get(value).is_none() && self.copied.insert(value);
        if !is_said {
            self.faults.push(ScheduleFault::CopyOfOther { at, slot, value, stands_for });
        }
        if !is_new || !self.live.insert(value, stands_for, value) {
            self.faults.push(ScheduleFault::CopiedAgain { at, value });
        }
    }

    fn run(&mut self, at: usize, id: NodeId) {
        let Some(node) = self.graph.nodes.get(id) else {
            self.faults.push(ScheduleFault::NoSuchNode { at, node: id });
            return;
        };
        let origin_id = node.origin.unwrap_or(id);
        let Some(origin) = self.original.nodes.get(origin_id) else {
            self.faults.push(ScheduleFault::NoSuchOrigin { at, node: id, origin: origin_id });
            return;
        };
        self.n_runs[origin_id.index()] += 1;
        if std::mem::replace(&mut self.has_run[id.index()], true) {
            self.faults.push(ScheduleFault::RunsTwice { at, node: id });
        }
        if node.op != origin.op {
            self.faults.push(ScheduleFault::OtherOp { at, node: id, origin: origin_id });
        }
        self.check_inputs(at, id, node, origin);
        self.check_outputs(at, id, node, origin);

        // What is consumed and viewed follows from the origin, which the graph verifier has seen.
        let def = origin.op.def();
        for (input, _) in def.consumes(&self.original.input_types(origin)) {
            if let Some(storage) = node.inputs.get(input).and_then(|&v| self.live.storage(v)) {
                let overwritten = self.live.stands_for(storage);
                let mut kept: Vec<SlotId> =
                    self.stored.iter().filter(|s| Some(*s.1) == overwritten).map(|s| *s.0).collect();
                kept.sort_unstable();
                let fault = |slot| ScheduleFault::StaysStored { at, node: id, slot };
                self.faults.extend(kept.into_iter().map(fault));
                self.live.remove_storage(storage);
            }
        }
        for (&value, &stands_for) in node.outputs.iter().zip(&origin.outputs) {
            let viewed = node.inputs.first().filter(|_| def.is_view()).and_then(|&x| self.live.storage(x));
            if !self.live.insert(value, stands_for, viewed.unwrap_or(value)) {
                self.faults.push(ScheduleFault::MadeAgain { at, node: id, value });
            }
        }
    }

    fn check_inputs(&mut self, at: usize, id: NodeId, node: &Node, origin: &Node) {
        let (found, expected) = (node.inputs.len(), origin.inputs.len());
        if found != expected {
            self.faults.push(ScheduleFault::OtherNumberOfInputs { at, node: id, found, expected });
        }
        for (&value, &expected) in node.inputs.iter().zip(&origin.inputs) {
            match self.live.stands_for(value) {
                None => self.faults.push(ScheduleFault::NotLive { at, node: id, value }),
                Some(stands_for) if stands_for != expected => {
                    self.faults.push(ScheduleFault::StandsForOther {
                        at,
                        node: id,
                        value,
                        stands_for,
                        expected,
                    });
                }
                Some(_) => {}
            }
        }
    }

    /// Every output exists, says who makes it, and is what the origin makes there, whether somebody reads it or not.
    fn check_outputs(&mut self, at: usize, id: NodeId, node: &Node, origin: &Node) {
        let (found, expected) = (node.outputs.len(), origin.outputs.len());
        if found != expected {
            self.faults.push(ScheduleFault::OtherNumberOfOutputs { at, node: id, found, expected });
        }
        for (position, (&value, &original)) in node.outputs.iter().zip(&origin.outputs).enumerate() {
            let Some(made) = self.graph.values.get(value) else {
                self.faults.push(ScheduleFault::NoSuchValue { at, node: id, value });
                continue;
            };
            if made.producer != Some((id, position)) || self.schedule.copy_of.contains_key(&value) {
                self.faults.push(ScheduleFault::OtherProducer { at, node: id, value });
            }
            let expected = &self.original.values[original];
            if (&made.ty, made.kind) != (&expected.ty, expected.kind) {
                self.faults.push(ScheduleFault::OtherType { at, node: id, value, original });
            }
        }
    }

    /// Every node runs, and updates run once. Views run where they are needed.
    fn check_counts(&mut self) {
        for ((node, origin), &n_runs) in self.original.nodes.enumerate().zip(&self.n_runs) {
            let def = origin.op.def();
            if n_runs == 0 && !def.is_view() {
                self.faults.push(ScheduleFault::NeverRuns { node });
            }
            if n_runs > 1 && def.effect() == Effect::Update {
                self.faults.push(ScheduleFault::UpdatesAgain { node, n_runs });
            }
        }
    }

    /// State and outputs are there at the end.
    fn check_survivors(&mut self) {
        let original = self.original;
        let surviving: HashSet<ValueId> = self.live.values.values().map(|&(original, _)| original).collect();
        let replaced: HashMap<ValueId, ValueId> = original.updates().into_iter().collect();
        let states = original.sources.iter().map(|s| s.value).filter(|&v| original.values[v].kind.is_state());
        for state in states {
            let last = replaced.get(&state).copied().unwrap_or(state);
            let mut carried = self.schedule.carried.iter().filter(|c| c.source == state).peekable();
            let is_there = match carried.peek() {
                None => surviving.contains(&last),
                Some(_) => carried.all(|c| self.stored.get(&c.end) == Some(&last)),
            };
            if !is_there {
                self.faults.push(ScheduleFault::StateLost { state });
            }
        }
        let store = |slot: SlotId| self.schedule.slots.get(slot).map(|slot| slot.store);
        let moved = self.schedule.carried.iter().filter(|c| store(c.begin) != store(c.end));
        let moved = moved.map(|carried| ScheduleFault::CarriedElsewhere { state: carried.source });
        self.faults.extend(moved);
        let (found, expected) = (self.graph.outputs.len(), original.outputs.len());
        if found != expected {
            self.faults.push(ScheduleFault::OtherNumberOfResults { found, expected });
        }
        for (&value, &expected) in self.graph.outputs.iter().zip(&original.outputs) {
            match self.live.stands_for(value) {
                None => self.faults.push(ScheduleFault::ResultLost { value }),
                Some(stands_for) if stands_for != expected => {
                    self.faults.push(ScheduleFault::OtherResult { value, stands_for, expected });
                }
                Some(_) => {}
            }
        }
    }
}
