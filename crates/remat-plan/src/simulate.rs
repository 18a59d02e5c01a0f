//! The memory and cost of a plan, and the earliest frees for a sequence of computes.
//!
//! [`simulate`] takes any steps and applies the rules of docs/formats.md to them, in time linear in the number of
//! steps and of the inputs and outputs they touch; it stops at the first invalid step. [`free_early`] takes computes
//! only and adds the frees. The frees are the earliest possible, which is also the best possible: a value that is
//! not read before it is made again or before the end adds nothing to any later step but its bytes.

use crate::ids::{NodeId, ValueId};
use crate::names::{Names, Tell, tells};
use crate::plan::Step;
use crate::problem::Problem;
use crate::units::Bytes;
use std::fmt;

/// What happens when the steps of a plan are carried out.
#[derive(Clone, PartialEq, Debug)]
pub struct Simulation {
    /// Sum of the costs of all compute steps.
    pub cost: f64,
    /// Largest memory over all compute steps; the fixed bytes and inputs if there are none.
    pub peak: Bytes,
    /// Index (into the steps) of the first compute step with that memory.
    pub peak_step: Option<usize>,
    /// For each compute step in order: its index in the steps, and the memory while it runs.
    pub curve: Vec<(usize, Bytes)>,
    /// The values that are live before the peak step runs, in id order.
    pub live_at_peak: Vec<ValueId>,
}

/// The first step that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The sentences below say what the variants and their fields mean.
pub enum SimulationError {
    NotLive { at: usize, node: NodeId, value: ValueId },
    RunsAgain { at: usize, node: NodeId },
    FreesDead { at: usize, value: ValueId },
    NeverRuns { node: NodeId },
    OutputNotLive { value: ValueId },
    NoSuchId { at: usize },
}

tells!(SimulationError);

impl std::error::Error for SimulationError {}

impl Tell for SimulationError {
    fn tell(&self, f: &mut fmt::Formatter<'_>, names: Names<'_>) -> fmt::Result {
        match *self {
            SimulationError::NotLive { at, node, value } => write!(
                f,
                "step {at}: node {} needs value {}, which is not live",
                names.node(node),
                names.value(value)
            ),
            SimulationError::RunsAgain { at, node } => {
                write!(f, "step {at}: node {} must not run again", names.node(node))
            }
            SimulationError::FreesDead { at, value } => {
                write!(f, "step {at}: frees value {}, which is not live", names.value(value))
            }
            SimulationError::NeverRuns { node } => write!(f, "node {} never runs", names.node(node)),
            SimulationError::OutputNotLive { value } => {
                write!(f, "output {} is not live at the end", names.value(value))
            }
            SimulationError::NoSuchId { at } => {
                write!(f, "step {at} names an id that the problem does not have")
            }
        }
    }
}

/// Carries out the steps and reports cost, peak and the memory at each compute step.
pub fn simulate(problem: &Problem, steps: &[Step]) -> Result<Simulation, SimulationError> {
    let mut memory = Memory::at_start(problem);
    let mut has_run = vec![false; problem.nodes.len()];
    let mut cost = 0.0;
    let mut curve = Vec::with_capacity(problem.nodes.len());
    let mut peak: Option<(usize, Bytes)> = None;
    let mut freed_next = Vec::new();

    for (at, &step) in steps.iter().enumerate() {
        match step {
            Step::Free(value) => {
                if value.index() >= problem.values.len() {
                    return Err(SimulationError::NoSuchId { at });
                }
                if !memory.remove(value) {
                    return Err(SimulationError::FreesDead { at, value });
                }
            }
            Step::Compute(id) => {
                if id.index() >= problem.nodes.len() {
                    return Err(SimulationError::NoSuchId { at });
                }
                let node = problem.node(id);
                if let Some(&value) = node.inputs.iter().find(|v| !memory.live[v.index()]) {
                    return Err(SimulationError::NotLive { at, node: id, value });
                }
                if has_run[id.index()] && !node.recompute {
                    return Err(SimulationError::RunsAgain { at, node: id });
                }
                has_run[id.index()] = true;
                cost += node.cost;
                freed_next.clear();
                if !node.reuse.is_empty() {
                    freed_next.extend(steps[at + 1..].iter().map_while(|step| match step {
                        Step::Free(value) => Some(*value),
                        Step::Compute(_) => None,
                    }));
                    freed_next.sort_unstable();
                }
                let used = memory.compute(id, |value| freed_next.binary_search(&value).is_ok());
                curve.push((at, used));
                if peak.is_none_or(|(_, most)| used > most) {
                    peak = Some((at, used));
                }
            }
        }
    }

    if let Some(node) = problem.node_ids().find(|n| !has_run[n.index()]) {
        return Err(SimulationError::NeverRuns { node });
    }
    if let Some(&value) = problem.outputs.iter().find(|v| !memory.live[v.index()]) {
        return Err(SimulationError::OutputNotLive { value });
    }
    Ok(Simulation {
        cost,
        peak: peak.map_or_else(|| problem.fixed_bytes + Memory::at_start(problem).held, |(_, used)| used),
        peak_step: peak.map(|(at, _)| at),
        live_at_peak: peak.map_or_else(Vec::new, |(at, _)| live_before(problem, &steps[..at])),
        curve,
    })
}

