//! A plan: the sequence of computes, frees and copies that carries out one training step, with what it claims of itself.
//!
//! In: a planner's result or `remat.plan/1` or `/2` JSON. Out: plain data. Reading checks only what is needed to use the
//! data safely (the problem's name, ids in range); whether the plan is valid is for [`crate::check()`] to say.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::lines::TextError;
use crate::problem::{Problem, without_position};
use crate::short::Short;
use crate::shown::Shown;
use crate::units::Bytes;
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use thiserror::Error;

/// The name that a plan file gives in its `schema` field.
pub const PLAN_SCHEMA: &str = "remat.plan/1";

/// The name where the plan uses stores, which the first version of the format does not know.
pub const PLAN_SCHEMA_2: &str = "remat.plan/2";

/// One step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Run a node; its inputs must be live, its outputs are live afterwards.
    Compute(NodeId),
    /// Give the storage of a live value back, when the copies of it that are under way have ended.
    Free(ValueId),
    /// Begin to copy a live value to a store. It stays live.
    Out(ValueId, StoreId),
    /// Begin to copy a stored value into new memory. It is live from here on; what reads it waits for the copy.
    In(ValueId, StoreId),
    /// Give the place of a stored value back.
    Discard(ValueId, StoreId),
}

impl Step {
    /// Whether only the second version of the format knows it.
    pub fn uses_store(self) -> bool {
        matches!(self, Step::Out(..) | Step::In(..) | Step::Discard(..))
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Step::Compute(node) => ("compute", node).serialize(serializer),
            Step::Free(value) => ("free", value).serialize(serializer),
            Step::Out(value, store) => ("out", value, store).serialize(serializer),
            Step::In(value, store) => ("in", value, store).serialize(serializer),
            Step::Discard(value, store) => ("discard", value, store).serialize(serializer),
        }
    }
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 3] = [Status::Optimal, Status::Feasible, Status::Infeasible];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Status::Optimal => "optimal",
            Status::Feasible => "feasible",
            Status::Infeasible => "infeasible",
        }
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Step, D::Error> {
        deserializer.deserialize_seq(StepReader)
    }
}

/// Reads the list that a step is in JSON; its first word says how long it is.
struct StepReader;

impl<'de> Visitor<'de> for StepReader {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step such as [\"compute\", 0]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Step, A::Error> {
        fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(
            list: &mut A,
            place: usize,
        ) -> Result<T, A::Error> {
            list.next_element()?.ok_or_else(|| A::Error::invalid_length(place, &StepReader))
        }
        let kind: String = next(&mut list, 0)?;
        let step = match kind.as_str() {
            "compute" => Step::Compute(next(&mut list, 1)?),
            "free" => Step::Free(next(&mut list, 1)?),
            "out" => Step::Out(next(&mut list, 1)?, next(&mut list, 2)?),
            "in" => Step::In(next(&mut list, 1)?, next(&mut list, 2)?),
            "discard" => Step::Discard(next(&mut list, 1)?, next(&mut list, 2)?),
            other => {
                let known = "`compute`, `free`, `out`, `in` or `discard`";
                return Err(A::Error::custom(format!("unknown step `{}`, expected {known}", Short(other))));
            }
        };
        match list.next_element::<IgnoredAny>()? {
            None => Ok(step),
            Some(_) => Err(A::Error::custom(format!("a step `{kind}` has fewer elements than this one"))),
        }
    }
}

/// What is known about a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No valid plan within the budget costs less; proved.
    Optimal,
    /// Within the budget.
    Feasible,
    /// No plan was found; `peak_bytes` is the lowest peak seen.
    Infeasible,
}

/// A plan for one problem and one budget.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the problem.
    pub problem: String,
    /// Name of the planner.
    pub planner: String,
    /// What is known about the plan.
    pub status: Status,
    /// The budget it was made for.
    pub budget_bytes: Bytes,
    /// Largest memory over all computes and copies into memory.
    pub peak_bytes: Bytes,
    /// When the last compute and the last copy have ended. Without copies: the sum of the costs of all computes.
    pub cost: f64,
    /// No plan within the budget costs less than this, if a bound is known.
    pub lower_bound: Option<f64>,
    /// Inputs of the problem that are in a store at the start instead of in memory; what carries them is there at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<(ValueId, StoreId)>,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

