//! The independent checker: does a plan do what it claims?
//!
//! In: a problem and any plan. Out: the faults; beyond a thousand they are counted only. It shares no code with the
//! simulator or the planners: it follows the steps forwards with a live set, item by item as docs/formats.md defines them,
//! and carries on after a fault as if the step had been valid. Time: linear in the steps and the operands that they touch,
//! so it runs in release builds too. Sums of bytes are made in 128 bits and cannot wrap; a cost that is not a finite number
//! agrees with nothing.

use crate::ids::{NodeId, ValueId};
use crate::names::{Capped, Names, Tell, tells};
use crate::plan::{Plan, Status, Step};
use crate::problem::Problem;
use crate::short::Short;
use std::fmt;

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
    let (peak, runs) = Walk::new(problem, &mut faults).run(plan);

    for (index, _) in runs.iter().enumerate().filter(|(_, times)| **times == 0) {
        faults.push(Fault::NeverRuns { node: NodeId::new(index) });
    }
    let claimed = plan.peak_bytes.0;
    if u128::from(claimed) != peak {
        faults.push(Fault::WrongPeak { claimed, measured: peak });
    }
    let cost: f64 = problem.nodes.iter().zip(&runs).map(|(node, &times)| node.cost * times as f64).sum();
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

/// Whether a valid plan is optimal for a reason that needs no search: it runs every node once, and no plan costs less than
/// that. Of any other plan that says `optimal`, this is what its maker claims.
pub fn proves_optimal(problem: &Problem, plan: &Plan) -> bool {
    plan.status != Status::Infeasible && plan.computes().count() == problem.nodes.len()
}

/// Numbers that are not finite agree with nothing.
fn same_cost(a: f64, b: f64) -> bool {
    a.is_finite() && b.is_finite() && (a == b || (a - b).abs() <= COST_TOLERANCE * a.abs().max(b.abs()))
}

/// The live set while the steps are followed.
struct Walk<'a> {
    problem: &'a Problem,
    faults: &'a mut Capped<Fault>,
    live: Vec<bool>,
    live_bytes: u128,
    runs: Vec<u64>,
    /// One mark per value and role; a mark that equals the number of the current step (from 1) is set.
    dies: Vec<usize>,
    overwritten: Vec<usize>,
    donor: Vec<usize>,
    placed: Vec<usize>,
}

impl<'a> Walk<'a> {
    fn new(problem: &'a Problem, faults: &'a mut Capped<Fault>) -> Walk<'a> {
        let unmarked = vec![0; problem.values.len()];
        let mut walk = Walk {
            problem,
            faults,
            live: vec![false; problem.values.len()],
            live_bytes: 0,
            runs: vec![0; problem.nodes.len()],
            dies: unmarked.clone(),
            overwritten: unmarked.clone(),
            donor: unmarked.clone(),
            placed: unmarked,
        };
        for &value in &problem.inputs {
            walk.enter(value);
        }
        walk
    }

    fn bytes(&self, value: ValueId) -> u128 {
        u128::from(self.problem.values[value.index()].bytes.0)
    }

    fn enter(&mut self, value: ValueId) {
        if !std::mem::replace(&mut self.live[value.index()], true) {
            self.live_bytes += self.bytes(value);
        }
    }

    fn leave(&mut self, value: ValueId) -> bool {
        let was_live = std::mem::replace(&mut self.live[value.index()], false);
        if was_live {
            self.live_bytes -= self.bytes(value);
        }
        was_live
    }

    /// Follows the steps; returns the peak and how often each node ran.
    fn run(mut self, plan: &Plan) -> (u128, Vec<u64>) {
        // Without any compute step, what is resident at the start is all there is.
        let at_start = u128::from(self.problem.fixed_bytes.0) + self.live_bytes;
        let mut peak = None;
        for (at, step) in plan.steps.iter().enumerate() {
            match *step {
                Step::Free(value) if value.index() >= self.problem.values.len() => {
                    self.faults.push(Fault::NoSuchValue { at, value });
                }
                Step::Free(value) => {
                    if !self.leave(value) {
                        self.faults.push(Fault::FreedWhenDead { at, value });
                    }
                }
                Step::Compute(node) if node.index() >= self.problem.nodes.len() => {
                    self.faults.push(Fault::NoSuchNode { at, node });
                }
                Step::Compute(node) => {
                    let used = self.compute(node, at, &plan.steps[at + 1..]);
                    if used > u128::from(plan.budget_bytes.0) {
                        let budget = plan.budget_bytes.0;
                        self.faults.push(Fault::OverBudget { at, node, used, budget });
                    }
                    peak = peak.max(Some(used));
                }
            }
        }
        let problem = self.problem;
        for &value in problem.outputs.iter().filter(|v| !self.live[v.index()]) {
            self.faults.push(Fault::OutputLost { value });
        }
        (peak.unwrap_or(at_start), self.runs)
    }

    /// Runs a node and returns the memory while it runs.
    fn compute(&mut self, id: NodeId, at: usize, later: &[Step]) -> u128 {
        let problem = self.problem;
        let node = &problem.nodes[id.index()];
        for &value in node.inputs.iter().filter(|v| !self.live[v.index()]) {
            self.faults.push(Fault::Unavailable { at, node: id, value });
        }
        self.runs[id.index()] += 1;
        if self.runs[id.index()] > 1 && !node.recompute {
            self.faults.push(Fault::RunsAgain { at, node: id });
        }

        // What is in memory while the node runs, item by item: what was live and is not overwritten, ...
        let mark = at + 1;
        let mut used =
            u128::from(problem.fixed_bytes.0) + u128::from(node.workspace_bytes.0) + self.live_bytes;
        for &value in &node.consumes {
            self.overwritten[value.index()] = mark;
            if self.live[value.index()] {
                used -= self.bytes(value);
            }
        }
        // ... and every output, unless it sits in the storage of an input that dies here.
        if !node.reuse.is_empty() {
            for step in later {
                let Step::Free(value) = *step else { break };
                if let Some(dies) = self.dies.get_mut(value.index()) {
                    *dies = mark;
                }
            }
        }
        for &(input, output) in &node.reuse {
            let (i, o) = (input.index(), output.index());
            let allowed = self.dies[i] == mark
                && self.bytes(output) <= self.bytes(input)
                && !self.live[o]
                && self.overwritten[i] != mark
                && self.donor[i] != mark
                && self.placed[o] != mark;
            if allowed {
                self.donor[i] = mark;
                self.placed[o] = mark;
            }
        }
        for &value in node.outputs.iter().filter(|v| self.placed[v.index()] != mark) {
            used += self.bytes(value);
        }
        for &value in &node.consumes {
            self.leave(value);
        }
        for &value in &node.outputs {
            self.enter(value);
        }
        used
    }
}
