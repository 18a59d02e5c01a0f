//! Runs a model with and without a budget, side by side, and compares peak, time and bits.

use super::{Session, Synthetic, hash};
use crate::error::Result;
use crate::exec::Engine;
use crate::ids::{NodeId, ValueId};
use crate::pipeline::{Prepared, Program};
use crate::profile::Sample;
use remat_plan::Bytes;
use std::collections::{BTreeMap, HashSet};

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
}

/// Runs `n_steps` steps of both programs alternately, the first of which warms up and compares every gradient.
pub fn compare(
    prepared: &Prepared,
    program: &Program,
    seed: u64,
    n_threads: usize,
    n_steps: usize,
    mut progress: impl FnMut(usize),
) -> Result<Comparison> {
    let session =
        |program: &Program| Session::new(program.clone(), Box::new(Synthetic { seed }), seed, n_threads);
    let mut sides = [session(&prepared.keep_all)?, session(program)?];
    let gradients: HashSet<ValueId> = prepared.step.roles.gradients.iter().map(|&(_, g)| g).collect();
    let mut hashes: [BTreeMap<ValueId, u64>; 2] = Default::default();
    let mut results: [Vec<super::StepResult>; 2] = Default::default();
    for step in 0..n_steps.max(1) {
        for (side, session) in sides.iter_mut().enumerate() {
            let mut observe = |node: NodeId, position: usize, bytes: &[u8]| {
                let value = prepared.step.graph.nodes[node].outputs[position];
                if gradients.contains(&value) {
                    hashes[side].insert(value, hash::bytes(bytes));
                }
            };
            let result = if step == 0 { session.step(Some(&mut observe))? } else { session.step(None)? };
            results[side].push(result);
        }
        progress(step + 1);
    }
    let difference = difference(prepared, &sides, &hashes, &results);
    let [keep_all, budgeted] = std::array::from_fn(|i| summary(&sides[i], &results[i]));
    Ok(Comparison { keep_all, budgeted, difference })
}

fn summary(session: &Session, results: &[super::StepResult]) -> Side {
    let warm = if results.len() > 1 { &results[1..] } else { results };
    Side {
        predicted_peak: session.executor().program().peak(),
        measured_peak: results.iter().map(|r| r.stats.peak).max().unwrap_or(Bytes(0)),
        time: Sample::of(warm.iter().map(|r| r.stats.time.as_secs_f64()).collect()),
        n_runs: results.first().map_or(0, |r| r.stats.n_runs),
        losses: results.iter().map(|r| r.loss).collect(),
    }
}

fn difference(
    prepared: &Prepared,
    sides: &[Session; 2],
    hashes: &[BTreeMap<ValueId, u64>; 2],
    results: &[Vec<super::StepResult>; 2],
) -> Option<String> {
    let graph = &prepared.step.graph;
    for (a, b) in results[0].iter().zip(&results[1]) {
        if a.loss.to_bits() != b.loss.to_bits() {
            return Some(format!("the loss of step {}: {} and {}", a.step, a.loss, b.loss));
        }
    }
    for &(parameter, gradient) in &prepared.step.roles.gradients {
        if !hashes[0].contains_key(&gradient) || hashes[0].get(&gradient) != hashes[1].get(&gradient) {
            return Some(format!("the gradient of {}", graph.value_name(parameter)));
        }
    }
    let states = graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state());
    let differs = |v: ValueId| sides[0].executor().bytes(v) != sides[1].executor().bytes(v);
    states.into_iter().find(|s| differs(s.value)).map(|s| s.name.clone())
}
