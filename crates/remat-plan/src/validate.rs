//! Every way in which a problem can be malformed.
//!
//! In: a [`ProblemSpec`]. Out: all faults, each with its place. Time is linear in the size of the problem. Checks that
//! need ids in range are skipped for the offending id only, so that one pass reports as much as the structure allows.
//!
//! What holds when no fault is found:
//! - every id is in range and no list names an id twice;
//! - every value that is read or is an output of the problem is an input of the problem or has exactly one producer;
//! - nodes stand in topological order;
//! - costs are finite and not negative, and so is their sum;
//! - twice the bytes of all values plus the fixed bytes plus the largest workspace fit in 63 bits, so that memory
//!   and signed differences of memory never overflow in any plan;
//! - `consumes` names inputs of a node that runs once, the last reader of each, and at most as many bytes as the
//!   node's outputs hold; `reuse` names pairs of an input and an output.

use crate::ids::{NodeId, ValueId};
use crate::problem::ProblemSpec;
use std::fmt;
use thiserror::Error;

/// Faults beyond this number are counted, not printed.
const SHOWN_FAULTS: usize = 20;

/// Why a text or a specification is not a problem.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ProblemError {
    /// Not JSON, or JSON of another shape.
    #[error("the problem is not valid `remat.problem/1` JSON: line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Another kind of file.
    #[error("the problem's `schema` is {}, not \"remat.problem/1\"", found.as_ref().map_or("missing".into(), |s| format!("{s:?}")))]
    Schema {
        /// What the file says.
        found: Option<String>,
    },
    /// Well-formed JSON with wrong content.
    #[error("the problem has {} fault{}:{}", .0.len(), if .0.len() == 1 { "" } else { "s" }, listed(.0))]
    Invalid(Vec<ProblemFault>),
}

impl ProblemError {
    pub(crate) fn json(error: serde_json::Error) -> ProblemError {
        let (line, column) = (error.line(), error.column());
        ProblemError::Json { line, column, message: without_position(&error) }
    }
}

/// The message of a JSON error without the position that `serde_json` appends to it.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&suffix).unwrap_or(&message).to_string()
}

fn listed(faults: &[ProblemFault]) -> String {
    let mut text: String = faults.iter().take(SHOWN_FAULTS).map(|fault| format!("\n  {fault}")).collect();
    if faults.len() > SHOWN_FAULTS {
        text += &format!("\n  ... and {} more", faults.len() - SHOWN_FAULTS);
    }
    text
}

/// Where a fault is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The problem as a whole.
    Problem,
    /// A node, with its name.
    Node(NodeId, String),
}

/// One fault of a problem and its place.
#[derive(Clone, PartialEq, Debug)]
pub struct ProblemFault {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub kind: ProblemFaultKind,
}

/// A list of ids in a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// `inputs`
    Input,
    /// `outputs`
    Output,
    /// `consumes`
    Consumed,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            List::Input => "input",
            List::Output => "output",
            List::Consumed => "consumed value",
        })
    }
}

/// What can be wrong with a problem.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // The messages say what the variants and their fields mean.
pub enum ProblemFaultKind {
    #[error("{list} {value} is out of range (there are {n_values} values)")]
    OutOfRange { list: List, value: ValueId, n_values: usize },
    #[error("{list} {value} is listed twice")]
    Duplicate { list: List, value: ValueId },
    #[error("output {value} ({name}) already has a producer: {other}")]
    SecondProducer { value: ValueId, name: String, other: String },
    #[error("{list} {value} ({name}) has no producer and is not an input of the problem")]
    NoProducer { list: List, value: ValueId, name: String },
    #[error(
        "input {value} ({name}) is made by node {producer} ({producer_name}), which stands later in the list"
    )]
    OutOfOrder { value: ValueId, name: String, producer: NodeId, producer_name: String },
    #[error("the nodes form a cycle: {}", path.join(" -> "))]
    Cycle { path: Vec<String> },
    #[error("the cost {cost} is not a finite number of at least zero")]
    BadCost { cost: f64 },
    #[error("the sum of all costs is too large for a number")]
    CostOverflow,
    #[error("the sizes add up to more than 2^63 bytes")]
    SizeOverflow,
    #[error("consumed value {value} is not among the inputs")]
    ConsumesOther { value: ValueId },
    #[error("it consumes a value, so it must have \"recompute\": false")]
    ConsumesAndRecomputes,
    #[error("consumed value {value} ({name}) is an output of the problem")]
    ConsumesOutput { value: ValueId, name: String },
    #[error("consumed value {value} ({name}) is read by the later node {reader} ({reader_name})")]
    ConsumesTooEarly { value: ValueId, name: String, reader: NodeId, reader_name: String },
    #[error("it consumes more bytes ({consumed}) than its outputs hold ({made})")]
    ConsumesTooMuch { consumed: u64, made: u64 },
    #[error("the reuse pair [{input}, {output}] is not an input and an output of the node")]
    BadReuse { input: ValueId, output: ValueId },
}

