//! The independent checker: does a plan do what it claims?
//!
//! In: a problem and any plan. Out: every fault. It shares no code with the simulator or the planners: it follows the
//! steps forwards with an ordered live set, item by item as docs/formats.md defines them, and carries on after a
//! fault as if the step had been valid. Time: O(steps log values), so it runs in release builds too.

use crate::ids::{NodeId, ValueId};
use crate::plan::{Plan, Status, Step};
use crate::problem::Problem;
use std::collections::BTreeSet;
use thiserror::Error;

/// Sums of fractional costs may differ by this much, relatively; whole numbers agree exactly.
const COST_TOLERANCE: f64 = 1e-9;

/// One way in which a plan is wrong.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // The messages say what the variants and their fields mean.
pub enum Fault {
    #[error("the plan is for the problem `{plan}`, not for `{problem}`")]
    OtherProblem { plan: String, problem: String },
    #[error("step {at}: there is no node {node}")]
    NoSuchNode { at: usize, node: NodeId },
    #[error("step {at}: there is no value {value}")]
    NoSuchValue { at: usize, value: ValueId },
    #[error("step {at}: node {node} ({name}) needs value {value} ({value_name}), which is not live")]
    Unavailable { at: usize, node: NodeId, name: String, value: ValueId, value_name: String },
    #[error("step {at}: node {node} ({name}) must not run again")]
    RunsAgain { at: usize, node: NodeId, name: String },
    #[error("step {at}: value {value} ({name}) is freed, but not live")]
    FreedWhenDead { at: usize, value: ValueId, name: String },
    #[error("step {at}: node {node} ({name}) needs {used} bytes, {} over the budget of {budget} bytes", used - budget)]
    OverBudget { at: usize, node: NodeId, name: String, used: u64, budget: u64 },
    #[error("node {node} ({name}) never runs")]
    NeverRuns { node: NodeId, name: String },
    #[error("output {value} ({name}) is not live at the end")]
    OutputLost { value: ValueId, name: String },
    #[error("the plan claims a peak of {claimed} bytes, but has {measured}")]
    WrongPeak { claimed: u64, measured: u64 },
    #[error("the plan claims the cost {claimed}, but costs {measured}")]
    WrongCost { claimed: f64, measured: f64 },
    #[error("the plan claims the lower bound {bound}, which is above its own cost {cost}")]
    BoundAboveCost { bound: f64, cost: f64 },
    #[error("the plan says it is infeasible, yet it has steps")]
    InfeasibleWithSteps,
    #[error("the plan claims to be optimal, but its lower bound is {}", bound.map_or("missing".to_string(), |b| b.to_string()))]
    OptimalWithoutBound { bound: Option<f64> },
}

/// All faults of a plan; none means that it is valid and keeps every promise it makes.
pub fn check(problem: &Problem, plan: &Plan) -> Vec<Fault> {
    let mut faults = Vec::new();
    if plan.problem != problem.name {
        faults.push(Fault::OtherProblem { plan: plan.problem.clone(), problem: problem.name.clone() });
    }
    if plan.status == Status::Infeasible {
        if !plan.steps.is_empty() {
            faults.push(Fault::InfeasibleWithSteps);
        }
        return faults;
    }
    let (peak, runs) = walk(problem, plan, &mut faults);

    for (index, node) in problem.nodes.iter().enumerate() {
        if runs[index] == 0 {
            faults.push(Fault::NeverRuns { node: NodeId::new(index), name: node.name.clone() });
        }
    }
    let claimed = plan.peak_bytes.0;
    if claimed != peak {
        faults.push(Fault::WrongPeak { claimed, measured: peak });
    }
    let cost: f64 = problem.nodes.iter().zip(&runs).map(|(node, &times)| node.cost * times as f64).sum();
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
    faults
}

fn same_cost(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= COST_TOLERANCE * a.abs().max(b.abs())
}

/// Follows the steps; returns the peak and how often each node ran.
fn walk(problem: &Problem, plan: &Plan, faults: &mut Vec<Fault>) -> (u64, Vec<u64>) {
    let bytes = |v: ValueId| problem.values[v.index()].bytes.0;
    let value_name = |v: ValueId| problem.values[v.index()].name.clone();
    let mut live: BTreeSet<ValueId> = problem.inputs.iter().copied().collect();
    let mut live_bytes: u64 = live.iter().map(|&v| bytes(v)).sum();
    let mut runs = vec![0u64; problem.nodes.len()];
    let mut peak = None;

    for (at, step) in plan.steps.iter().enumerate() {
        let id = match *step {
            Step::Free(value) if value.index() >= problem.values.len() => {
                faults.push(Fault::NoSuchValue { at, value });
                continue;
            }
            Step::Free(value) => {
                if live.remove(&value) {
                    live_bytes -= bytes(value);
                } else {
                    faults.push(Fault::FreedWhenDead { at, value, name: value_name(value) });
                }
                continue;
            }
            Step::Compute(node) if node.index() >= problem.nodes.len() => {
                faults.push(Fault::NoSuchNode { at, node });
                continue;
            }
            Step::Compute(node) => node,
        };
        let node = &problem.nodes[id.index()];
        for &value in node.inputs.iter().filter(|v| !live.contains(v)) {
            let (name, value_name) = (node.name.clone(), value_name(value));
            faults.push(Fault::Unavailable { at, node: id, name, value, value_name });
        }
        runs[id.index()] += 1;
        if runs[id.index()] > 1 && !node.recompute {
            faults.push(Fault::RunsAgain { at, node: id, name: node.name.clone() });
        }

        // What is in memory while the node runs, item by item: what was live and is not overwritten, ...
        let mut used = problem.fixed_bytes.0 + node.workspace_bytes.0;
        used +=
            live_bytes - node.consumes.iter().filter(|v| live.contains(v)).map(|&v| bytes(v)).sum::<u64>();
        // ... and every output, unless it sits in the storage of an input that dies here.
        let mut donors: Vec<ValueId> = Vec::new();
        let mut placed: Vec<ValueId> = Vec::new();
        for &(input, output) in &node.reuse {
            let dies = plan.steps[at + 1..]
                .iter()
                .take_while(|step| matches!(step, Step::Free(_)))
                .any(|step| *step == Step::Free(input));
            let allowed = dies
                && bytes(output) <= bytes(input)
                && !live.contains(&output)
                && !node.consumes.contains(&input)
                && !donors.contains(&input)
                && !placed.contains(&output);
            if allowed {
                donors.push(input);
                placed.push(output);
            }
        }
        used += node.outputs.iter().filter(|v| !placed.contains(v)).map(|&v| bytes(v)).sum::<u64>();

        if used > plan.budget_bytes.0 {
            let (name, budget) = (node.name.clone(), plan.budget_bytes.0);
            faults.push(Fault::OverBudget { at, node: id, name, used, budget });
        }
        peak = peak.max(Some(used));
        live_bytes -= node.consumes.iter().filter(|v| live.remove(v)).map(|&v| bytes(v)).sum::<u64>();
        live_bytes += node.outputs.iter().filter(|v| live.insert(**v)).map(|&v| bytes(v)).sum::<u64>();
    }
    for &value in problem.outputs.iter().filter(|v| !live.contains(v)) {
        faults.push(Fault::OutputLost { value, name: value_name(value) });
    }
    // Without any compute step, what is resident at the start is all there is.
    let at_start = problem.fixed_bytes.0 + problem.inputs.iter().map(|&v| bytes(v)).sum::<u64>();
    (peak.unwrap_or(at_start), runs)
}
