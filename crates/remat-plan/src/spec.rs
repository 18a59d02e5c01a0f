//! A problem as plain data: operations over sized values, not yet known to be well formed.
//!
//! [`crate::Problem`] is the same data after validation. What every field means is in docs/formats.md.

use crate::ids::ValueId;
use crate::shown::Shown;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

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

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Optimizer];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
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

/// A problem as plain data.
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
    /// All operations in a valid order; a [`crate::NodeId`] is an index into this list.
    pub nodes: Vec<Node>,
    /// Values that must be live at the end.
    pub outputs: Vec<ValueId>,
}

impl ProblemSpec {
    pub(crate) fn make_names_printable(&mut self) {
        [&mut self.name, &mut self.cost_unit].into_iter().for_each(Shown::make);
        self.values.iter_mut().for_each(|value| Shown::make(&mut value.name));
        for node in &mut self.nodes {
            [&mut node.name, &mut node.op].into_iter().chain(&mut node.module).for_each(Shown::make);
        }
    }
}
