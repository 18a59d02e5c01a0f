//! One training step as data: values, nodes in a valid order, and where persistent state begins.
//!
//! The graph is functional: a node makes new values and changes none. Persistent state (parameters, optimizer state,
//! running statistics) enters as source values; an *update* node consumes the old value and makes the new one, runs
//! exactly once, and comes after every reader of the old value. Which buffers are shared is the layout's business.
//!
//! What a produced value *is* (its [`Kind`]) follows from its node: see [`Graph::push_node`].

mod builder;
mod dot;
mod element_wise;
mod example;
mod io;
mod liveness;
mod names;
mod op;
mod storage;
mod text;
mod types;
mod verify;

pub use builder::Builder;
pub use element_wise::{ElementWise, MAX_OPERANDS};
pub use example::{Example, Fill, NaiveIo};
pub(crate) use io::Buffer;
pub use io::{Io, MicroBatch, Run};
pub use liveness::Liveness;
pub(crate) use names::{Names, Tell, Told, tells};
pub use op::{Calibration, Case, Cost, Effect, GradArgs, InEvaluation, Op, OpDef, Prediction};
pub use storage::Storage;
pub use types::{ALIGNMENT, DType, Type, aligned};
pub use verify::GraphFault;

use crate::error::{Error, Result};
use crate::ids::{Id, IdVec, NodeId, ValueId};
use remat_plan::Bytes;
pub use remat_plan::Phase;

/// What a value is for; the legend of every memory curve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Trained weights.
    Parameter,
    /// Momentum and moments.
    OptimizerState,
    /// Running statistics.
    Buffer,
    /// The batch: images, tokens, labels.
    Input,
    /// Made by a forward node.
    Activation,
    /// Made by a backward node.
    Gradient,
    /// Read by the host after the step: the loss.
    Output,
}

impl Kind {
    /// In the order of legends and tables.
    pub const ALL: [Kind; 7] = [
        Kind::Parameter,
        Kind::OptimizerState,
        Kind::Buffer,
        Kind::Input,
        Kind::Activation,
        Kind::Gradient,
        Kind::Output,
    ];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Parameter => "parameter",
            Kind::OptimizerState => "optimizer_state",
            Kind::Buffer => "buffer",
            Kind::Input => "input",
            Kind::Activation => "activation",
            Kind::Gradient => "gradient",
            Kind::Output => "output",
        }
    }

    /// What a node of this phase makes, unless it is new state or an output.
    fn made_in(phase: Phase) -> Kind {
        if phase == Phase::Forward { Kind::Activation } else { Kind::Gradient }
    }

    /// Is there before the step: state, or part of the batch.
    fn is_of_sources(self) -> bool {
        self.is_state() || self == Kind::Input
    }

    /// Survives the step: its buffer has the same place at the beginning and at the end.
    pub fn is_state(self) -> bool {
        matches!(self, Kind::Parameter | Kind::OptimizerState | Kind::Buffer)
    }
}

/// How a source value is filled before the first step. Random fills are a function of the source's name and the seed.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// All elements equal.
    Constant(f32),
    /// Uniform in `[-bound, bound)`.
    Uniform(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Floats of the batch, filled by the host before every step.
    Batch,
    /// Whole numbers of the batch in `0..limit`, such as token ids, filled by the host before every step.
    Indices(usize),
    /// As [`Init::Indices`], and a negative number means "ignore this element", as losses do.
    Labels(usize),
}

/// How a source's elements are ordered in weight files, where that differs from ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileLayout {
    /// The same order.
    #[default]
    Same,
    /// Convolution weights: ours are `[out, kh, kw, in]`, files hold `[out, in, kh, kw]` as PyTorch does.
    ConvWeight,
}

/// A value that no node makes.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// The value.
    pub value: ValueId,
    /// Full path, as in PyTorch's `state_dict` for parameters and buffers.
    pub name: String,
    /// How it is filled.
    pub init: Init,
    /// Element order in weight files.
    pub file_layout: FileLayout,
}

/// A tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Element type and shape.
    pub ty: Type,
    /// What it is for.
    pub kind: Kind,
    /// Its node, and which of the node's outputs it is; `None` for a source.
    pub producer: Option<(NodeId, usize)>,
}

/// An operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<ValueId>,
    /// What it makes.
    pub outputs: Vec<ValueId>,
    /// Which part of the step it belongs to.
    pub phase: Phase,
    /// Module path, such as `layer3.12.conv2`.
    pub scope: String,
    /// For a recompute: the node it repeats.
    pub origin: Option<NodeId>,
}

