//! The ways to make a program of a step: every planner, checkpoints by hand, and plans that no planner would make.

use super::Choices;
use super::moves::{Moved, with_moves};
use crate::error::{Error, Result};
use crate::pipeline::{Fit, Prepared, Program, checkpoint, compile, program};
use crate::profile::StoreSpeed;
use crate::store::{Kind, Setup, Trouble};
use remat_plan::{
    Bytes, NodeId, PLANNERS, Plan, Problem, Request, Status, Step, StoreId, ValueId, simulate_with,
};
use std::time::Duration;

/// Work of each planner: these graphs are small, though too large for a search through all plans.
const EFFORT: f64 = 0.002;
const EFFORT_OF_EXHAUSTIVE: f64 = 1e-5;

/// Programs, each with what it is called.
type Named = Vec<(String, Program)>;

/// A way to make programs.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// As in messages.
    pub name: &'static str,
    /// Makes programs of a step, each with what it is called.
    pub make: fn(&Prepared, &mut Choices) -> Result<Named>,
}

/// All ways. New kinds of plans join with a row.
pub const WAYS: &[Way] = &[
    Way {
        name: "keep all",
        make: |prepared, _| Ok(vec![("keep all".to_owned(), prepared.keep_all.clone())]),
    },
    Way { name: "planners", make: planners },
    Way { name: "by hand", make: by_hand },
    Way { name: "any order", make: any_order },
    Way { name: "moved", make: moved },
];

/// Stores for a step: none, one or two, of both kinds, whose copies may be late.
pub(super) fn stores(choices: &mut Choices) -> Vec<(Setup, StoreSpeed)> {
    // Thousands of tiny copies to a disk that others use take minutes.
    let file = if choices.once_in(8) { Kind::File(std::env::temp_dir()) } else { Kind::Host };
    let mut kinds = vec![file, Kind::Host];
    kinds.truncate(choices.below(3));
    let delay = Duration::from_micros(choices.one_of(&[0, 0, 300]));
    let trouble = Trouble { delay, seed: choices.below(1000) as u64, ..Trouble::default() };
    kinds.into_iter().map(|kind| (Setup { kind, trouble }, StoreSpeed::nominal())).collect()
}

/// Plans that move values to stores and back for no reason, and that leave state there.
fn moved(prepared: &Prepared, choices: &mut Choices) -> Result<Vec<(String, Program)>> {
    let problem = &prepared.problem.problem;
    if problem.stores.is_empty() {
        return Ok(Vec::new());
    }
    let mut programs = Vec::new();
    for one_in in [2, 5] {
        let kept = &prepared.keep_all.plan().steps;
        let steps = Wander::new(problem).run(choices, 20).filter(|_| !choices.once_in(3));
        let Moved { stored, steps } =
            with_moves(problem, &steps.unwrap_or_else(|| kept.clone()), choices, one_in);
        let program = carry_out(prepared, "moved", stored, steps)?;
        programs.push((format!("moved, one in {one_in}"), program));
    }
    Ok(programs)
}

/// Every planner at a budget of its own; what it refuses must be above the budget.
fn planners(prepared: &Prepared, choices: &mut Choices) -> Result<Vec<(String, Program)>> {
    let (floor, keep_all) = (prepared.floor.bytes.0, prepared.keep_all.peak().0);
    let mut programs = Vec::new();
    for planner in PLANNERS {
        let share = choices.below(17) as u64;
        let budget = match share {
            16 => floor.saturating_sub(1),
            share => floor + (keep_all - floor) * share / 15,
        };
        let effort = if planner.name == "exhaustive" { EFFORT_OF_EXHAUSTIVE } else { EFFORT };
        let request = Request { effort: Some(effort), ..Request::new(Bytes(budget)) };
        let name = format!("{} within {budget} bytes", planner.name);
        let wrong = |fault: String| Error::Bug { stage: "planner", faults: vec![format!("{name}: {fault}")] };
        match compile(prepared, planner.name, &request)? {
            Fit::Fits(found) if found.peak().0 > budget => {
                return Err(wrong(format!("its arena has {} bytes", found.peak().0)));
            }
            Fit::Fits(found) => programs.push((name, *found)),
            Fit::Refused(refusal) if refusal.lowest_peak.0 <= budget => {
                return Err(wrong(format!("refused, although {} bytes do", refusal.lowest_peak.0)));
            }
            Fit::Refused(_) => {}
        }
    }
    Ok(programs)
}

