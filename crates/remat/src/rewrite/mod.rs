//! Carries out a plan on the graph: recomputes become clones, uses are redirected, frees become explicit.
//!
//! In: a training step, its planning problem and a plan. Out: a [`Schedule`]: the same graph with clones appended (an
//! original node or value keeps its id) and the steps in order. The first run of a node is the original; a later one
//! is a clone that records its origin. Readers are redirected to the copy that is live when they run. A view is
//! re-made on the copy it is needed on. O(steps).
//!
//! [`check`](fn@check) verifies the result against the original graph, sharing no code with this file.

mod check;
mod fault;

pub use check::check;
pub use fault::ScheduleFault;

use crate::error::{Error, Result};
use crate::graph::{Graph, Storage, Value};
use crate::ids::{Id, IdVec, NodeId, ValueId};
use crate::problem::PlanningProblem;
use remat_plan::{Bytes, Plan};
use std::collections::HashMap;

/// One step of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Run a node.
    Run(NodeId),
    /// Give the storage of a value back; views of it are gone too.
    Free(ValueId),
}

/// A graph with its order of execution and its frees.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// The original nodes and values, then the clones. Node order is *not* the order of execution. The outputs are
    /// the copies that are live at the end.
    pub graph: Graph,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// Nodes in order of execution, views included.
    pub fn runs(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.steps.iter().filter_map(|step| match *step {
            Step::Run(node) => Some(node),
            Step::Free(_) => None,
        })
    }

    /// The node as it is in the original graph.
    pub fn origin(&self, node: NodeId) -> NodeId {
        self.graph.nodes[node].origin.unwrap_or(node)
    }

    /// The value of the original graph that a value stands for.
    pub fn original(&self, value: ValueId) -> ValueId {
        match self.graph.values[value].producer {
            Some((node, position)) => self.graph.nodes[self.origin(node)].outputs[position],
            None => value,
        }
    }

    /// Scratch memory of a node, as a whole buffer.
    pub fn workspace_bytes(&self, node: NodeId) -> Bytes {
        self.graph.workspace_bytes(node)
    }

    /// The steps as text, one per line, in the form of [`Graph::to_text`] with `free` lines between.
    pub fn to_text(&self) -> String {
        let line = |step: &Step| match *step {
            Step::Run(node) => self.graph.node_text(&self.graph.nodes[node]) + "\n",
            Step::Free(value) => format!("free {value}\n"),
        };
        self.steps.iter().map(line).collect()
    }

    /// How many nodes run a second time or more, views not counted.
    pub fn n_recomputes(&self) -> usize {
        let is_recompute = |n: &NodeId| {
            let node = &self.graph.nodes[*n];
            node.origin.is_some() && !node.op.def().is_view()
        };
        self.runs().filter(is_recompute).count()
    }
}

/// Carries out `plan` on `graph`. The result has passed [`check`](fn@check).
pub fn apply(graph: &Graph, problem: &PlanningProblem, plan: &Plan) -> Result<Schedule> {
    let mut rewriter = Rewriter {
        original: graph,
        storage: Storage::compute(graph),
        schedule: Schedule { graph: graph.clone(), steps: Vec::with_capacity(plan.steps.len()) },
        current: IdVec::filled(graph.values.len(), None),
        has_run: IdVec::filled(graph.nodes.len(), false),
        views: HashMap::new(),
    };
    for source in &graph.sources {
        rewriter.current[source.value] = Some(source.value);
    }
    for step in &plan.steps {
        match *step {
            remat_plan::Step::Compute(n) => rewriter.run(problem.node_of[n.index()]),
            remat_plan::Step::Free(v) => rewriter.free(problem.value_of[v.index()]),
            remat_plan::Step::Out(..) | remat_plan::Step::In(..) | remat_plan::Step::Discard(..) => {
                return Err(Error::bug("rewrite", ["the plan moves values to a store, and a step has none"]));
            }
        }
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
}

impl Rewriter<'_> {
    fn run(&mut self, original: NodeId) {
        let inputs: Vec<ValueId> =
            self.original.nodes[original].inputs.iter().map(|&v| self.resolve(v)).collect();
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
        let node = &self.original.nodes[original];
        for (input, _) in node.op.def().consumes(&self.original.input_types(node)) {
            self.current[self.storage.root[node.inputs[input]]] = None;
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
