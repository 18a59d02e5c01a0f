//! The memory and the time of a plan, and the earliest frees for a sequence of computes.
//!
//! [`simulate`] takes any steps and applies the rules of docs/formats.md to them, in time linear in the number of
//! steps and of the inputs and outputs they touch; it stops at the first invalid step. Memory follows from the order of the
//! steps alone; [`copies`] adds when copies to and from stores take place. [`free_early`] takes computes only and adds the
//! frees.

mod copies;
mod free_early;
mod memory;

use crate::ids::{NodeId, StoreId, ValueId};
use crate::names::{Names, Tell, tells};
use crate::plan::Step;
use crate::problem::Problem;
use crate::units::Bytes;
use copies::{Copies, Refusal};
pub use copies::{Transfer, Wait};
pub use free_early::free_early;
use memory::{Memory, live_before};
use std::fmt;

/// What happens when the steps of a plan are carried out.
#[derive(Clone, PartialEq, Debug)]
pub struct Simulation {
    /// When the last compute and the last copy have ended; without copies the sum of the costs of all computes.
    pub cost: f64,
    /// Largest memory over all computes and copies into memory; the fixed bytes and live inputs if there are none.
    pub peak: Bytes,
    /// Index (into the steps) of the first such step with that memory.
    pub peak_step: Option<usize>,
    /// For each such step in order: its index in the steps, and the memory then.
    pub curve: Vec<(usize, Bytes)>,
    /// The values that are live before the peak step, in id order.
    pub live_at_peak: Vec<ValueId>,
    /// All copies, in the order in which they are begun.
    pub transfers: Vec<Transfer>,
    /// How long the program waits for copies, those on channels that do not overlap left out.
    pub stalls: f64,
    /// When it waits, and for what.
    pub waits: Vec<Wait>,
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
    CopiesDead { at: usize, value: ValueId },
    CopiesIntoLive { at: usize, value: ValueId },
    MayNotMove { value: ValueId },
    AlreadyStored { value: ValueId, store: StoreId },
    NotStored { value: ValueId, store: StoreId },
    StoreIsFull { value: ValueId, store: StoreId },
    NotCarried { value: ValueId },
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
            SimulationError::CopiesDead { at, value } => {
                write!(f, "step {at}: copies out value {}, which is not live", names.value(value))
            }
            SimulationError::CopiesIntoLive { at, value } => {
                write!(f, "step {at}: copies in value {}, which is live", names.value(value))
            }
            SimulationError::MayNotMove { value } => {
                write!(f, "value {} may not be copied to or from a store", names.value(value))
            }
            SimulationError::AlreadyStored { value, store } => {
                write!(f, "value {} is already in store {}", names.value(value), names.store(store))
            }
            SimulationError::NotStored { value, store } => {
                write!(f, "value {} is not in store {}", names.value(value), names.store(store))
            }
            SimulationError::StoreIsFull { value, store } => {
                write!(f, "store {} has no room for value {}", names.store(store), names.value(value))
            }
            SimulationError::NotCarried { value } => {
                write!(
                    f,
                    "value {} is in a store at the start, but nothing carries it there",
                    names.value(value)
                )
            }
        }
    }
}

/// Carries out the steps of a plan that has all inputs in memory at the start.
pub fn simulate(problem: &Problem, steps: &[Step]) -> Result<Simulation, SimulationError> {
    simulate_with(problem, &[], steps)
}

/// Carries out the steps and reports cost, peak, the memory at each step that counts, and all copies. `stored` are the inputs
/// that are in a store at the start.
pub fn simulate_with(
    problem: &Problem,
    stored: &[(ValueId, StoreId)],
    steps: &[Step],
) -> Result<Simulation, SimulationError> {
    let mut run = Run::start(problem, stored)?;
    let at_start = problem.fixed_bytes + run.memory.held;
    for (at, &step) in steps.iter().enumerate() {
        run.step(at, step, &steps[at + 1..])?;
    }
    run.end(stored)?;
    let peak = run.curve.iter().fold(None, |most: Option<(usize, Bytes)>, &(at, used)| match most {
        Some((_, highest)) if used <= highest => most,
        _ => Some((at, used)),
    });
    Ok(Simulation {
        cost: run.copies.end(),
        peak: peak.map_or(at_start, |(_, used)| used),
        peak_step: peak.map(|(at, _)| at),
        live_at_peak: peak.map_or_else(Vec::new, |(at, _)| live_before(problem, stored, &steps[..at])),
        curve: run.curve,
        stalls: run.copies.stalls,
        waits: run.copies.waits,
        transfers: run.copies.transfers,
    })
}

/// Steps on their way.
struct Run<'a> {
    problem: &'a Problem,
    memory: Memory<'a>,
    copies: Copies<'a>,
    has_run: Vec<bool>,
    curve: Vec<(usize, Bytes)>,
    /// What carries an input into the next step.
    carried_by: Vec<Option<ValueId>>,
    /// Values that are freed directly after the compute at hand, and inputs whose storage its outputs take over.
    freed_next: Vec<ValueId>,
    taken_over: Vec<ValueId>,
}

