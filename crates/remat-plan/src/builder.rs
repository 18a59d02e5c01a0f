//! Building a problem in code: values and nodes by handle, the first mistake with the line that made it.
//!
//! ```
//! use remat_plan::{Bytes, Problem};
//!
//! let mut step = Problem::builder("tiny");
//! let x = step.input("x", Bytes(64));
//! let a = step.forward("gelu", 0.5).reads([x]).makes("a", Bytes(128));
//! let dx = step.backward("gelu_grad", 0.7).reads([x, a]).makes("dx", Bytes(64));
//! step.output(dx);
//! let problem = step.build()?;
//! assert_eq!(problem.nodes.len(), 2);
//! # Ok::<(), remat_plan::BuildError>(())
//! ```

use crate::ids::{ChannelId, NodeId, StoreId, ValueId};
use crate::problem::{Problem, ProblemError};
use crate::problem_fault::{Place, ProblemFault};
use crate::spec::{Channel, Node, Phase, ProblemSpec, Store, Value};
use crate::units::Bytes;
use std::fmt;
use std::panic::Location;

/// A problem that is being built.
#[derive(Clone, Debug)]
pub struct ProblemBuilder {
    spec: ProblemSpec,
    /// Where each node was begun.
    places: Vec<&'static Location<'static>>,
}

/// A node that is being built. It becomes part of the problem at once; what it makes ends the chain.
#[derive(Debug)]
pub struct NodeBuilder<'a> {
    problem: &'a mut ProblemBuilder,
    id: NodeId,
}

/// The first mistake in what was built.
#[derive(Clone, PartialEq, Debug)]
pub struct BuildError {
    /// The line that began the node, if the mistake is one of a node.
    pub place: Option<&'static Location<'static>>,
    /// What is wrong.
    pub fault: ProblemFault,
    /// The sentence, with names.
    message: String,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{}:{}: {}", place.file(), place.line(), self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for BuildError {}

impl Problem {
    /// Begins a problem whose costs are seconds and that has no fixed bytes.
    pub fn builder(name: impl Into<String>) -> ProblemBuilder {
        let spec = ProblemSpec { name: name.into(), ..ProblemSpec::default() };
        ProblemBuilder { spec, places: Vec::new() }
    }
}

impl ProblemBuilder {
    /// Sets the unit of all costs.
    pub fn cost_unit(&mut self, unit: impl Into<String>) -> &mut ProblemBuilder {
        self.spec.cost_unit = unit.into();
        self
    }

    /// Sets the memory that is held during the whole step beside the values.
    pub fn fixed_bytes(&mut self, bytes: Bytes) -> &mut ProblemBuilder {
        self.spec.fixed_bytes = bytes;
        self
    }

    /// A value that is live at the start: parameters, optimizer state, the batch.
    pub fn input(&mut self, name: impl Into<String>, bytes: Bytes) -> ValueId {
        let value = self.value(name, bytes);
        self.spec.inputs.push(value);
        value
    }

    /// Demands that a value is live at the end.
    pub fn output(&mut self, value: ValueId) -> &mut ProblemBuilder {
        self.spec.outputs.push(value);
        self
    }

    /// A channel for copies to and from stores. Where it does not overlap, the program waits for every copy.
    pub fn channel(&mut self, name: impl Into<String>, overlaps: bool) -> ChannelId {
        self.spec.channels.push(Channel { name: name.into(), overlaps });
        ChannelId::new(self.spec.channels.len() - 1)
    }

    /// Memory outside of the budget, reached through channels.
    pub fn store(&mut self, store: Store) -> StoreId {
        self.spec.stores.push(store);
        StoreId::new(self.spec.stores.len() - 1)
    }

    /// Says that an output of this step is an input of the next, so that it may rest in a store between them.
    pub fn carries(&mut self, input: ValueId, output: ValueId) -> &mut ProblemBuilder {
        self.spec.carries.push((input, output));
        self
    }

    /// Forbids to copy a value to a store.
    pub fn stays(&mut self, value: ValueId) -> &mut ProblemBuilder {
        self.spec.values[value.index()].swap = false;
        self
    }

