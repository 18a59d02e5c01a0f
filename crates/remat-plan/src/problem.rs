//! The planning problem: one training step as a list of operations over sized values.
//!
//! In: a [`ProblemSpec`], written in Rust or read from `remat.problem/1` or `/2` JSON. Out: a [`Problem`], which is the same
//! data after [`validate`] found no fault, together with side tables (producer and readers of each value).
//! Invariant: ids are in range, nodes are in topological order, no sum of sizes overflows; so planners index
//! without checking. The semantics of every field is in docs/formats.md.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::lines::TextError;
use crate::problem_fault::{ProblemFault, ProblemFaultKind};
use crate::spec::{Node, ProblemSpec, Store, Value};
use crate::units::Bytes;
use crate::validate::validate;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use thiserror::Error;

/// The name that a problem file gives in its `schema` field.
pub const PROBLEM_SCHEMA: &str = "remat.problem/1";

/// The name where the problem has stores, which the first version of the format does not know.
pub const PROBLEM_SCHEMA_2: &str = "remat.problem/2";

/// Faults beyond this number are counted in messages, not listed.
const SHOWN_FAULTS: usize = 20;

/// Why a text or a specification is not a problem.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ProblemError {
    /// Not JSON, or JSON of another shape.
    #[error("the problem is not valid `remat.problem` JSON: line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Not the text form.
    #[error("the problem is not valid `remat.problem` text: {0}")]
    Text(#[from] TextError),
    /// Another kind of file.
    #[error("the problem's `schema` is {}, not \"remat.problem/1\" or \"remat.problem/2\"", found.as_ref().map_or("missing".into(), |s| format!("{s:?}")))]
    Schema {
        /// What the file says.
        found: Option<String>,
    },
    /// A file of the first version that has more than it can say.
    #[error(
        "the problem has channels, stores, `carries` or `swap`, which `remat.problem/1` does not know; write `remat.problem/2`"
    )]
    NeedsVersion2,
    /// The right form with wrong content.
    #[error("the problem has {}", listed(faults, spec))]
    Invalid {
        /// What is wrong with it.
        faults: Vec<ProblemFault>,
        /// What was refused.
        spec: Box<ProblemSpec>,
    },
}

impl ProblemError {
    fn json(error: serde_json::Error) -> ProblemError {
        let (line, column) = (error.line(), error.column());
        ProblemError::Json { line, column, message: without_position(&error) }
    }
}

fn listed(faults: &[ProblemFault], spec: &ProblemSpec) -> String {
    let (listed, n_more) = match faults {
        [listed @ .., ProblemFault { kind: ProblemFaultKind::More { n }, .. }] => (listed, *n),
        all => (all, 0),
    };
    let n_faults = listed.len() + n_more;
    let mut text = format!("{n_faults} fault{}:", if n_faults == 1 { "" } else { "s" });
    let shown = listed.iter().take(SHOWN_FAULTS);
    text.extend(shown.map(|fault| format!("\n  {}", fault.with_names(spec))));
    if n_faults > SHOWN_FAULTS {
        text += &format!("\n  ... and {} more", n_faults - SHOWN_FAULTS);
    }
    text
}

/// The message of a JSON error without the position that `serde_json` appends to it.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&suffix).unwrap_or(&message).to_string()
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
    /// Validates the data and builds the side tables, in time linear in its size. Unprintable characters of names are
    /// replaced by their escapes, so that no report, table or picture of the problem has to think of them.
    pub fn new(mut spec: ProblemSpec) -> Result<Problem, ProblemError> {
        let faults = validate(&spec);
        if !faults.is_empty() {
            return Err(ProblemError::Invalid { faults, spec: Box::new(spec) });
        }
        spec.make_names_printable();
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

    /// Reads `remat.problem/1` or `/2`. The error lists every fault with its place.
    pub fn from_json(text: &str) -> Result<Problem, ProblemError> {
        #[derive(Deserialize)]
        struct Header {
            schema: Option<String>,
        }
        let header: Header = serde_json::from_str(text).map_err(ProblemError::json)?;
        let is_first = match header.schema.as_deref() {
            Some(PROBLEM_SCHEMA) => true,
            Some(PROBLEM_SCHEMA_2) => false,
            _ => return Err(ProblemError::Schema { found: header.schema }),
        };
        Problem::of_version(is_first, serde_json::from_str(text).map_err(ProblemError::json)?)
    }

    /// The problem of a file whose first line or field says that it is of the first version, or not.
    pub(crate) fn of_version(is_first: bool, spec: ProblemSpec) -> Result<Problem, ProblemError> {
        if is_first && spec.needs_version_2() {
            return Err(ProblemError::NeedsVersion2);
        }
        Problem::new(spec)
    }

    /// The name of the first version of the format that can hold the problem.
    pub fn schema(&self) -> &'static str {
        if self.spec.needs_version_2() { PROBLEM_SCHEMA_2 } else { PROBLEM_SCHEMA }
    }

    /// Writes JSON, of the first version where that can hold the problem.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            schema: &'static str,
            #[serde(flatten)]
            spec: &'a ProblemSpec,
        }
        serde_json::to_string(&File { schema: self.schema(), spec: &self.spec })
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

    /// The store with this id.
    #[inline]
    pub fn store(&self, store: StoreId) -> &Store {
        &self.spec.stores[store.index()]
    }

    /// The same problem as if all memory were inside the budget.
    pub fn without_stores(&self) -> Problem {
        let mut problem = self.clone();
        problem.spec.stores.clear();
        problem.spec.channels.clear();
        problem
    }

    /// The same problem with copies that move `factor` times as many bytes in the same time; what any copy takes stays.
    pub fn with_faster_copies(&self, factor: f64) -> Problem {
        let mut problem = self.clone();
        for store in &mut problem.spec.stores {
            store.out.cost_per_byte /= factor;
            store.back.cost_per_byte /= factor;
        }
        problem
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
