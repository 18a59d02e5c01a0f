//! What the tests of the promises share: the oracle's answers and a run that is held against them.

use remat::exec::{Engine, Executor, Reference};
use remat::graph::Source;
use remat::ids::{NodeId, ValueId};
use remat::op::{MicroBatch, Run};
use remat::pipeline::Program;
use remat::profile::Machine;
use remat::step::TrainingStep;
use remat::train::{Batch, Batches, Part, Synthetic};
use std::collections::{BTreeMap, HashSet};

/// Steps that are compared: enough for optimizer state and running statistics to matter.
pub(crate) const N_STEPS: u64 = 3;

/// Round speeds, so that plans do not depend on the machine that runs the tests.
pub(crate) const MACHINE: Machine = Machine::nominal(2);

/// Everything that must not change in a bit: losses, every gradient of every step, all state at the end.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Bits {
    pub(crate) losses: Vec<u32>,
    pub(crate) gradients: BTreeMap<(u64, ValueId), u64>,
    pub(crate) state: BTreeMap<String, u64>,
}

impl Bits {
    /// The first thing that differs, as a sentence; whole dumps do not help.
    pub(crate) fn difference(&self, other: &Bits) -> Option<String> {
        if self.losses != other.losses {
            let floats = |bits: &[u32]| bits.iter().map(|&b| f32::from_bits(b)).collect::<Vec<_>>();
            return Some(format!("losses {:?} and {:?}", floats(&self.losses), floats(&other.losses)));
        }
        let gradient = self.gradients.iter().find(|(key, hash)| other.gradients.get(key) != Some(hash));
        if let Some(((step, value), _)) = gradient {
            return Some(format!("the gradient {value} of step {step}"));
        }
        let state = self.state.iter().find(|(name, hash)| other.state.get(*name) != Some(hash));
        state.map(|(name, _)| format!("the state {name}"))
    }
}

/// A fast hash of whole words: gigabytes pass through it.
fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.fold(bytes.len() as u64, |hash, word| {
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

fn fill_batch(engine: &mut dyn Engine, step: u64) {
    let mut batch = Batch::new(step, Part::Training, 0, engine.batch_mut());
    Synthetic { seed: 5 }.fill(&mut batch).expect("synthetic data never fails");
}

/// What the oracle computed, and the state it began with.
pub(crate) struct Oracle {
    pub(crate) bits: Bits,
    initial: Vec<(ValueId, Vec<u8>)>,
}

/// Runs the steps on an engine that holds the initial state. `step` runs one and passes every value that is made to
/// the observer.
fn record<E: Engine>(
    engine: &mut E,
    of: &TrainingStep,
    mut step: impl FnMut(&mut E, &Run, &mut dyn FnMut(NodeId, usize, &[u8])),
) -> Bits {
    let gradients: HashSet<ValueId> = of.roles.gradients.iter().map(|&(_, g)| g).collect();
    let mut bits = Bits::default();
    for number in 1..=N_STEPS {
        fill_batch(engine, number);
        let run = Run { seed: 3, step: number, learning_rate: 1e-2, micro: MicroBatch::ONLY };
        let mut observe = |node: NodeId, position: usize, bytes: &[u8]| {
            let value = of.graph.nodes[node].outputs[position];
            if gradients.contains(&value) {
                let seen = bits.gradients.insert((number, value), hash(bytes));
                // A gradient that is made twice must be made twice alike.
                assert!(seen.is_none_or(|h| h == hash(bytes)), "a recomputed gradient changed");
            }
        };
        step(engine, &run, &mut observe);
        bits.losses.push(engine.floats(of.roles.loss)[0].to_bits());
    }
    for source in states(of) {
        bits.state.insert(source.name.clone(), hash(engine.bytes(source.value)));
    }
    bits
}

fn states(of: &TrainingStep) -> impl Iterator<Item = &Source> {
    of.graph.sources.iter().filter(|s| of.graph.values[s.value].kind.is_state())
}

/// What the oracle computes.
pub(crate) fn reference(of: &TrainingStep, n_threads: usize) -> Oracle {
    let mut engine = Reference::new(of.graph.clone(), n_threads).expect("threads");
    engine.initialise(1);
    let initial = states(of).map(|s| (s.value, engine.bytes(s.value).to_vec())).collect();
    let bits = record(&mut engine, of, |engine, run, observe| engine.step(run, Some(observe)));
    assert!(bits.losses.iter().all(|&l| f32::from_bits(l).is_finite()), "the loss is not finite");
    assert_eq!(bits.gradients.len(), of.roles.gradients.len() * N_STEPS as usize, "every gradient is seen");
    Oracle { bits, initial }
}

/// Runs a program, with freed memory poisoned, and holds its measured peak against the predicted one and its bits
/// against the oracle's.
pub(crate) fn check_run(
    of: &TrainingStep,
    oracle: &Oracle,
    program: &Program,
    n_threads: usize,
    context: &str,
) {
    let mut engine = Executor::new(program.clone(), n_threads).expect("memory and threads");
    engine.poison = true;
    for (value, bytes) in &oracle.initial {
        engine.bytes_mut(*value).copy_from_slice(bytes);
    }
    let bits = record(&mut engine, of, |engine, run, observe| {
        let stats = engine.step(run, Some(observe));
        assert_eq!(stats.peak, program.peak(), "{context}: measured peak differs from the predicted one");
    });
    assert_eq!(oracle.bits.difference(&bits), None, "{context}, {n_threads} threads: a bit changed");
}