/// Why a text is not a plan for a problem.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PlanError {
    /// Not JSON, or JSON of another shape.
    #[error("the plan is not valid `remat.plan` JSON: line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Not the text form.
    #[error("the plan is not valid `remat.plan` text: {0}")]
    Text(#[from] TextError),
    /// Another kind of file.
    #[error("the plan's `schema` is {}, not \"remat.plan/1\" or \"remat.plan/2\"", found.as_ref().map_or("missing".into(), |s| format!("{s:?}")))]
    Schema {
        /// What the file says.
        found: Option<String>,
    },
    /// A file of the first version that has more than it can say.
    #[error("the plan uses stores, which `remat.plan/1` does not know; write `remat.plan/2`")]
    NeedsVersion2,
    /// Made for another problem.
    #[error("the plan is for the problem `{}`, not for `{}`", Short(plan), Short(problem))]
    OtherProblem {
        /// The problem that the plan names.
        plan: String,
        /// The problem at hand.
        problem: String,
    },
    /// A step names a node that does not exist.
    #[error("step {at} computes node {node}, but the problem has only {n_nodes} nodes")]
    NoSuchNode {
        /// Index of the step.
        at: usize,
        /// The id it names.
        node: NodeId,
        /// Number of nodes of the problem.
        n_nodes: usize,
    },
    /// A step names a value that does not exist.
    #[error("step {at} names value {value}, but the problem has only {n_values} values")]
    NoSuchValue {
        /// Index of the step.
        at: usize,
        /// The id it names.
        value: ValueId,
        /// Number of values of the problem.
        n_values: usize,
    },
    /// A step names a store that does not exist.
    #[error("step {at} names store {store}, but the stores of the problem are {n_stores}")]
    NoSuchStore {
        /// Index of the step.
        at: usize,
        /// The id it names.
        store: StoreId,
        /// Number of stores of the problem.
        n_stores: usize,
    },
    /// The list of what is stored at the start names something that does not exist.
    #[error("the plan has value {value} in store {store} at the start, but the problem does not have both")]
    NoSuchStored {
        /// The value.
        value: ValueId,
        /// The store.
        store: StoreId,
    },
}

impl PlanError {
    fn json(error: serde_json::Error) -> PlanError {
        PlanError::Json { line: error.line(), column: error.column(), message: without_position(&error) }
    }
}

impl Plan {
    /// Reads `remat.plan/1` or `/2` for the given problem.
    pub fn from_json(text: &str, problem: &Problem) -> Result<Plan, PlanError> {
        #[derive(Deserialize)]
        struct Header {
            schema: Option<String>,
        }
        let header: Header = serde_json::from_str(text).map_err(PlanError::json)?;
        let is_first = match header.schema.as_deref() {
            Some(PLAN_SCHEMA) => true,
            Some(PLAN_SCHEMA_2) => false,
            _ => return Err(PlanError::Schema { found: header.schema }),
        };
        let plan: Plan = serde_json::from_str(text).map_err(PlanError::json)?;
        plan.for_problem(is_first, problem)
    }

    /// A plan as it was read, if it is one of its version and suits the problem; its words are as printable as those of a problem.
    pub(crate) fn for_problem(mut self, is_first: bool, problem: &Problem) -> Result<Plan, PlanError> {
        [&mut self.problem, &mut self.planner].into_iter().for_each(Shown::make);
        if is_first && self.uses_stores() {
            return Err(PlanError::NeedsVersion2);
        }
        self.suits(problem)?;
        Ok(self)
    }

    /// Whether the plan names this problem, and only ids that it has.
    fn suits(&self, problem: &Problem) -> Result<(), PlanError> {
        if self.problem != problem.name {
            return Err(PlanError::OtherProblem {
                plan: self.problem.clone(),
                problem: problem.name.clone(),
            });
        }
        let (n_nodes, n_values) = (problem.nodes.len(), problem.values.len());
        let n_stores = problem.stores.len();
        for &(value, store) in &self.stored {
            if value.index() >= n_values || store.index() >= n_stores {
                return Err(PlanError::NoSuchStored { value, store });
            }
        }
        for (at, &step) in self.steps.iter().enumerate() {
            let (value, store) = match step {
                Step::Compute(node) if node.index() >= n_nodes => {
                    return Err(PlanError::NoSuchNode { at, node, n_nodes });
                }
                Step::Compute(_) => continue,
                Step::Free(value) => (value, None),
                Step::Out(value, store) | Step::In(value, store) | Step::Discard(value, store) => {
                    (value, Some(store))
                }
            };
            if value.index() >= n_values {
                return Err(PlanError::NoSuchValue { at, value, n_values });
            }
            if let Some(store) = store.filter(|store| store.index() >= n_stores) {
                return Err(PlanError::NoSuchStore { at, store, n_stores });
            }
        }
        Ok(())
    }

    /// Whether anything is in a store at any time.
    pub fn uses_stores(&self) -> bool {
        !self.stored.is_empty() || self.steps.iter().any(|step| step.uses_store())
    }

    /// The name of the first version of the format that can hold the plan.
    pub fn schema(&self) -> &'static str {
        if self.uses_stores() { PLAN_SCHEMA_2 } else { PLAN_SCHEMA }
    }

    /// Writes JSON, of the first version where that can hold the plan.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            schema: &'static str,
            #[serde(flatten)]
            plan: &'a Plan,
        }
        serde_json::to_string(&File { schema: self.schema(), plan: self })
            .expect("a plan has string keys, and numbers that are not finite are written as null")
    }

    /// The nodes in the order in which they run, recomputes included.
    pub fn computes(&self) -> impl Iterator<Item = NodeId> {
        self.steps.iter().filter_map(|step| match step {
            Step::Compute(node) => Some(*node),
            Step::Free(_) | Step::Out(..) | Step::In(..) | Step::Discard(..) => None,
        })
    }
}
