//! The independent checker: does a plan do what it claims?
//!
//! In: a problem and any plan. Out: the faults; beyond a thousand they are counted only. It shares no code with the
//! simulator or the planners: it follows the steps forwards with a live set ([`walk`]) and with the ends of all copies
//! ([`clock`]), item by item as docs/formats.md defines them, and carries on after a fault as if the step had been valid.
//! Time: linear in the steps and the operands that they touch, and n log n in the copies, so it runs in release builds too.
//! Sums of bytes are made in 128 bits and cannot wrap; a cost that is not a finite number agrees with nothing.

mod clock;
mod walk;

use crate::ids::{NodeId, StoreId, ValueId};
use crate::names::{Capped, Names, Tell, tells};
use crate::plan::{Plan, Status};
use crate::problem::Problem;
use crate::short::Short;
use std::fmt;
use walk::Walk;

/// Sums of fractional costs may differ by this much, relatively; whole numbers agree exactly.
const COST_TOLERANCE: f64 = 1e-9;

/// One way in which a plan is wrong.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum Fault {
    OtherProblem { plan: String, problem: String },
    NoSuchNode { at: usize, node: NodeId },
    NoSuchValue { at: usize, value: ValueId },
    Unavailable { at: usize, node: NodeId, value: ValueId },
    RunsAgain { at: usize, node: NodeId },
    FreedWhenDead { at: usize, value: ValueId },
    OverBudget { at: usize, node: NodeId, used: u128, budget: u64 },
    CopyOverBudget { at: usize, value: ValueId, used: u128, budget: u64 },
    NoSuchStore { at: usize, store: StoreId },
    MayNotMove { at: usize, value: ValueId },
    OutWhenDead { at: usize, value: ValueId },
    OutTwice { at: usize, value: ValueId, store: StoreId },
    InWhenLive { at: usize, value: ValueId },
    NotStored { at: usize, value: ValueId, store: StoreId },
    OverCapacity { at: Option<usize>, store: StoreId, held: u128, capacity: u64 },
    StoredNotCarried { value: ValueId },
    StoredTwice { value: ValueId, store: StoreId },
    StoredMayNotMove { value: ValueId },
    CarryLost { value: ValueId, store: StoreId },
    NeverRuns { node: NodeId },
    OutputLost { value: ValueId },
    WrongPeak { claimed: u64, measured: u128 },
    WrongCost { claimed: f64, measured: f64 },
    EndlessCost { measured: f64 },
    BoundAboveCost { bound: f64, cost: f64 },
    InfeasibleWithSteps,
    OptimalWithoutBound { bound: Option<f64> },
    More { n: usize },
}

tells!(Fault);

