//! What a planner answers. That a budget cannot be met is an answer, not an error.

use crate::ids::NodeId;
use crate::plan::{Plan, Status};
use crate::problem::Problem;
use crate::units::Bytes;
use std::fmt;

/// The answer of a planner.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// No valid plan within the budget costs less.
    Optimal(Plan),
    /// Within the budget; the planner stopped for the given reason.
    Feasible(Plan, StopReason),
    /// No plan within the budget was found.
    Infeasible {
        /// The smallest peak seen: what the user could ask for instead.
        lowest_peak: Bytes,
        /// Whether that is a proof, and of what kind.
        why: Why,
    },
}

/// Why a planner stopped with a plan that it did not prove optimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// The budget is met, which is all the planner aims for.
    BudgetMet,
    /// The planner tried all it knows.
    SearchExhausted,
    /// No plan that keeps the problem's order, with one run per node between two first runs, costs less; another
    /// order might.
    OptimalInOrder,
    /// The limit on time was reached.
    TimeLimit,
    /// The limit on work was reached.
    WorkLimit,
    /// Nothing costs less without the stores of the problem, which the planner does not use.
    StoresUnused,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopReason::BudgetMet => "the budget is met",
            StopReason::SearchExhausted => "the search is exhausted",
            StopReason::OptimalInOrder => "no plan in the problem's order costs less",
            StopReason::TimeLimit => "the time limit is reached",
            StopReason::WorkLimit => "the work limit is reached",
            StopReason::StoresUnused => "no plan that leaves the stores unused costs less",
        })
    }
}

/// A peak that no plan can go below, and the node that sets it.
#[derive(Clone, PartialEq, Debug)]
pub struct Floor {
    /// The lower bound of the peak of any plan.
    pub bytes: Bytes,
    /// The node that sets it; `None` when the problem has no nodes.
    pub node: Option<NodeId>,
    /// The name of that node.
    pub node_name: String,
    /// Fixed bytes of the problem.
    pub fixed: Bytes,
    /// Inputs and outputs of the node, less what it overwrites or may share.
    pub operands: Bytes,
    /// Workspace of the node.
    pub workspace: Bytes,
    /// Other values that are live whenever the node first runs.
    pub lasting: Bytes,
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            None => write!(f, "the fixed memory and the inputs alone take {}", self.bytes),
            Some(node) => write!(
                f,
                "node {node} ({}) alone needs {}: {} for its operands, {} workspace, {} fixed, {} of other values that \
                 must be live then",
                self.node_name, self.bytes, self.operands, self.workspace, self.fixed, self.lasting
            ),
        }
    }
}

/// Why no plan was found.
#[derive(Clone, PartialEq, Debug)]
pub enum Why {
    /// Proof: one node alone needs more than the budget, whatever the plan.
    BelowFloor(Floor),
    /// Proof: when this node first runs, the values that are then needed later do not fit beside it, even if
    /// everything that can be recomputed is.
    CutTooLarge {
        /// The node.
        node: NodeId,
        /// Its name.
        node_name: String,
    },
    /// Proof: all plans were searched.
    Exhausted,
    /// This planner never came below `lowest_peak`; another may.
    NotReached,
    /// The planner's own model of memory was too optimistic: its plan has the peak `lowest_peak`.
    Mispredicted {
        /// The peak that the planner counted on.
        believed: Bytes,
    },
    /// The planner does not apply to this problem.
    NotApplicable(String),
}

impl Why {
    /// Whether it proves that no plan at all meets the budget.
    pub fn is_proof(&self) -> bool {
        matches!(self, Why::BelowFloor(_) | Why::CutTooLarge { .. } | Why::Exhausted)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::BelowFloor(floor) => write!(f, "no plan exists: {floor}"),
            Why::CutTooLarge { node, node_name } => write!(
                f,
                "no plan exists: when node {node} ({node_name}) first runs, the values needed later do not fit beside it"
            ),
            Why::Exhausted => write!(f, "no plan exists: all were searched"),
            Why::NotReached => write!(f, "this planner found no plan with a lower peak; another may"),
            Why::Mispredicted { believed } => {
                write!(f, "the planner's own memory model promises a peak of {believed}, which is not true")
            }
            Why::NotApplicable(reason) => write!(f, "the planner does not apply: {reason}"),
        }
    }
}

impl Outcome {
    /// The plan, if there is one.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => Some(plan),
            Outcome::Infeasible { .. } => None,
        }
    }

    /// The answer in the form of the file format, where an infeasible answer is a plan without steps.
    pub fn to_plan(&self, problem: &Problem, planner: &str, budget: Bytes) -> Plan {
        match self {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => plan.clone(),
            Outcome::Infeasible { lowest_peak, .. } => Plan {
                problem: problem.name.clone(),
                planner: planner.to_string(),
                status: Status::Infeasible,
                budget_bytes: budget,
                peak_bytes: *lowest_peak,
                cost: 0.0,
                lower_bound: None,
                stored: Vec::new(),
                steps: Vec::new(),
            },
        }
    }
}