impl<'a> Run<'a> {
    fn start(problem: &'a Problem, stored: &[(ValueId, StoreId)]) -> Result<Run<'a>, SimulationError> {
        let mut carried_by = vec![None; problem.values.len()];
        for &(input, output) in &problem.carries {
            carried_by[input.index()] = Some(output);
        }
        let mut copies = Copies::new(problem);
        for &(value, store) in stored {
            if carried_by.get(value.index()).is_none_or(Option::is_none) {
                return Err(SimulationError::NotCarried { value });
            }
            if store.index() >= problem.stores.len() {
                return Err(SimulationError::NotStored { value, store });
            }
            copies.place(value, store, 0.0).map_err(|refusal| refused(refusal, value, store))?;
        }
        Ok(Run {
            problem,
            memory: Memory::at_start(problem, stored),
            copies,
            has_run: vec![false; problem.nodes.len()],
            curve: Vec::with_capacity(problem.nodes.len()),
            carried_by,
            freed_next: Vec::new(),
            taken_over: Vec::new(),
        })
    }

    fn step(&mut self, at: usize, step: Step, later: &[Step]) -> Result<(), SimulationError> {
        let has_ids = match step {
            Step::Compute(node) => node.index() < self.problem.nodes.len(),
            Step::Free(value) => value.index() < self.problem.values.len(),
            Step::Out(value, store) | Step::In(value, store) | Step::Discard(value, store) => {
                value.index() < self.problem.values.len() && store.index() < self.problem.stores.len()
            }
        };
        if !has_ids {
            return Err(SimulationError::NoSuchId { at });
        }
        self.copies.at = at;
        match step {
            Step::Compute(node) => self.compute(at, node, later)?,
            Step::Free(value) => {
                if !self.memory.remove(value) {
                    return Err(SimulationError::FreesDead { at, value });
                }
                self.copies.wait_for_arrival(value);
                self.copies.wait_for_copies_out(value);
            }
            Step::Out(value, store) => {
                if !self.memory.live[value.index()] {
                    return Err(SimulationError::CopiesDead { at, value });
                }
                self.copies.out(at, value, store).map_err(|refusal| refused(refusal, value, store))?;
            }
            Step::In(value, store) => {
                if self.memory.live[value.index()] {
                    return Err(SimulationError::CopiesIntoLive { at, value });
                }
                self.copies.back(at, value, store).map_err(|refusal| refused(refusal, value, store))?;
                self.memory.add(value);
                self.curve.push((at, self.problem.fixed_bytes + self.memory.held));
            }
            Step::Discard(value, store) => {
                self.copies.discard(value, store).map_err(|refusal| refused(refusal, value, store))?;
            }
        }
        Ok(())
    }

    fn compute(&mut self, at: usize, id: NodeId, later: &[Step]) -> Result<(), SimulationError> {
        let node = self.problem.node(id);
        if let Some(&value) = node.inputs.iter().find(|v| !self.memory.live[v.index()]) {
            return Err(SimulationError::NotLive { at, node: id, value });
        }
        if std::mem::replace(&mut self.has_run[id.index()], true) && !node.recompute {
            return Err(SimulationError::RunsAgain { at, node: id });
        }
        self.freed_next.clear();
        if !node.reuse.is_empty() {
            self.freed_next.extend(later.iter().map_while(|step| match step {
                Step::Free(value) => Some(*value),
                _ => None,
            }));
            self.freed_next.sort_unstable();
        }
        for &value in &node.inputs {
            self.copies.wait_for_arrival(value);
        }
        self.taken_over.clear();
        let is_freed_next = |value: ValueId| self.freed_next.binary_search(&value).is_ok();
        let used = self.memory.compute(id, is_freed_next, &mut self.taken_over);
        self.curve.push((at, used));
        for &value in node.consumes.iter().chain(&self.taken_over) {
            self.copies.wait_for_copies_out(value);
        }
        self.copies.compute(node.cost);
        for &value in &node.consumes {
            self.copies.forget(value);
        }
        Ok(())
    }

    fn end(&self, stored: &[(ValueId, StoreId)]) -> Result<(), SimulationError> {
        let problem = self.problem;
        if let Some(node) = problem.node_ids().find(|n| !self.has_run[n.index()]) {
            return Err(SimulationError::NeverRuns { node });
        }
        let mut is_elsewhere = vec![false; problem.values.len()];
        for &(input, store) in stored {
            let Some(value) = self.carried_by[input.index()] else { continue };
            is_elsewhere[value.index()] = true;
            if !self.copies.is_in(value, store) {
                return Err(SimulationError::NotStored { value, store });
            }
        }
        let is_there = |v: ValueId| self.memory.live[v.index()] || is_elsewhere[v.index()];
        match problem.outputs.iter().find(|&&v| !is_there(v)) {
            Some(&value) => Err(SimulationError::OutputNotLive { value }),
            None => Ok(()),
        }
    }
}

fn refused(refusal: Refusal, value: ValueId, store: StoreId) -> SimulationError {
    match refusal {
        Refusal::Full => SimulationError::StoreIsFull { value, store },
        Refusal::Stays => SimulationError::MayNotMove { value },
        Refusal::AlreadyThere => SimulationError::AlreadyStored { value, store },
        Refusal::NotThere => SimulationError::NotStored { value, store },
    }
}
