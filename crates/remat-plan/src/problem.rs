//! The planning problem: one training step as a list of operations over sized values.
//!
//! In: a [`ProblemSpec`], written in Rust or read from `remat.problem/1` JSON. Out: a [`Problem`], which is the same
//! data after [`validate()`] found no fault, together with side tables (producer and readers of each value).
//! Invariant: ids are in range, nodes stand in topological order, no sum of sizes overflows; so planners index
//! without checking. The semantics of every field is in docs/formats.md.

use crate::ids::{NodeId, ValueId};
use crate::units::Bytes;
use crate::validate::{ProblemError, validate};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// The name that a problem file must give in its `schema` field.
pub const PROBLEM_SCHEMA: &str = "remat.problem/1";

/// The part of a training step to which a node belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From the batch to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// From the gradients to the new parameters.
    Optimizer,
}

/// A sized value. Storage counts, not tensors: a view has the size zero and is kept alive by reading its base too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// For people.
    pub name: String,
    /// Storage that the value holds while it is live.
    pub bytes: Bytes,
}

/// One operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// For people; unique names help, but nothing depends on them.
    pub name: String,
    /// The kind of operation, such as `conv2d`.
    pub op: String,
    /// Part of the step.
    pub phase: Phase,
    /// Price of running the node once, in the problem's cost unit.
    pub cost: f64,
    /// Memory needed only while the node runs.
    pub workspace_bytes: Bytes,
    /// Values that must be live when the node runs.
    pub inputs: Vec<ValueId>,
    /// Values that the node makes.
    pub outputs: Vec<ValueId>,
    /// Whether the node may run more than once.
    pub recompute: bool,
    /// Inputs whose storage the node overwrites; they are not live afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumes: Vec<ValueId>,
    /// Pairs (input, output) that may share storage when the input is freed right after the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reuse: Vec<(ValueId, ValueId)>,
    /// The module the node comes from, such as `layer3.12.conv2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// A problem as plain data, not yet known to be well formed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProblemSpec {
    /// Names the problem in plans and messages.
    pub name: String,
    /// Unit of all costs, such as `s`.
    pub cost_unit: String,
    /// Memory that is held during the whole step beside the values.
    pub fixed_bytes: Bytes,
    /// All values; a [`ValueId`] is an index into this list.
    pub values: Vec<Value>,
    /// Values that are live at the start and have no producer.
    pub inputs: Vec<ValueId>,
    /// All operations in a valid order; a [`NodeId`] is an index into this list.
    pub nodes: Vec<Node>,
    /// Values that must be live at the end.
    pub outputs: Vec<ValueId>,
}

/// A well-formed problem with its side tables. Reads like a [`ProblemSpec`]; cannot be changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    spec: ProblemSpec,
    producer: Vec<Option<NodeId>>,
    consumer: Vec<Option<NodeId>>,
    is_input: Vec<bool>,
    is_output: Vec<bool>,
    reader_start: Vec<u32>,
    reader_list: Vec<NodeId>,
}

impl Deref for Problem {
    type Target = ProblemSpec;
    fn deref(&self) -> &ProblemSpec {
        &self.spec
    }
}