/// One training step, or a part of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Graph {
    /// The model's name.
    pub name: String,
    /// All values.
    pub values: IdVec<ValueId, Value>,
    /// All nodes; their order is a valid order of execution.
    pub nodes: IdVec<NodeId, Node>,
    /// Values that no node makes, in order of creation.
    pub sources: Vec<Source>,
    /// What the host reads after the step.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Adds a source value.
    pub fn push_source(
        &mut self,
        name: String,
        kind: Kind,
        ty: Type,
        init: Init,
        file_layout: FileLayout,
    ) -> ValueId {
        let value = self.values.push(Value { ty, kind, producer: None });
        self.sources.push(Source { value, name, init, file_layout });
        value
    }

    /// Adds a node and its output values. The type rule of the op must accept the inputs.
    ///
    /// The kind of an output is that of the state it replaces for an update, else [`Kind::Activation`] in the
    /// forward phase and [`Kind::Gradient`] after it.
    pub fn push_node(&mut self, op: Op, inputs: &[ValueId], phase: Phase, scope: &str) -> Result<NodeId> {
        let types: Vec<&Type> = inputs.iter().map(|&v| &self.values[v].ty).collect();
        let outputs = op.def().infer(&types).map_err(|message| Error::Type {
            op: op.name(),
            scope: scope.to_owned(),
            message,
        })?;
        let consumes = op.def().consumes(&types);
        let id = NodeId::new(self.nodes.len());
        let mut output_ids = Vec::with_capacity(outputs.len());
        for (position, ty) in outputs.into_iter().enumerate() {
            let kind = match consumes.iter().find(|pair| pair.1 == position) {
                Some(&(input, _)) => self.values[inputs[input]].kind,
                None => Kind::made_in(phase),
            };
            output_ids.push(self.values.push(Value { ty, kind, producer: Some((id, position)) }));
        }
        Ok(self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: output_ids,
            phase,
            scope: scope.to_owned(),
            origin: None,
        }))
    }

    /// Names a value as something the host reads. What no node makes stays what it is: a parameter that the host reads is still read
    /// from weight files.
    pub fn push_output(&mut self, value: ValueId) {
        self.outputs.push(value);
        if self.values[value].producer.is_some() {
            self.values[value].kind = Kind::Output;
        }
    }

    /// Types of a node's inputs.
    pub fn input_types(&self, node: &Node) -> Vec<&Type> {
        node.inputs.iter().map(|&v| &self.values[v].ty).collect()
    }

    /// Types of a node's outputs.
    pub fn output_types(&self, node: &Node) -> Vec<&Type> {
        node.outputs.iter().map(|&v| &self.values[v].ty).collect()
    }

    /// The source record of a value, if it is one.
    pub fn source(&self, value: ValueId) -> Option<&Source> {
        // Sources are pushed in id order.
        self.sources.binary_search_by_key(&value, |s| s.value).ok().map(|i| &self.sources[i])
    }

    /// A name for people: the path of a source, or the scope and op of the producer.
    pub fn value_name(&self, value: ValueId) -> String {
        match self.values[value].producer {
            None => self.source(value).map_or_else(|| value.to_string(), |s| s.name.clone()),
            Some((node, position)) => {
                let name = self.node_name(node);
                if position == 0 { name } else { format!("{name}.{position}") }
            }
        }
    }

    /// A name for people, unique in the graph: scope, op and id.
    pub fn node_name(&self, node: NodeId) -> String {
        let n = &self.nodes[node];
        let dot = if n.scope.is_empty() { "" } else { "." };
        format!("{}{dot}{}_{}", n.scope, n.op.name(), node.index())
    }

    /// Total elements of all parameters.
    pub fn n_parameters(&self) -> usize {
        let is_parameter = |s: &&Source| self.values[s.value].kind == Kind::Parameter;
        self.sources.iter().filter(is_parameter).map(|s| self.values[s.value].ty.numel()).sum()
    }

    /// The same sources and outputs with these nodes, which name values by the ids of this graph and stand in a valid
    /// order. Ids are given anew: sources first, then outputs in the order of their nodes. Also returns the new id of every
    /// value that is still there.
    pub(crate) fn with_nodes(&self, nodes: Vec<Node>) -> (Graph, IdVec<ValueId, Option<ValueId>>) {
        let mut graph = Graph::new(self.name.clone());
        let mut renamed = IdVec::<ValueId, Option<ValueId>>::filled(self.values.len(), None);
        for s in &self.sources {
            let Value { ty, kind, .. } = self.values[s.value].clone();
            renamed[s.value] = Some(graph.push_source(s.name.clone(), kind, ty, s.init, s.file_layout));
        }
        let new_id = |renamed: &IdVec<ValueId, Option<ValueId>>, v: ValueId| {
            renamed[v].expect("every value that is read is a source or made by an earlier node")
        };
        for (position, mut node) in nodes.into_iter().enumerate() {
            node.inputs.iter_mut().for_each(|v| *v = new_id(&renamed, *v));
            for (k, v) in node.outputs.iter_mut().enumerate() {
                let Value { ty, kind, .. } = self.values[*v].clone();
                // A node that was joined with one of another phase makes values of its own phase.
                let kind = match kind {
                    Kind::Activation | Kind::Gradient => Kind::made_in(node.phase),
                    kind => kind,
                };
                let new = graph.values.push(Value { ty, kind, producer: Some((NodeId::new(position), k)) });
                renamed[*v] = Some(new);
                *v = new;
            }
            graph.nodes.push(node);
        }
        graph.outputs = self.outputs.iter().map(|&v| new_id(&renamed, v)).collect();
        (graph, renamed)
    }

    /// Scratch memory of a node, as a whole buffer.
    pub fn workspace_bytes(&self, node: NodeId) -> Bytes {
        let n = &self.nodes[node];
        aligned(n.op.def().workspace(&self.input_types(n), &self.output_types(n)))
    }

    /// The pairs (input, output) of a node that may share storage: allowed by the op and with the same number of bytes.
    pub fn shareable(&self, node: &Node) -> Vec<(usize, usize)> {
        let bytes = |v: ValueId| self.values[v].ty.buffer_bytes();
        let mut pairs = node.op.def().reuse(&self.input_types(node));
        pairs.retain(|&(i, o)| bytes(node.inputs[i]) == bytes(node.outputs[o]));
        pairs
    }

    /// The pairs (old, new) of state that update nodes replace.
    pub fn updates(&self) -> Vec<(ValueId, ValueId)> {
        let mut pairs = Vec::new();
        for node in self.nodes.iter() {
            let consumes = node.op.def().consumes(&self.input_types(node));
            pairs.extend(consumes.into_iter().map(|(i, o)| (node.inputs[i], node.outputs[o])));
        }
        pairs
    }
}
