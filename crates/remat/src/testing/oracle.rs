//! The oracle of a training step: what it computes when nothing is fused, planned, shared or freed.
//!
//! [`Oracle::of`] runs a step in the reference executor and remembers every bit that a user can see: losses, every gradient
//! of every pass, the norm of the gradients and all state at the end. [`Oracle::check`] runs a program of that step, fused
//! or not, with freed memory poisoned, and says what differs first.

use crate::error::Result;
use crate::exec::{Engine, Executor, Reference};
use crate::graph::{Graph, Source};
use crate::ids::{NodeId, ValueId};
use crate::op::{MicroBatch, Run};
use crate::pipeline::Program;
use crate::step::{Roles, TrainingStep};
use crate::train::{Batch, Batches, Part, Synthetic};
use std::collections::BTreeMap;

const SEED: u64 = 3;
const DATA_SEED: u64 = 5;
/// Parameters move, and do not explode.
const LEARNING_RATE: f64 = 1e-3;

/// Everything that must not change in a bit. Gradients are found by their place in the roles, so that steps with other ids
/// can be compared.
#[derive(Clone, PartialEq, Debug, Default)]
struct Bits {
    /// Of every pass: the loss, and the norm of the gradients where there is one.
    results: Vec<(u32, Option<u32>)>,
    /// Hashes by pass and place.
    gradients: BTreeMap<(u64, usize), u64>,
    /// Hashes by name.
    state: BTreeMap<String, u64>,
}

impl Bits {
    /// The first thing that differs, as a sentence; whole dumps do not help.
    fn difference(&self, other: &Bits) -> Option<String> {
        for (pass, (a, b)) in self.results.iter().zip(&other.results).enumerate() {
            if a != b {
                let floats =
                    |(loss, norm): &(u32, Option<u32>)| (f32::from_bits(*loss), norm.map(f32::from_bits));
                let (a, b) = (floats(a), floats(b));
                return Some(format!("loss and norm of pass {pass} are {b:?} instead of {a:?}"));
            }
        }
        let gradient = self.gradients.iter().find(|(key, hash)| other.gradients.get(key) != Some(hash));
        if let Some(((pass, place), _)) = gradient {
            return Some(format!("gradient {place} of pass {pass} has other bits"));
        }
        let state = self.state.iter().find(|(name, hash)| other.state.get(*name) != Some(hash));
        if let Some((name, _)) = state {
            return Some(format!("the state {name} has other bits"));
        }
        (self != other).then(|| "there are other results, gradients or states".to_owned())
    }
}

/// What a step must compute.
#[derive(Clone, Debug)]
pub struct Oracle {
    bits: Bits,
    n_steps: u64,
}

impl Oracle {
    /// Runs `n_steps` steps on synthetic data, every value in memory of its own.
    pub fn of(step: &TrainingStep, n_steps: u64, n_threads: usize) -> Result<Oracle> {
        let mut engine = Reference::new(step.graph.clone(), n_threads)?;
        engine.initialise(SEED)?;
        let (bits, repeated) =
            record(&mut engine, &step.graph, &step.roles, n_steps, |engine, run, observe| {
                engine.step(run, Some(observe));
                Ok(None)
            })?;
        debug_assert_eq!(repeated, None, "the reference computes everything once");
        Ok(Oracle { bits, n_steps })
    }

    /// Whether all losses are finite: what is not a number hides what poison would show.
    pub fn is_finite(&self) -> bool {
        self.bits.results.iter().all(|&(loss, norm)| {
            f32::from_bits(loss).is_finite() && norm.is_none_or(|norm| f32::from_bits(norm).is_finite())
        })
    }

    /// The loss of every pass.
    pub fn losses(&self) -> Vec<f32> {
        self.bits.results.iter().map(|&(loss, _)| f32::from_bits(loss)).collect()
    }

    /// What differs from another oracle first, such as that of the same step after fusion.
    pub fn difference(&self, other: &Oracle) -> Option<String> {
        self.bits.difference(&other.bits)
    }

    /// Runs a program with poisoned memory. Its bits are those of the oracle, and the measured peak of every pass is the
    /// predicted one; else this says what is wrong.
    pub fn check(&self, program: &Program, n_threads: usize) -> std::result::Result<(), String> {
        let (bits, fault) = self.run(program, n_threads).map_err(|error| error.to_string())?;
        match fault.or_else(|| self.bits.difference(&bits)) {
            None => Ok(()),
            Some(fault) => Err(format!("{fault}, with {n_threads} threads")),
        }
    }
}

impl Oracle {
    fn run(&self, program: &Program, n_threads: usize) -> Result<(Bits, Option<String>)> {
        let mut engine = Executor::new(program.clone(), n_threads)?;
        engine.poison = true;
        engine.initialise(SEED)?;
        let graph = &program.schedule().graph;
        record(&mut engine, graph, program.roles(), self.n_steps, |engine, run, observe| {
            let (measured, predicted) = (engine.step(run, Some(observe))?.peak, program.peak());
            Ok((measured != predicted)
                .then(|| format!("measured a peak of {} bytes instead of {}", measured.0, predicted.0)))
        })
    }
}

/// Runs the steps on an engine that holds the initial state. `pass` runs one batch, passes every value that is made to
/// the observer, and says what it found wrong.
fn record<E: Engine>(
    engine: &mut E,
    graph: &Graph,
    roles: &Roles,
    n_steps: u64,
    mut pass: impl FnMut(&mut E, &Run, &mut dyn FnMut(NodeId, usize, &[u8])) -> Result<Option<String>>,
) -> Result<(Bits, Option<String>)> {
    let places = roles.gradient_places(graph);
    let count = roles.micro_batches();
    let (mut bits, mut fault) = (Bits::default(), None);
    for number in 0..n_steps * count {
        let micro = MicroBatch { index: number % count, count };
        let run = Run { seed: SEED, step: number / count + 1, learning_rate: LEARNING_RATE, micro };
        let mut batch = Batch::new(run.batch(), Part::Training, 0, engine.batch_mut());
        Synthetic { seed: DATA_SEED }.fill(&mut batch)?;
        let mut observe = |node: NodeId, position: usize, bytes: &[u8]| {
            for &place in places.get(&graph.nodes[node].outputs[position]).into_iter().flatten() {
                let made = hash(bytes);
                let before = bits.gradients.insert((number, place), made);
                if before.is_some_and(|before| before != made) {
                    fault.get_or_insert(format!(
                        "gradient {place} of pass {number} changed when it was made again"
                    ));
                }
            }
        };
        let found = pass(engine, &run, &mut observe)?;
        fault = fault.or(found);
        let float = |value: ValueId| engine.floats(value)[0].to_bits();
        bits.results.push((float(roles.loss), roles.gradient_norm.map(float)));
    }
    let states = graph.sources.iter().filter(|s: &&Source| graph.values[s.value].kind.is_state());
    for state in states {
        let mut hash = graph.values[state.value].ty.bytes();
        engine.visit(state.value, &mut |bytes| hash = continued(hash, bytes))?;
        bits.state.insert(state.name.clone(), hash);
    }
    Ok((bits, fault))
}

/// A fast hash of whole words.
fn hash(bytes: &[u8]) -> u64 {
    continued(bytes.len() as u64, bytes)
}

fn continued(before: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.fold(before, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