impl Problem {
    /// Validates the data and builds the side tables, in time linear in its size.
    pub fn new(spec: ProblemSpec) -> Result<Problem, ProblemError> {
        let faults = validate(&spec);
        if !faults.is_empty() {
            return Err(ProblemError::Invalid(faults));
        }
        let n_values = spec.values.len();
        let mut producer = vec![None; n_values];
        let mut consumer = vec![None; n_values];
        let mut is_input = vec![false; n_values];
        let mut is_output = vec![false; n_values];
        let mut reader_start = vec![0u32; n_values + 1];
        for &v in &spec.inputs {
            is_input[v.index()] = true;
        }
        for &v in &spec.outputs {
            is_output[v.index()] = true;
        }
        for (i, node) in spec.nodes.iter().enumerate() {
            for &v in &node.outputs {
                producer[v.index()] = Some(NodeId::new(i));
            }
            for &v in &node.consumes {
                consumer[v.index()] = Some(NodeId::new(i));
            }
            for &v in &node.inputs {
                reader_start[v.index() + 1] += 1;
            }
        }
        for v in 0..n_values {
            reader_start[v + 1] += reader_start[v];
        }
        let mut next = reader_start.clone();
        let mut reader_list = vec![NodeId(0); reader_start[n_values] as usize];
        for (i, node) in spec.nodes.iter().enumerate() {
            for &v in &node.inputs {
                reader_list[next[v.index()] as usize] = NodeId::new(i);
                next[v.index()] += 1;
            }
        }
        Ok(Problem { spec, producer, consumer, is_input, is_output, reader_start, reader_list })
    }

    /// Reads `remat.problem/1`. The error lists every fault with its place.
    pub fn from_json(text: &str) -> Result<Problem, ProblemError> {
        #[derive(Deserialize)]
        struct Header {
            schema: Option<String>,
        }
        let header: Header = serde_json::from_str(text).map_err(ProblemError::json)?;
        if header.schema.as_deref() != Some(PROBLEM_SCHEMA) {
            return Err(ProblemError::Schema { found: header.schema });
        }
        Problem::new(serde_json::from_str(text).map_err(ProblemError::json)?)
    }

    /// Writes `remat.problem/1`.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            schema: &'static str,
            #[serde(flatten)]
            spec: &'a ProblemSpec,
        }
        serde_json::to_string(&File { schema: PROBLEM_SCHEMA, spec: &self.spec })
            .expect("a validated problem has only finite numbers and string keys")
    }

    /// The plain data.
    pub fn spec(&self) -> &ProblemSpec {
        &self.spec
    }

    /// The node with this id.
    #[inline]
    pub fn node(&self, node: NodeId) -> &Node {
        &self.spec.nodes[node.index()]
    }

    /// The value with this id.
    #[inline]
    pub fn value(&self, value: ValueId) -> &Value {
        &self.spec.values[value.index()]
    }

    /// The size of a value.
    #[inline]
    pub fn bytes(&self, value: ValueId) -> Bytes {
        self.spec.values[value.index()].bytes
    }

    /// The node that makes a value; `None` for inputs.
    #[inline]
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        self.producer[value.index()]
    }

    /// The node that overwrites a value, if any.
    #[inline]
    pub fn consumer(&self, value: ValueId) -> Option<NodeId> {
        self.consumer[value.index()]
    }

    /// The nodes that read a value, in the problem's order.
    #[inline]
    pub fn readers(&self, value: ValueId) -> &[NodeId] {
        let v = value.index();
        &self.reader_list[self.reader_start[v] as usize..self.reader_start[v + 1] as usize]
    }

    /// Whether the value is live at the start.
    #[inline]
    pub fn is_input(&self, value: ValueId) -> bool {
        self.is_input[value.index()]
    }

    /// Whether the value must be live at the end.
    #[inline]
    pub fn is_output(&self, value: ValueId) -> bool {
        self.is_output[value.index()]
    }

    /// Whether the value can be made again after it was freed.
    #[inline]
    pub fn is_recomputable(&self, value: ValueId) -> bool {
        self.producer[value.index()].is_some_and(|node| self.node(node).recompute)
    }

    /// All node ids in the problem's order.
    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.spec.nodes.len()).map(NodeId::new)
    }

    /// All value ids.
    pub fn value_ids(&self) -> impl DoubleEndedIterator<Item = ValueId> + ExactSizeIterator + use<> {
        (0..self.spec.values.len()).map(ValueId::new)
    }

    /// The cost of running every node once: no plan costs less.
    pub fn base_cost(&self) -> f64 {
        self.spec.nodes.iter().map(|node| node.cost).sum()
    }
}