/// The live set and its size while steps are carried out.
struct Memory<'a> {
    problem: &'a Problem,
    live: Vec<bool>,
    held: Bytes,
}

impl<'a> Memory<'a> {
    fn at_start(problem: &'a Problem) -> Memory<'a> {
        let mut live = vec![false; problem.values.len()];
        for v in &problem.inputs {
            live[v.index()] = true;
        }
        Memory { problem, live, held: problem.inputs.iter().map(|&v| problem.bytes(v)).sum() }
    }

    fn remove(&mut self, value: ValueId) -> bool {
        let was_live = std::mem::replace(&mut self.live[value.index()], false);
        if was_live {
            self.held -= self.problem.bytes(value);
        }
        was_live
    }

    /// Runs a node whose inputs are live and returns the memory while it runs.
    fn compute(&mut self, id: NodeId, is_freed_next: impl Fn(ValueId) -> bool) -> Bytes {
        let node = self.problem.node(id);
        let size = |v: &ValueId| self.problem.bytes(*v);
        let made: Bytes = node.outputs.iter().map(size).sum();
        let overwritten: Bytes = node.consumes.iter().map(size).sum();
        let shared = reused_bytes(self.problem, id, |v| self.live[v.index()], is_freed_next);
        let used = self.problem.fixed_bytes + self.held + node.workspace_bytes + made - overwritten - shared;
        for &value in &node.consumes {
            self.remove(value);
        }
        for &value in &node.outputs {
            if !std::mem::replace(&mut self.live[value.index()], true) {
                self.held += self.problem.bytes(value);
            }
        }
        used
    }
}

/// Bytes of outputs that take over the storage of an input which dies at this step: pairs in listed order, each
/// input and each output at most once.
fn reused_bytes(
    problem: &Problem,
    id: NodeId,
    was_live: impl Fn(ValueId) -> bool,
    is_freed_next: impl Fn(ValueId) -> bool,
) -> Bytes {
    let node = problem.node(id);
    let mut shared = Bytes::ZERO;
    let mut applied: Vec<(ValueId, ValueId)> = Vec::new();
    for &(input, output) in &node.reuse {
        let free_to_share = applied.iter().all(|&(i, o)| i != input && o != output);
        if free_to_share
            && problem.bytes(output) <= problem.bytes(input)
            && !was_live(output)
            && !node.consumes.contains(&input)
            && is_freed_next(input)
        {
            applied.push((input, output));
            shared += problem.bytes(output);
        }
    }
    shared
}

/// The live set after a valid prefix of steps.
fn live_before(problem: &Problem, steps: &[Step]) -> Vec<ValueId> {
    let mut memory = Memory::at_start(problem);
    for &step in steps {
        match step {
            Step::Compute(node) => {
                memory.compute(node, |_| false);
            }
            Step::Free(value) => {
                memory.remove(value);
            }
        }
    }
    problem.value_ids().filter(|v| memory.live[v.index()]).collect()
}

/// Turns a sequence of computes into steps: every value is freed as soon as it is not read again before it is made
/// again or before the end. Values that nothing reads are freed right after they are made, inputs that nothing reads at
/// the very start. The frees after one compute are in ascending order of id.
pub fn free_early(problem: &Problem, computes: &[NodeId]) -> Vec<Step> {
    // Backwards: `needed[v]` says that the copy of v which is live at this point is still read later.
    let mut needed: Vec<bool> = problem.value_ids().map(|v| problem.is_output(v)).collect();
    // `frees[i]` are the values to free right after compute i - 1; index 0 is the start.
    let mut frees: Vec<Vec<ValueId>> = vec![Vec::new(); computes.len() + 1];
    for (i, &id) in computes.iter().enumerate().rev() {
        let node = problem.node(id);
        for &value in &node.outputs {
            if !std::mem::replace(&mut needed[value.index()], false) {
                frees[i + 1].push(value);
            }
        }
        for &value in &node.inputs {
            let is_last_use = !std::mem::replace(&mut needed[value.index()], true);
            if is_last_use && !node.consumes.contains(&value) {
                frees[i + 1].push(value);
            }
        }
    }
    frees[0].extend(problem.inputs.iter().filter(|v| !needed[v.index()]));

    let mut steps = Vec::with_capacity(computes.len() * 2 + frees[0].len());
    for (i, list) in frees.iter_mut().enumerate() {
        if i > 0 {
            steps.push(Step::Compute(computes[i - 1]));
        }
        list.sort_unstable();
        steps.extend(list.iter().map(|&value| Step::Free(value)));
    }
    steps
}
