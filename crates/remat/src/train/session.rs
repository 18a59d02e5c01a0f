//! A training session: a program with its memory, its batches and its place in the run.
//!
//! The place is the number of steps done. Everything else a step depends on (batch, random numbers, learning rate) is a
//! function of that number and the seed, so state and step are all that a checkpoint needs.

use super::verify::Verifier;
use super::{Batch, Batches, Difference, LearningRate, Part};
use crate::error::Result;
use crate::exec::{Engine, Executor, Observer, StepStats, as_floats};
use crate::hash;
use crate::ids::NodeId;
use crate::op::{MicroBatch, Run};
use crate::pipeline::Program;

/// What one training step gave.
#[derive(Clone, PartialEq, Debug)]
pub struct StepResult {
    /// The step, from 1.
    pub step: u64,
    /// The loss before the update: the mean over the micro-batches.
    pub loss: f32,
    /// The learning rate of the update.
    pub learning_rate: f64,
    /// The norm of all gradients together, before clipping; known where gradients are clipped.
    pub gradient_norm: Option<f32>,
    /// Time and memory of all micro-batches.
    pub stats: StepStats,
    /// The first value that was not the same when it was computed again, where that is verified. Then neither the loss nor
    /// the state after the step can be trusted.
    pub difference: Option<Difference>,
}

/// A running training.
#[derive(Debug)]
pub struct Session {
    executor: Executor,
    batches: Box<dyn Batches>,
    /// The rate of every step.
    pub learning_rate: LearningRate,
    seed: u64,
    step: u64,
    verifier: Option<Verifier>,
}

impl Session {
    /// Reserves the memory and initialises the model. The learning rate is the optimizer's until another is set.
    pub fn new(program: Program, batches: Box<dyn Batches>, seed: u64, n_threads: usize) -> Result<Session> {
        let rate = program.roles().optimizer.map_or(0.0, |optimizer| optimizer.learning_rate);
        let mut executor = Executor::new(program, n_threads)?;
        executor.initialise(seed)?;
        let learning_rate = LearningRate::constant(rate);
        Ok(Session { executor, batches, learning_rate, seed, step: 0, verifier: None })
    }

    /// From now on every value that is computed again is held against its first computation.
    pub fn verify(&mut self) {
        self.verifier = Some(Verifier::new(self.executor.program()));
    }

    /// How many values were held against their first computation, where that is done.
    pub fn n_verified(&self) -> Option<u64> {
        self.verifier.as_ref().map(|verifier| verifier.n_compared)
    }

    /// The memory and the program.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The memory and the program.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Seed of weights, data and dropout.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Steps done.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Continues as if this many steps had been done; the state is the caller's to fill.
    pub fn continue_after(&mut self, step: u64) {
        self.step = step;
    }

    /// A hash of all parameters, buffers and optimizer state. Checkpoints hold it, so its definition does not change.
    pub fn state_hash(&self) -> Result<u64> {
        Ok(self.state_facts()?.0)
    }

    /// Whether no parameter, statistic or optimizer state is infinite or not a number.
    pub fn is_finite(&self) -> Result<bool> {
        Ok(self.state_facts()?.1)
    }

    /// The hash of all state, and whether it is finite.
    pub(super) fn state_facts(&self) -> Result<(u64, bool)> {
        let (mut hash, mut is_finite) = (hash::floats(None, &[]), true);
        self.visit_state(|floats| {
            hash = hash::floats(Some(hash), floats);
            is_finite &= floats.iter().all(|x| x.is_finite());
        })?;
        Ok((hash, is_finite))
    }

    /// Shows all state, in order, piece by piece.
    fn visit_state(&self, mut see: impl FnMut(&[f32])) -> Result<()> {
        let graph = self.executor.graph();
        let mut states = graph.sources.iter().filter(|source| graph.values[source.value].kind.is_state());
        states.try_for_each(|source| self.executor.visit(source.value, &mut |bytes| see(as_floats(bytes))))
    }

    /// Runs the next step. The observer sees every value as it is made.
    pub fn step(&mut self, mut observer: Option<&mut Observer<'_>>) -> Result<StepResult> {
        let step = self.step + 1;
        let learning_rate = self.learning_rate.at(step);
        let mut stats = StepStats::none();
        let mut loss = 0.0;
        let roles = self.executor.program().roles();
        let (loss_value, norm_value, count) = (roles.loss, roles.gradient_norm, roles.micro_batches());
        for index in 0..count {
            let micro = MicroBatch { index, count };
            let run = Run { seed: self.seed, step, learning_rate, micro };
            let mut batch = Batch::new(run.batch(), Part::Training, self.seed, self.executor.batch_mut());
            self.batches.fill(&mut batch)?;
            batch.check()?;
            let part = match &mut self.verifier {
                None => self.executor.step(&run, observer.as_deref_mut())?,
                Some(verifier) => {
                    let mut watch = |node: NodeId, position: usize, bytes: &[u8]| {
                        verifier.see(node, position, bytes);
                        if let Some(observer) = observer.as_deref_mut() {
                            observer(node, position, bytes);
                        }
                    };
                    self.executor.step(&run, Some(&mut watch))?
                }
            };
            stats.add(part);
            loss += f64::from(self.executor.floats(loss_value)[0]);
        }
        self.step = step;
        let graph = self.executor.graph();
        let difference = self.verifier.as_mut().and_then(|verifier| verifier.difference(graph, step));
        Ok(StepResult {
            step,
            loss: (loss / count as f64) as f32,
            learning_rate,
            gradient_norm: norm_value.map(|norm| self.executor.floats(norm)[0]),
            stats,
            difference,
        })
    }
}
