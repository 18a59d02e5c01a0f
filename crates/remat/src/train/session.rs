//! A training session: a program with its memory, its batches and its place in the run.
//!
//! The place is the number of steps done. Everything else a step depends on (batch, random numbers, learning rate) is a
//! function of that number and the seed, so state and step are all that a checkpoint needs.
//!
//! A step that fails after its first kernel leaves the state of no step: statistics or some parameters are new, the rest is
//! old. The session then neither continues training nor lets anyone save it ([`Session::check_state`]). So that bad data alone
//! never causes this, the batches of all passes of a step are checked before the first one.

use super::verify::Verifier;
use super::{Batch, Batches, Difference, LearningRate, Part};
use crate::error::{Error, Result};
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
    /// Why what is in memory is not the state after the last step, where it is not.
    lost: Option<String>,
    verifier: Option<Verifier>,
}

impl Session {
    /// Reserves the memory and initialises the model. The learning rate is the optimizer's until another is set.
    pub fn new(program: Program, batches: Box<dyn Batches>, seed: u64, n_threads: usize) -> Result<Session> {
        let rate = program.roles().optimizer.map_or(0.0, |optimizer| optimizer.learning_rate);
        let mut executor = Executor::new(program, n_threads)?;
        executor.initialise(seed)?;
        let learning_rate = LearningRate::constant(rate);
        Ok(Session { executor, batches, learning_rate, seed, step: 0, lost: None, verifier: None })
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
        self.lost = None;
        if let Some(verifier) = &mut self.verifier {
            verifier.forget();
        }
    }

    /// From now on, and until [`continue_after`](Session::continue_after), what is in memory is the state after no step.
    pub(super) fn lose_state(&mut self, why: impl Into<String>) {
        self.lost = Some(why.into());
    }

    /// Fails unless what is in memory is the state after the last step.
    pub fn check_state(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(Error::StateLost { why: why.clone() }),
        }
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
        self.check_state()?;
        let step = self.step + 1;
        let learning_rate = self.learning_rate.at(step);
        let mut stats = StepStats::none();
        let mut loss = 0.0;
        let roles = self.executor.program().roles();
        let (loss_value, norm_value, count) = (roles.loss, roles.gradient_norm, roles.micro_batches());
        let seed = self.seed;
        let run_of = |index| Run { seed, step, learning_rate, micro: MicroBatch { index, count } };
        for run in (1..count).map(run_of) {
            let mut batch = Batch::new(run.batch(), Part::Training, seed, self.executor.batch_mut());
            self.batches.check(&mut batch)?;
        }
        for run in (0..count).map(run_of) {
            let mut batch = Batch::new(run.batch(), Part::Training, seed, self.executor.batch_mut());
            self.batches.fill(&mut batch)?;
            batch.check()?;
            self.lose_state(format!("step {step} has ended in its middle"));
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
        self.lost = difference.as_ref().map(ToString::to_string);
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
