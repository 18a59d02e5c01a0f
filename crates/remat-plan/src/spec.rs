//! A problem as plain data: operations over sized values, not yet known to be well formed.
//!
//! [`crate::Problem`] is the same data after validation. What every field means is in docs/formats.md.

use crate::ids::{ChannelId, ValueId};
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
    /// Whether it may be copied to a store.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub swap: bool,
}

impl Value {
    /// A value that may be copied to stores.
    pub fn new(name: impl Into<String>, bytes: Bytes) -> Value {
        Value { name: name.into(), bytes, swap: true }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature is serde's.
fn is_yes(value: &bool) -> bool {
    *value
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

impl Node {
    /// A node that may run again and so far reads and makes nothing; its kind of operation is its name.
    pub fn new(name: impl Into<String>, phase: Phase, cost: f64) -> Node {
        let name = name.into();
        Node {
            op: name.clone(),
            name,
            phase,
            cost,
            workspace_bytes: Bytes::ZERO,
            inputs: Vec::new(),
            outputs: Vec::new(),
            recompute: true,
            consumes: Vec::new(),
            reuse: Vec::new(),
            module: None,
        }
    }
}

/// What copies go through, one at a time and in the order in which they are started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Channel {
    /// For people.
    pub name: String,
    /// Whether nodes run while it copies. If not, the program waits for every copy.
    pub overlaps: bool,
}

/// One of the two directions between memory and a store. A copy of b bytes takes `latency + b * cost_per_byte`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// What its copies go through; two directions that share a channel are half duplex.
    pub channel: ChannelId,
    /// Price of any copy, in the problem's cost unit.
    pub latency: f64,
    /// Price of each byte.
    pub cost_per_byte: f64,
}

impl Link {
    /// What a copy of so many bytes takes.
    pub fn cost(&self, bytes: Bytes) -> f64 {
        self.latency + bytes.0 as f64 * self.cost_per_byte
    }
}

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// From memory to a store.
    Out,
    /// From a store to memory.
    In,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Out => "out",
            Way::In => "in",
        })
    }
}

/// Memory outside of the budget: of the host beside an accelerator, or a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Store {
    /// For people.
    pub name: String,
    /// What it can hold; `None` is without limit.
    pub capacity_bytes: Option<Bytes>,
    /// How values get there.
    pub out: Link,
    /// How they come back.
    #[serde(rename = "in")]
    pub back: Link,
}

impl Store {
    /// The direction.
    pub fn link(&self, way: Way) -> &Link {
        match way {
            Way::Out => &self.out,
            Way::In => &self.back,
        }
    }
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
    /// All channels; a [`ChannelId`] is an index into this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Channel>,
    /// All stores; a [`crate::StoreId`] is an index into this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<Store>,
    /// Pairs (input, output): the output of this step is the input of the next, as with parameters and optimizer state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carries: Vec<(ValueId, ValueId)>,
    /// The budget that the maker of the problem suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<Bytes>,
}

impl Default for ProblemSpec {
    /// A problem without a name, with costs in seconds and nothing in it.
    fn default() -> ProblemSpec {
        ProblemSpec {
            name: String::new(),
            cost_unit: "s".to_string(),
            fixed_bytes: Bytes::ZERO,
            values: Vec::new(),
            inputs: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            channels: Vec::new(),
            stores: Vec::new(),
            carries: Vec::new(),
            budget_bytes: None,
        }
    }
}

impl ProblemSpec {
    /// Whether it has anything that the first version of the format does not know.
    pub fn needs_version_2(&self) -> bool {
        !(self.channels.is_empty() && self.stores.is_empty() && self.carries.is_empty())
            || self.values.iter().any(|value| !value.swap)
    }

    pub(crate) fn make_names_printable(&mut self) {
        [&mut self.name, &mut self.cost_unit].into_iter().for_each(Shown::make);
        self.values.iter_mut().for_each(|value| Shown::make(&mut value.name));
        for node in &mut self.nodes {
            [&mut node.name, &mut node.op].into_iter().chain(&mut node.module).for_each(Shown::make);
        }
        self.channels.iter_mut().for_each(|channel| Shown::make(&mut channel.name));
        self.stores.iter_mut().for_each(|store| Shown::make(&mut store.name));
    }
}