impl Tell for Fault {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        let (name, value_name) = (|id| names.node(id), |id| names.value(id));
        match *self {
            Fault::OtherProblem { ref plan, ref problem } => {
                write!(f, "the plan is for the problem `{}`, not for `{}`", Short(plan), Short(problem))
            }
            Fault::NoSuchNode { at, node } => write!(f, "step {at}: there is no node {node}"),
            Fault::NoSuchValue { at, value } => write!(f, "step {at}: there is no value {value}"),
            Fault::Unavailable { at, node, value } => {
                let (node, value) = (name(node), value_name(value));
                write!(f, "step {at}: node {node} needs value {value}, which is not live")
            }
            Fault::RunsAgain { at, node } => write!(f, "step {at}: node {} must not run again", name(node)),
            Fault::FreedWhenDead { at, value } => {
                write!(f, "step {at}: value {} is freed, but not live", value_name(value))
            }
            Fault::OverBudget { at, node, used, budget } => {
                let (node, over) = (name(node), used.saturating_sub(u128::from(budget)));
                write!(
                    f,
                    "step {at}: node {node} needs {used} bytes, {over} over the budget of {budget} bytes"
                )
            }
            Fault::CopyOverBudget { at, value, used, budget } => {
                let (value, over) = (value_name(value), used.saturating_sub(u128::from(budget)));
                write!(
                    f,
                    "step {at}: with the copy into value {value}, {used} bytes are live, {over} over the budget of \
                     {budget} bytes"
                )
            }
            Fault::NoSuchStore { at, store } => write!(f, "step {at}: there is no store {store}"),
            Fault::MayNotMove { at, value } => {
                write!(f, "step {at}: value {} may not be copied to or from a store", value_name(value))
            }
            Fault::OutWhenDead { at, value } => {
                write!(f, "step {at}: value {} is copied out, but not live", value_name(value))
            }
            Fault::OutTwice { at, value, store } => {
                let (value, store) = (value_name(value), names.store(store));
                write!(f, "step {at}: value {value} is copied out, but is already in store {store}")
            }
            Fault::InWhenLive { at, value } => {
                write!(f, "step {at}: value {} is copied in, but already live", value_name(value))
            }
            Fault::NotStored { at, value, store } => {
                write!(f, "step {at}: value {} is not in store {}", value_name(value), names.store(store))
            }
            Fault::OverCapacity { at, store, held, capacity } => {
                match at {
                    Some(at) => write!(f, "step {at}")?,
                    None => f.write_str("at the start")?,
                }
                let store = names.store(store);
                write!(f, ": store {store} holds {held} bytes, more than its capacity of {capacity} bytes")
            }
            Fault::StoredNotCarried { value } => {
                let value = value_name(value);
                write!(
                    f,
                    "value {value} is in a store at the start, but is not the input of a pair of carries"
                )
            }
            Fault::StoredTwice { value, store } => {
                let (value, store) = (value_name(value), names.store(store));
                write!(f, "value {value} is listed twice as in store {store} at the start")
            }
            Fault::StoredMayNotMove { value } => {
                let value = value_name(value);
                write!(f, "value {value} is in a store at the start, but may not be copied to or from one")
            }
            Fault::CarryLost { value, store } => {
                let (value, store) = (value_name(value), names.store(store));
                write!(
                    f,
                    "value {value} is not in store {store} at the end, where the next step looks for it"
                )
            }
            Fault::NeverRuns { node } => write!(f, "node {} never runs", name(node)),
            Fault::OutputLost { value } => write!(f, "output {} is not live at the end", value_name(value)),
            Fault::WrongPeak { claimed, measured } => {
                write!(f, "the plan claims a peak of {claimed} bytes, but has {measured}")
            }
            Fault::WrongCost { claimed, measured } => {
                write!(f, "the plan claims the cost {claimed}, but costs {measured}")
            }
            Fault::EndlessCost { measured } => {
                write!(f, "the costs of the steps add up to {measured}, which is no finite number")
            }
            Fault::BoundAboveCost { bound, cost } => {
                write!(f, "the plan claims the lower bound {bound}, but costs only {cost}")
            }
            Fault::InfeasibleWithSteps => f.write_str("the plan says it is infeasible, yet it has steps"),
            Fault::OptimalWithoutBound { bound: Some(bound) } => {
                write!(f, "the plan claims to be optimal, but its lower bound is {bound}")
            }
            Fault::OptimalWithoutBound { bound: None } => {
                f.write_str("the plan claims to be optimal, but its lower bound is missing")
            }
            Fault::More { n } => write!(f, "there are {n} further faults"),
        }
    }
}

/// The faults of a plan; none means that it is valid and has the peak and the cost that it claims. A lower bound, and so the
/// status `optimal`, stays a claim: see [`proves_optimal`].
pub fn check(problem: &Problem, plan: &Plan) -> Vec<Fault> {
    let mut faults = Capped::new();
    if plan.problem != problem.name {
        faults.push(Fault::OtherProblem { plan: plan.problem.clone(), problem: problem.name.clone() });
    }
    if plan.status == Status::Infeasible {
        if !plan.steps.is_empty() {
            faults.push(Fault::InfeasibleWithSteps);
        }
        return faults.finish(|n| Fault::More { n });
    }
    let walked = Walk::new(problem, plan, &mut faults).run();

    for (index, _) in walked.runs.iter().enumerate().filter(|(_, times)| **times == 0) {
        faults.push(Fault::NeverRuns { node: NodeId::new(index) });
    }
    let claimed = plan.peak_bytes.0;
    if u128::from(claimed) != walked.peak {
        faults.push(Fault::WrongPeak { claimed, measured: walked.peak });
    }
    let cost = walked.cost;
    if !cost.is_finite() {
        faults.push(Fault::EndlessCost { measured: cost });
    }
    if !same_cost(cost, plan.cost) {
        faults.push(Fault::WrongCost { claimed: plan.cost, measured: cost });
    }
    if let Some(bound) = plan.lower_bound
        && !(bound <= cost || same_cost(bound, cost))
    {
        faults.push(Fault::BoundAboveCost { bound, cost });
    }
    if plan.status == Status::Optimal && !plan.lower_bound.is_some_and(|bound| same_cost(bound, cost)) {
        faults.push(Fault::OptimalWithoutBound { bound: plan.lower_bound });
    }
    faults.finish(|n| Fault::More { n })
}

/// Whether a valid plan is optimal for a reason that needs no search: it runs every node once and never waits for a copy, and
/// no plan costs less than that. Of any other plan that says `optimal`, this is what its maker claims.
pub fn proves_optimal(problem: &Problem, plan: &Plan) -> bool {
    plan.status != Status::Infeasible
        && plan.computes().count() == problem.nodes.len()
        && (!plan.uses_stores() || same_cost(plan.cost, problem.base_cost()))
}

/// Numbers that are not finite agree with nothing.
fn same_cost(a: f64, b: f64) -> bool {
    a.is_finite() && b.is_finite() && (a == b || (a - b).abs() <= COST_TOLERANCE * a.abs().max(b.abs()))
}