/// Some modules, checkpointed.
fn by_hand(prepared: &Prepared, choices: &mut Choices) -> Result<Vec<(String, Program)>> {
    let mut modules: Vec<&str> = prepared.step.graph.nodes.iter().map(|node| node.scope.as_str()).collect();
    modules.sort_unstable();
    modules.dedup();
    modules.retain(|module| module.starts_with("blocks.") && choices.below(2) == 0);
    match checkpoint(prepared, &modules) {
        Ok(program) => Ok(vec![(format!("checkpoint {}", modules.join(" ")), program)]),
        // Modules that nothing in backward needs, or that read state which is replaced before.
        Err(Error::Module { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Plans with nodes in another order, values dropped for no reason, and nodes that run again although nobody needs it.
fn any_order(prepared: &Prepared, choices: &mut Choices) -> Result<Vec<(String, Program)>> {
    let problem = &prepared.problem.problem;
    for one_in in [5, 20, 1 << 30] {
        let Some(steps) = Wander::new(problem).run(choices, one_in) else { continue };
        return Ok(vec![("any order".to_owned(), carry_out(prepared, "any order", Vec::new(), steps)?)]);
    }
    Ok(Vec::new())
}

/// The program of steps that no planner made.
fn carry_out(
    prepared: &Prepared,
    name: &'static str,
    stored: Vec<(ValueId, StoreId)>,
    steps: Vec<Step>,
) -> Result<Program> {
    let problem = &prepared.problem.problem;
    let found = simulate_with(problem, &stored, &steps);
    let found = found.map_err(|fault| Error::bug(name, [fault.to_string()]))?;
    let plan = Plan {
        problem: problem.name.clone(),
        planner: name.to_owned(),
        status: Status::Feasible,
        budget_bytes: found.peak,
        peak_bytes: found.peak,
        cost: found.cost,
        lower_bound: None,
        stored,
        steps,
    };
    let faults = remat_plan::check(problem, &plan);
    if !faults.is_empty() {
        return Err(Error::bug(name, faults));
    }
    program(prepared, &plan, Bytes(u64::MAX))
}

/// A walk through a problem in a random order.
struct Wander<'a> {
    problem: &'a Problem,
    steps: Vec<Step>,
    live: Vec<bool>,
    is_consumed: Vec<bool>,
    has_run: Vec<bool>,
}

impl<'a> Wander<'a> {
    fn new(problem: &'a Problem) -> Wander<'a> {
        let n_values = problem.values.len();
        let mut live = vec![false; n_values];
        problem.inputs.iter().for_each(|v| live[v.index()] = true);
        let has_run = vec![false; problem.nodes.len()];
        Wander { problem, steps: Vec::new(), live, is_consumed: vec![false; n_values], has_run }
    }

    /// The steps; `None` where something that was dropped cannot be made again. Needed values are dropped once in so many.
    fn run(mut self, choices: &mut Choices, one_in: usize) -> Option<Vec<Step>> {
        let problem = self.problem;
        while self.has_run.contains(&false) {
            let ready: Vec<NodeId> = problem.node_ids().filter(|&node| self.is_ready(node)).collect();
            // Mostly in the order of the step, since any other keeps more alive.
            let at = if choices.once_in(4) { choices.below(ready.len()) } else { 0 };
            self.make_inputs(ready[at])?;
            self.compute(ready[at]);
            if choices.once_in(12) {
                self.compute_again(choices);
            }
            self.drop_some(choices, one_in);
        }
        for &value in &problem.outputs {
            self.make(value)?;
        }
        Some(self.steps)
    }

    /// Everything that it reads has been made, and what it overwrites has no other reader left.
    fn is_ready(&self, node: NodeId) -> bool {
        let problem = self.problem;
        let has_run = |n: NodeId| self.has_run[n.index()];
        let is_made = |v: &ValueId| problem.producer(*v).is_none_or(has_run);
        let is_last =
            |v: &ValueId| problem.readers(*v).iter().all(|&reader| reader == node || has_run(reader));
        let node_of = problem.node(node);
        !has_run(node) && node_of.inputs.iter().all(is_made) && node_of.consumes.iter().all(is_last)
    }

    fn make_inputs(&mut self, node: NodeId) -> Option<()> {
        // Making one input drops none of the others: nothing is dropped on the way.
        self.problem.node(node).inputs.iter().try_for_each(|&value| self.make(value))
    }

    fn make(&mut self, value: ValueId) -> Option<()> {
        if self.live[value.index()] {
            return Some(());
        }
        let maker = self.problem.producer(value).filter(|_| !self.is_consumed[value.index()])?;
        if !self.problem.node(maker).recompute {
            return None;
        }
        self.make_inputs(maker)?;
        self.compute(maker);
        Some(())
    }

    fn compute(&mut self, node: NodeId) {
        self.steps.push(Step::Compute(node));
        self.has_run[node.index()] = true;
        for value in &self.problem.node(node).consumes {
            self.live[value.index()] = false;
            self.is_consumed[value.index()] = true;
        }
        for value in &self.problem.node(node).outputs {
            self.live[value.index()] = true;
        }
    }

    fn compute_again(&mut self, choices: &mut Choices) {
        let node = NodeId::new(choices.below(self.problem.nodes.len()));
        let is_possible = self.has_run[node.index()]
            && self.problem.node(node).recompute
            && self.problem.node(node).inputs.iter().all(|v| self.live[v.index()]);
        // A value that an update replaced must not come back.
        let is_current = self.problem.node(node).outputs.iter().all(|v| !self.is_consumed[v.index()]);
        if is_possible && is_current {
            self.compute(node);
        }
    }

    fn drop_some(&mut self, choices: &mut Choices, one_in: usize) {
        let problem = self.problem;
        for value in problem.value_ids().filter(|v| self.live[v.index()]).collect::<Vec<_>>() {
            let is_needed = problem.is_output(value)
                || problem.readers(value).iter().any(|reader| !self.has_run[reader.index()]);
            let is_dropped = match is_needed {
                true => problem.is_recomputable(value) && choices.once_in(one_in),
                // Some dead values stay for a while.
                false => !choices.once_in(4),
            };
            if is_dropped {
                self.steps.push(Step::Free(value));
                self.live[value.index()] = false;
            }
        }
    }
}
