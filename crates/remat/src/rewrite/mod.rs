//! Carries out a plan on the graph: recomputes become clones, uses are redirected, frees become explicit.
//!
//! In: a training step, its planning problem and a plan. Out: a [`Schedule`]: the same graph with clones appended (an
//! original node or value keeps its id) and the steps in order. The first run of a node is the original; a later one
//! is a clone that records its origin. Readers are redirected to the copy that is live when they run. A view is
//! re-made on the copy it is needed on. O(steps).
//!
//! A copy to a store goes to a *slot* of its own; a copy from one makes a new value, which readers are redirected to like
//! to a clone. A plan says that overwriting a value removes it from every store; the schedule says so with a discard in
//! front of the node that overwrites it, so that the life of every slot can be read off the steps.
//!
//! [`check`](fn@check) verifies the result against the original graph, sharing no code with this file.

mod check;
mod fault;
mod schedule;

pub use check::check;
pub use fault::ScheduleFault;
pub use schedule::{Carried, Schedule, Slot, Step};

use crate::error::{Error, Result};
use crate::graph::{Graph, Storage, Value};
use crate::ids::{Id, IdVec, NodeId, SlotId, ValueId};
use crate::problem::PlanningProblem;
use remat_plan::{Plan, StoreId};
use std::collections::{BTreeMap, HashMap};

/// Carries out `plan` on `graph`. The result has passed [`check`](fn@check).
pub fn apply(graph: &Graph, problem: &PlanningProblem, plan: &Plan) -> Result<Schedule> {
    let mut rewriter = Rewriter {
        original: graph,
        storage: Storage::compute(graph),
        schedule: Schedule::of(graph.clone(), plan.steps.len()),
        current: IdVec::filled(graph.values.len(), None),
        has_run: IdVec::filled(graph.nodes.len(), false),
        views: HashMap::new(),
        stored: BTreeMap::new(),
    };
    for source in &graph.sources {
        rewriter.current[source.value] = Some(source.value);
    }
    let value_of = |v: remat_plan::ValueId| problem.value_of[v.index()];
    let stored: Vec<(ValueId, StoreId)> =
        plan.stored.iter().map(|&(v, store)| (value_of(v), store)).collect();
    let begin: Vec<SlotId> =
        stored.iter().map(|&(source, store)| rewriter.begin_stored(source, store)).collect();
    for step in &plan.steps {
        match *step {
            remat_plan::Step::Compute(n) => rewriter.run(problem.node_of[n.index()]),
            remat_plan::Step::Free(v) => rewriter.free(value_of(v)),
            remat_plan::Step::Out(v, store) => rewriter.copy_out(value_of(v), store),
            remat_plan::Step::In(v, store) => rewriter.copy_in(value_of(v), store),
            remat_plan::Step::Discard(v, store) => rewriter.discard(value_of(v), store),
        }
    }
    let replaced: HashMap<ValueId, ValueId> = graph.updates().into_iter().collect();
    for (&(source, store), begin) in stored.iter().zip(begin) {
        let last = replaced.get(&source).copied().unwrap_or(source);
        // A plan that loses what it carries did not pass its checker; ours finds that nothing came back.
        let end = rewriter.stored.get(&(last, store)).copied().unwrap_or(begin);
        rewriter.schedule.carried.push(Carried { source, begin, end });
    }
    let outputs = graph.outputs.iter().map(|&v| rewriter.resolve(v)).collect();
    rewriter.schedule.graph.outputs = outputs;
    let faults = check(graph, &rewriter.schedule);
    if faults.is_empty() {
        return Ok(rewriter.schedule);
    }
    Err(Error::bug("rewrite", faults.iter().map(|fault| fault.with_names(graph))))
}

struct Rewriter<'a> {
    original: &'a Graph,
    storage: Storage,
    schedule: Schedule,
    /// For each original storage: the copy that is live now.
    current: IdVec<ValueId, Option<ValueId>>,
    has_run: IdVec<NodeId, bool>,
    /// Views made so far: (original view, copy of its root) to the view on that copy.
    views: HashMap<(ValueId, ValueId), ValueId>,
    /// What is in a store, or on its way there: original storage and store to the slot.
    stored: BTreeMap<(ValueId, StoreId), SlotId>,
}