    /// Begins a node of the forward phase.
    #[track_caller]
    pub fn forward(&mut self, name: impl Into<String>, cost: f64) -> NodeBuilder<'_> {
        self.node(Phase::Forward, name, cost)
    }

    /// Begins a node of the backward phase.
    #[track_caller]
    pub fn backward(&mut self, name: impl Into<String>, cost: f64) -> NodeBuilder<'_> {
        self.node(Phase::Backward, name, cost)
    }

    /// Begins a node of the optimizer phase. It runs only once.
    #[track_caller]
    pub fn optimizer(&mut self, name: impl Into<String>, cost: f64) -> NodeBuilder<'_> {
        self.node(Phase::Optimizer, name, cost).once()
    }

    /// Begins a node. Nodes run in the order in which they are begun, unless a plan says otherwise.
    #[track_caller]
    pub fn node(&mut self, phase: Phase, name: impl Into<String>, cost: f64) -> NodeBuilder<'_> {
        let id = NodeId::new(self.spec.nodes.len());
        self.places.push(Location::caller());
        self.spec.nodes.push(Node::new(name, phase, cost));
        NodeBuilder { problem: self, id }
    }

    /// The problem, or the first mistake in it.
    pub fn build(self) -> Result<Problem, BuildError> {
        let places = self.places;
        Problem::new(self.spec).map_err(|error| match error {
            ProblemError::Invalid { mut faults, spec } => {
                let fault = faults.swap_remove(0);
                let message = fault.with_names(&spec).to_string();
                let place = match fault.place {
                    Place::Node(node) => places.get(node.index()).copied(),
                    Place::Problem | Place::Store(_) => None,
                };
                BuildError { place, fault, message }
            }
            other => unreachable!("only files have other errors: {other}"),
        })
    }

    fn value(&mut self, name: impl Into<String>, bytes: Bytes) -> ValueId {
        let value = ValueId::new(self.spec.values.len());
        self.spec.values.push(Value::new(name, bytes));
        value
    }
}

impl NodeBuilder<'_> {
    fn node(&mut self) -> &mut Node {
        &mut self.problem.spec.nodes[self.id.index()]
    }

    /// The kind of operation, where it differs from the name.
    pub fn op(mut self, op: impl Into<String>) -> Self {
        self.node().op = op.into();
        self
    }

    /// The module it comes from.
    pub fn module(mut self, module: impl Into<String>) -> Self {
        self.node().module = Some(module.into());
        self
    }

    /// Values that must be live when the node runs.
    pub fn reads(mut self, values: impl IntoIterator<Item = ValueId>) -> Self {
        self.node().inputs.extend(values);
        self
    }

    /// Memory needed only while the node runs.
    pub fn workspace(mut self, bytes: Bytes) -> Self {
        self.node().workspace_bytes = bytes;
        self
    }

    /// Forbids to run it again.
    pub fn once(mut self) -> Self {
        self.node().recompute = false;
        self
    }

    /// Reads these values and overwrites their storage: they are not live afterwards. The node runs only once.
    pub fn consumes(mut self, values: impl IntoIterator<Item = ValueId>) -> Self {
        let values: Vec<ValueId> = values.into_iter().collect();
        let node = self.node();
        node.recompute = false;
        node.inputs.extend(&values);
        node.consumes.extend(values);
        self
    }

    /// Makes one value, and ends the node.
    pub fn makes(mut self, name: impl Into<String>, bytes: Bytes) -> ValueId {
        self.output(name, bytes)
    }

    /// Makes a value that may take over the storage of an input which is freed right after the node, and ends the node.
    pub fn makes_in_place_of(mut self, input: ValueId, name: impl Into<String>, bytes: Bytes) -> ValueId {
        let output = self.output(name, bytes);
        self.node().reuse.push((input, output));
        output
    }

    /// Makes several values, and ends the node.
    pub fn makes_all<const N: usize>(mut self, values: [(&str, Bytes); N]) -> [ValueId; N] {
        values.map(|(name, bytes)| self.output(name, bytes))
    }

    fn output(&mut self, name: impl Into<String>, bytes: Bytes) -> ValueId {
        let value = self.problem.value(name, bytes);
        self.node().outputs.push(value);
        value
    }
}
