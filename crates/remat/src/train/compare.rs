//! Runs a model with and without a budget, side by side, and compares peak, time and bits; the first step also with the step
//! before fusion.

use super::{Session, StepResult, Synthetic};
use crate::error::Result;
use crate::exec::{CopyTime, Engine};
use crate::graph::Source;
use crate::hash;
use crate::ids::{NodeId, ValueId};
use crate::pipeline::{Prepared, Program};
use crate::profile::Sample;
use remat_plan::Bytes;
use std::collections::BTreeMap;

/// One of the two programs.
#[derive(Clone, PartialEq, Debug)]
pub struct Side {
    /// Size of the arena.
    pub predicted_peak: Bytes,
    /// What execution used of it.
    pub measured_peak: Bytes,
    /// Step times after the warm-up.
    pub time: Sample,
    /// Nodes that ran in a step.
    pub n_runs: usize,
    /// Losses of all steps.
    pub losses: Vec<f32>,
    /// Seconds that a step waited for copies to and from stores, after the warm-up.
    pub stalls: Sample,
    /// Copies of the last step.
    pub copies: Vec<CopyTime>,
}

/// Two programs of one model.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Without recomputation.
    pub keep_all: Side,
    /// Inside the budget.
    pub budgeted: Side,
    /// The first thing that differs in a bit, or `None` when loss, gradients and state are identical.
    pub difference: Option<String>,
    /// Recomputed values that were held against their first computation, where that was asked for.
    pub n_verified: Option<u64>,
}

/// How two programs are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Seed of weights, data and dropout.
    pub seed: u64,
    /// Threads that kernels use.
    pub n_threads: usize,
    /// Steps of each program.
    pub n_steps: usize,
    /// Hold recomputed values against their first computation.
    pub verify: bool,
}

/// Everything that the first step gave, as hashes.
#[derive(Debug, Default)]
struct FirstStep {
    /// By place in the list of gradients.
    gradients: BTreeMap<usize, u64>,
    /// By name.
    state: Vec<(String, u64)>,
}

/// Runs steps of both programs alternately. The first warms up, and all of it, every gradient included, is compared with
/// the step before fusion as well: `oracle`, which runs before both and alone in memory.
pub fn compare(
    prepared: &Prepared,
    program: &Program,
    oracle: Program,
    trial: Trial,
    mut progress: impl FnMut(usize),
) -> Result<Comparison> {
    let Trial { seed, n_threads, n_steps, verify } = trial;
    let session = |program: Program| Session::new(program, Box::new(Synthetic { seed }), seed, n_threads);
    let (expected, first) = first_step(&mut session(oracle)?)?;
    let mut sides = [session(prepared.keep_all.clone())?, session(program.clone())?];
    if verify {
        sides[1].verify();
    }
    let mut results: [Vec<StepResult>; 2] = Default::default();
    let mut first_difference = None;
    for step in 0..n_steps.max(1) {
        for (session, results) in sides.iter_mut().zip(&mut results) {
            let result = if step > 0 {
                session.step(None)?
            } else {
                let (result, seen) = first_step(session)?;
                let differs = || first.difference(&expected, &seen, &result, prepared);
                first_difference = first_difference.or_else(differs);
                result
            };
            if result.difference.is_some() {
                // It is the answer; what follows is only timed.
                session.continue_after(result.step);
            }
            results.push(result);
        }
        progress(step + 1);
    }
    // What was computed again with other bits is the cause of everything else.
    let cause = results[1].iter().find_map(|result| result.difference.as_ref().map(ToString::to_string));
    let difference = match cause.or(first_difference) {
        None => difference(prepared, &sides, &results)?,
        found => found,
    };
    let n_verified = sides[1].n_verified();
    let [keep_all, budgeted] = std::array::from_fn(|i| summary(&sides[i], &results[i]));
    Ok(Comparison { keep_all, budgeted, difference, n_verified })
}

/// Runs the first step and looks at everything in it.
fn first_step(session: &mut Session) -> Result<(StepResult, FirstStep)> {
    let program = session.executor().program().clone();
    let graph = &program.schedule().graph;
    let places = program.roles().gradient_places(graph);
    let mut gradients = BTreeMap::new();
    let mut observe = |node: NodeId, position: usize, bytes: &[u8]| {
        for &place in places.get(&graph.nodes[node].outputs[position]).into_iter().flatten() {
            gradients.insert(place, hash::bytes(bytes));
        }
    };
    let result = session.step(Some(&mut observe))?;
    let states = graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state());
    let hashed = |s: &Source| Ok((s.name.clone(), state_hash(session, s.value)?));
    let state = states.map(hashed).collect::<Result<_>>()?;
    Ok((result, FirstStep { gradients, state }))
}

impl FirstStep {
    /// What another program made of the first step differently.
    fn difference(
        &self,
        expected: &StepResult,
        other: &FirstStep,
        result: &StepResult,
        prepared: &Prepared,
    ) -> Option<String> {
        if result.loss.to_bits() != expected.loss.to_bits() {
            let (loss, expected) = (result.loss, expected.loss);
            return Some(format!("the loss of step 1 is {loss}, and {expected} before fusion"));
        }
        for (place, &(parameter, _)) in prepared.step.roles.gradients.iter().enumerate() {
            let (found, expected) = (other.gradients.get(&place), self.gradients.get(&place));
            if found.is_none() || found != expected {
                let name = prepared.step.graph.value_name(parameter);
                return Some(format!("the gradient of {name} in step 1 is another than before fusion"));
            }
        }
        let state = self.state.iter().zip(&other.state).find(|(a, b)| a != b);
        state.map(|((name, _), _)| format!("{name} after step 1 is another than before fusion"))
    }
}

fn summary(session: &Session, results: &[StepResult]) -> Side {
    let warm = if results.len() > 1 { &results[1..] } else { results };
    Side {
        predicted_peak: session.executor().program().peak(),
        measured_peak: results.iter().map(|r| r.stats.peak).max().unwrap_or(Bytes(0)),
        time: Sample::of(warm.iter().map(|r| r.stats.time.as_secs_f64()).collect()),
        n_runs: results.first().map_or(0, |r| r.stats.n_runs),
        losses: results.iter().map(|r| r.loss).collect(),
        stalls: Sample::of(warm.iter().map(|r| r.stats.stalls.as_secs_f64()).collect()),
        copies: results.last().map_or_else(Vec::new, |r| r.stats.copies.clone()),
    }
}

fn difference(
    prepared: &Prepared,
    sides: &[Session; 2],
    results: &[Vec<StepResult>; 2],
) -> Result<Option<String>> {
    let graph = &prepared.step.graph;
    for (a, b) in results[0].iter().zip(&results[1]) {
        if a.loss.to_bits() != b.loss.to_bits() {
            return Ok(Some(format!("the loss of step {}: {} and {}", a.step, a.loss, b.loss)));
        }
    }
    for state in graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state()) {
        if state_hash(&sides[0], state.value)? != state_hash(&sides[1], state.value)? {
            return Ok(Some(state.name.clone()));
        }
    }
    Ok(None)
}

/// A hash of one state, wherever it rests.
fn state_hash(session: &Session, state: ValueId) -> Result<u64> {
    let executor = session.executor();
    let mut hash = executor.graph().values[state].ty.bytes();
    executor.visit(state, &mut |bytes| hash = hash::continued(hash, bytes))?;
    Ok(hash)
}
