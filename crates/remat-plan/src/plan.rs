//! A plan: the sequence of computes and frees that carries out one training step, with what it claims of itself.
//!
//! In: a planner's result or `remat.plan/1` JSON. Out: plain data. Reading checks only what is needed to use the
//! data safely (the problem's name, ids in range); whether the plan is valid is for [`crate::check()`] to say.

use crate::ids::{NodeId, ValueId};
use crate::lines::TextError;
use crate::problem::{Problem, without_position};
use crate::short::Short;
use crate::shown::Shown;
use crate::units::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The name that a plan file must give in its `schema` field.
pub const PLAN_SCHEMA: &str = "remat.plan/1";

/// One step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Run a node; its inputs must be live, its outputs are live afterwards.
    Compute(NodeId),
    /// Give the storage of a live value back.
    Free(ValueId),
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Step::Compute(node) => ("compute", node).serialize(serializer),
            Step::Free(value) => ("free", value).serialize(serializer),
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
        let (kind, id) = <(String, u32)>::deserialize(deserializer)?;
        match kind.as_str() {
            "compute" => Ok(Step::Compute(NodeId(id))),
            "free" => Ok(Step::Free(ValueId(id))),
            other => Err(D::Error::custom(format!("unknown step `{other}`, expected `compute` or `free`"))),
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
    /// Largest memory over all compute steps.
    pub peak_bytes: Bytes,
    /// Sum of the costs of all compute steps.
    pub cost: f64,
    /// No plan within the budget costs less than this, if a bound is known.
    pub lower_bound: Option<f64>,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

/// Why a text is not a plan for a problem.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PlanError {
    /// Not JSON, or JSON of another shape.
    #[error("the plan is not valid `remat.plan/1` JSON: line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Not the text form.
    #[error("the plan is not valid `remat.plan/1` text: {0}")]
    Text(#[from] TextError),
    /// Another kind of file.
    #[error("the plan's `schema` is {}, not \"remat.plan/1\"", found.as_ref().map_or("missing".into(), |s| format!("{s:?}")))]
    Schema {
        /// What the file says.
        found: Option<String>,
    },
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
    #[error("step {at} frees value {value}, but the problem has only {n_values} values")]
    NoSuchValue {
        /// Index of the step.
        at: usize,
        /// The id it names.
        value: ValueId,
        /// Number of values of the problem.
        n_values: usize,
    },
}

impl PlanError {
    fn json(error: serde_json::Error) -> PlanError {
        PlanError::Json { line: error.line(), column: error.column(), message: without_position(&error) }
    }
}

impl Plan {
    /// Reads `remat.plan/1` for the given problem.
    pub fn from_json(text: &str, problem: &Problem) -> Result<Plan, PlanError> {
        #[derive(Deserialize)]
        struct Header {
            schema: Option<String>,
        }
        let header: Header = serde_json::from_str(text).map_err(PlanError::json)?;
        if header.schema.as_deref() != Some(PLAN_SCHEMA) {
            return Err(PlanError::Schema { found: header.schema });
        }
        let plan: Plan = serde_json::from_str(text).map_err(PlanError::json)?;
        plan.for_problem(problem)
    }

    /// A plan as it was read, if it suits the problem; its words are as printable as those of a problem.
    pub(crate) fn for_problem(mut self, problem: &Problem) -> Result<Plan, PlanError> {
        [&mut self.problem, &mut self.planner].into_iter().for_each(Shown::make);
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
        for (at, &step) in self.steps.iter().enumerate() {
            match step {
                Step::Compute(node) if node.index() >= n_nodes => {
                    return Err(PlanError::NoSuchNode { at, node, n_nodes });
                }
                Step::Free(value) if value.index() >= n_values => {
                    return Err(PlanError::NoSuchValue { at, value, n_values });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes `remat.plan/1`.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            schema: &'static str,
            #[serde(flatten)]
            plan: &'a Plan,
        }
        serde_json::to_string(&File { schema: PLAN_SCHEMA, plan: self })
            .expect("a plan has string keys, and numbers that are not finite are written as null")
    }

    /// The nodes in the order in which they run, recomputes included.
    pub fn computes(&self) -> impl Iterator<Item = NodeId> {
        self.steps.iter().filter_map(|step| match step {
            Step::Compute(node) => Some(*node),
            Step::Free(_) => None,
        })
    }
}