impl fmt::Display for ProblemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Problem => write!(f, "problem: {}", self.kind),
            Place::Node(node, name) => write!(f, "node {node} ({name}): {}", self.kind),
        }
    }
}

/// All faults of a problem, in the order of the file.
pub fn validate(spec: &ProblemSpec) -> Vec<ProblemFault> {
    let mut checker = Validator { spec, faults: Vec::new(), seen: vec![0; spec.values.len()], mark: 0 };
    checker.ids();
    let producer = checker.producers();
    checker.order(&producer);
    checker.consumption();
    checker.sums();
    checker.faults
}

struct Validator<'a> {
    spec: &'a ProblemSpec,
    faults: Vec<ProblemFault>,
    /// `seen[v] == mark` when `v` occurred in the list that is being read.
    seen: Vec<u32>,
    mark: u32,
}

impl Validator<'_> {
    fn push(&mut self, node: Option<usize>, kind: ProblemFaultKind) {
        let place =
            node.map_or(Place::Problem, |n| Place::Node(NodeId::new(n), self.spec.nodes[n].name.clone()));
        self.faults.push(ProblemFault { place, kind });
    }

    fn name(&self, value: ValueId) -> String {
        self.spec.values[value.index()].name.clone()
    }

    fn in_range(&self, value: ValueId) -> bool {
        value.index() < self.spec.values.len()
    }

    fn ids(&mut self) {
        let spec = self.spec;
        self.list(None, List::Input, &spec.inputs);
        self.list(None, List::Output, &spec.outputs);
        for (n, node) in spec.nodes.iter().enumerate() {
            self.list(Some(n), List::Input, &node.inputs);
            let inputs_mark = self.mark;
            for &value in &node.consumes {
                if self.in_range(value) && self.seen[value.index()] != inputs_mark {
                    self.push(Some(n), ProblemFaultKind::ConsumesOther { value });
                }
            }
            for &(input, output) in &node.reuse {
                let is_input = self.in_range(input) && self.seen[input.index()] == inputs_mark;
                if !is_input || !node.outputs.contains(&output) {
                    self.push(Some(n), ProblemFaultKind::BadReuse { input, output });
                }
            }
            self.list(Some(n), List::Output, &node.outputs);
            self.list(Some(n), List::Consumed, &node.consumes);
            if !(node.cost.is_finite() && node.cost >= 0.0) {
                self.push(Some(n), ProblemFaultKind::BadCost { cost: node.cost });
            }
        }
    }

    /// Range and duplicates of one list; afterwards `seen == mark` for its members.
    fn list(&mut self, node: Option<usize>, list: List, values: &[ValueId]) {
        self.mark += 1;
        for &value in values {
            if !self.in_range(value) {
                let n_values = self.spec.values.len();
                self.push(node, ProblemFaultKind::OutOfRange { list, value, n_values });
            } else if self.seen[value.index()] == self.mark {
                self.push(node, ProblemFaultKind::Duplicate { list, value });
            } else {
                self.seen[value.index()] = self.mark;
            }
        }
    }

    fn producers(&mut self) -> Vec<Producer> {
        let mut producer = vec![Producer::None; self.spec.values.len()];
        for &value in self.spec.inputs.iter().filter(|v| v.index() < self.spec.values.len()) {
            producer[value.index()] = Producer::Input;
        }
        for (n, node) in self.spec.nodes.iter().enumerate() {
            for &value in &node.outputs {
                if !self.in_range(value) {
                    continue;
                }
                let other = match producer[value.index()] {
                    Producer::None => {
                        producer[value.index()] = Producer::Node(n);
                        continue;
                    }
                    Producer::Node(m) if m == n => continue, // Reported as a duplicate.
                    Producer::Node(m) => format!("node {m} ({})", self.spec.nodes[m].name),
                    Producer::Input => "it is an input of the problem".to_string(),
                };
                let name = self.name(value);
                self.push(Some(n), ProblemFaultKind::SecondProducer { value, name, other });
            }
        }
        producer
    }

    fn order(&mut self, producer: &[Producer]) {
        let mut in_order = true;
        for (n, node) in self.spec.nodes.iter().enumerate() {
            for &value in node.inputs.iter().filter(|v| v.index() < self.spec.values.len()) {
                match producer[value.index()] {
                    Producer::Input => {}
                    Producer::Node(m) if m < n => {}
                    Producer::Node(m) => {
                        in_order = false;
                        let kind = ProblemFaultKind::OutOfOrder {
                            value,
                            name: self.name(value),
                            producer: NodeId::new(m),
                            producer_name: self.spec.nodes[m].name.clone(),
                        };
                        self.push(Some(n), kind);
                    }
                    Producer::None => {
                        let name = self.name(value);
                        self.push(Some(n), ProblemFaultKind::NoProducer { list: List::Input, value, name });
                    }
                }
            }
        }
        for &value in self.spec.outputs.iter().filter(|v| v.index() < self.spec.values.len()) {
            if producer[value.index()] == Producer::None {
                let name = self.name(value);
                self.push(None, ProblemFaultKind::NoProducer { list: List::Output, value, name });
            }
        }
        if !in_order && let Some(path) = self.find_cycle(producer) {
            self.push(None, ProblemFaultKind::Cycle { path });
        }
    }

    /// The names along one cycle, or nothing when the nodes are merely in the wrong order.
    fn find_cycle(&self, producer: &[Producer]) -> Option<Vec<String>> {
        let nodes = &self.spec.nodes;
        let predecessors = |n: usize| {
            nodes[n].inputs.iter().filter_map(|v| match producer.get(v.index()) {
                Some(&Producer::Node(m)) => Some(m),
                _ => None,
            })
        };
        // Depth-first with an explicit stack of (node, predecessors still to visit).
        let mut state = vec![Visit::New; nodes.len()];
        for root in 0..nodes.len() {
            let mut stack = vec![(root, predecessors(root))];
            if state[root] != Visit::New {
                continue;
            }
            state[root] = Visit::Open;
            while let Some((n, rest)) = stack.last_mut() {
                match rest.next() {
                    Some(m) if state[m] == Visit::New => {
                        state[m] = Visit::Open;
                        stack.push((m, predecessors(m)));
                    }
                    Some(m) if state[m] == Visit::Open => {
                        let from =
                            stack.iter().position(|&(n, _)| n == m).expect("open nodes are on the stack");
                        let mut path: Vec<usize> = stack[from..].iter().map(|&(n, _)| n).collect();
                        path.push(m);
                        path.reverse();
                        return Some(path.into_iter().map(|n| format!("{n} ({})", nodes[n].name)).collect());
                    }
                    Some(_) => {}
                    None => {
                        state[*n] = Visit::Done;
                        stack.pop();
                    }
                }
            }
        }
        None
    }

    fn consumption(&mut self) {
        let spec = self.spec;
        let n_values = spec.values.len();
        let mut last_reader = vec![None; n_values];
        for (n, node) in spec.nodes.iter().enumerate() {
            for value in node.inputs.iter().filter(|v| v.index() < n_values) {
                last_reader[value.index()] = Some(n);
            }
        }
        let mut is_output = vec![false; n_values];
        for value in spec.outputs.iter().filter(|v| v.index() < n_values) {
            is_output[value.index()] = true;
        }
        for (n, node) in spec.nodes.iter().enumerate().filter(|(_, node)| !node.consumes.is_empty()) {
            if node.recompute {
                self.push(Some(n), ProblemFaultKind::ConsumesAndRecomputes);
            }
            let valid: Vec<ValueId> = node.consumes.iter().copied().filter(|&v| self.in_range(v)).collect();
            for &value in &valid {
                let name = self.name(value);
                if is_output[value.index()] {
                    self.push(Some(n), ProblemFaultKind::ConsumesOutput { value, name });
                } else if let Some(reader) = last_reader[value.index()].filter(|&reader| reader > n) {
                    let reader_name = spec.nodes[reader].name.clone();
                    let reader = NodeId::new(reader);
                    self.push(
                        Some(n),
                        ProblemFaultKind::ConsumesTooEarly { value, name, reader, reader_name },
                    );
                }
            }
            let total = |values: &[ValueId]| {
                values
                    .iter()
                    .filter(|v| v.index() < n_values)
                    .fold(0u64, |sum, v| sum.saturating_add(spec.values[v.index()].bytes.0))
            };
            let (consumed, made) = (total(&valid), total(&node.outputs));
            if consumed > made {
                self.push(Some(n), ProblemFaultKind::ConsumesTooMuch { consumed, made });
            }
        }
    }

    fn sums(&mut self) {
        let spec = self.spec;
        let values: u128 = spec.values.iter().map(|value| u128::from(value.bytes.0)).sum();
        let workspace = spec.nodes.iter().map(|node| u128::from(node.workspace_bytes.0)).max().unwrap_or(0);
        if 2 * values + workspace + u128::from(spec.fixed_bytes.0) > i64::MAX as u128 {
            self.push(None, ProblemFaultKind::SizeOverflow);
        }
        let costs: f64 = spec.nodes.iter().map(|node| node.cost).filter(|cost| cost.is_finite()).sum();
        if !costs.is_finite() {
            self.push(None, ProblemFaultKind::CostOverflow);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Producer {
    None,
    Input,
    Node(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Open,
    Done,
}