impl Rewriter<'_> {
    fn run(&mut self, original: NodeId) {
        let inputs: Vec<ValueId> =
            self.original.nodes[original].inputs.iter().map(|&v| self.resolve(v)).collect();
        let node = &self.original.nodes[original];
        let consumed = node.op.def().consumes(&self.original.input_types(node));
        let consumed: Vec<ValueId> =
            consumed.iter().map(|&(input, _)| self.storage.root[node.inputs[input]]).collect();
        for &root in &consumed {
            self.discard_everywhere(root);
        }
        let node = self.emit(original, inputs);
        let outputs = self.schedule.graph.nodes[node].outputs.clone();
        for (&old, new) in self.original.nodes[original].outputs.iter().zip(outputs) {
            // A copy that is already live stays the one that readers see; the second dies here.
            if self.current[old].is_some() {
                self.schedule.steps.push(Step::Free(new));
            } else {
                self.current[old] = Some(new);
            }
        }
        for root in consumed {
            self.current[root] = None;
        }
    }

    /// A source that is in a store when the step begins.
    fn begin_stored(&mut self, source: ValueId, store: StoreId) -> SlotId {
        self.current[source] = None;
        let slot = self.schedule.slots.push(Slot { store, of: source });
        self.stored.insert((source, store), slot);
        slot
    }

    fn copy_out(&mut self, root: ValueId, store: StoreId) {
        let copy = self.current[root].unwrap_or(root);
        let slot = self.schedule.slots.push(Slot { store, of: root });
        self.stored.insert((root, store), slot);
        self.schedule.steps.push(Step::Out(copy, slot));
    }

    fn copy_in(&mut self, root: ValueId, store: StoreId) {
        let value = self.schedule.graph.values.push(self.original.values[root].clone());
        self.schedule.copy_of.insert(value, root);
        self.current[root] = Some(value);
        // A plan that brings in what is not stored did not pass its checker; ours finds that the slot holds nothing.
        let slot = self.stored.get(&(root, store)).copied();
        let slot = slot.unwrap_or_else(|| self.schedule.slots.push(Slot { store, of: root }));
        self.schedule.steps.push(Step::In(slot, value));
    }

    fn discard(&mut self, root: ValueId, store: StoreId) {
        if let Some(slot) = self.stored.remove(&(root, store)) {
            self.schedule.steps.push(Step::Discard(slot));
        }
    }

    fn discard_everywhere(&mut self, root: ValueId) {
        let stores = self.stored.range((root, StoreId(0))..=(root, StoreId(u32::MAX)));
        for store in stores.map(|(&(_, store), _)| store).collect::<Vec<_>>() {
            self.discard(root, store);
        }
    }

    fn free(&mut self, root: ValueId) {
        // A plan that frees what is not live did not pass its checker; ours would find the double free.
        let copy = self.current[root].take().unwrap_or(root);
        self.schedule.steps.push(Step::Free(copy));
    }

    /// The live copy of an original value, with its chain of views made where needed.
    fn resolve(&mut self, value: ValueId) -> ValueId {
        let root = self.storage.root[value];
        let copy = self.current[root].unwrap_or(root);
        let mut chain = Vec::new();
        let mut at = value;
        while at != root {
            chain.push(at);
            let (view, _) = self.original.values[at].producer.expect("a view has a producer");
            at = self.original.nodes[view].inputs[0];
        }
        let mut made = copy;
        for view in chain.into_iter().rev() {
            made = match self.views.get(&(view, copy)) {
                Some(&known) => known,
                None => {
                    let (node, _) = self.original.values[view].producer.expect("a view has a producer");
                    let run = self.emit(node, vec![made]);
                    let output = self.schedule.graph.nodes[run].outputs[0];
                    self.views.insert((view, copy), output);
                    output
                }
            };
        }
        made
    }

    /// Runs the original node the first time and a clone of it afterwards.
    fn emit(&mut self, original: NodeId, inputs: Vec<ValueId>) -> NodeId {
        let graph = &mut self.schedule.graph;
        let node = if std::mem::replace(&mut self.has_run[original], true) {
            let mut clone = self.original.nodes[original].clone();
            let id = NodeId::new(graph.nodes.len());
            clone.origin = Some(original);
            for (position, v) in clone.outputs.iter_mut().enumerate() {
                let value = &self.original.values[*v];
                *v = graph.values.push(Value {
                    ty: value.ty.clone(),
                    kind: value.kind,
                    producer: Some((id, position)),
                });
            }
            graph.nodes.push(clone)
        } else {
            original
        };
        graph.nodes[node].inputs = inputs;
        self.schedule.steps.push(Step::Run(node));
        node
    }
}
