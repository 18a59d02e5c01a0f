//! A training session: a program with its memory, its batches and its place in the run.
//!
//! The place is the number of steps done. Everything else a step depends on (batch, random numbers, learning rate) is a
//! function of that number and the seed, so state and step are all that a checkpoint needs.

use super::{Batches, LearningRate, Optimizer, check_indices};
use crate::error::Result;
use crate::exec::{Engine, Executor, Observer, StepStats};
use crate::graph::Kind;
use crate::ids::ValueId;
use crate::op::{MicroBatch, Run};
use crate::pipeline::Program;
use remat_plan::Bytes;
use std::time::Duration;

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
    n_micro: u64,
    loss: ValueId,
    gradient_norm: Option<ValueId>,
    batch_sources: Vec<usize>,
}

impl Session {
    /// Reserves the memory and initialises the model. The learning rate is constant until another is set.
    pub fn new(
        program: Program,
        optimizer: &Optimizer,
        batches: Box<dyn Batches>,
        seed: u64,
        n_threads: usize,
    ) -> Result<Session> {
        let mut executor = Executor::new(program.schedule, program.layout, n_threads)?;
        executor.initialise(seed);
        let graph = executor.graph();
        let is_batch = |&i: &usize| graph.values[graph.sources[i].value].kind == Kind::Input;
        Ok(Session {
            batch_sources: (0..graph.sources.len()).filter(is_batch).collect(),
            loss: graph.outputs[0],
            gradient_norm: optimizer.clip_norm.and(graph.outputs.get(1).copied()),
            executor,
            batches,
            learning_rate: LearningRate::constant(optimizer.learning_rate),
            seed,
            step: 0,
            n_micro: optimizer.micro_batches.max(1),
        })
    }

    /// The memory and the program.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The memory and the program.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Steps done.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Goes on as if this many steps had been done; the state is the caller's to fill.
    pub fn continue_after(&mut self, step: u64) {
        self.step = step;
    }

    /// Runs the next step. The observer sees every value as it is made.
    pub fn step(&mut self, mut observer: Option<&mut Observer<'_>>) -> Result<StepResult> {
        let step = self.step + 1;
        let learning_rate = self.learning_rate.at(step);
        let mut stats = StepStats { time: Duration::ZERO, peak: Bytes(0), n_runs: 0 };
        let mut loss = 0.0;
        for index in 0..self.n_micro {
            let micro = MicroBatch { index, count: self.n_micro };
            let run = Run { seed: self.seed, step, learning_rate, micro };
            for &i in &self.batch_sources {
                let source = self.executor.graph().sources[i].clone();
                self.batches.fill(run.batch(), &source, self.executor.bytes_mut(source.value))?;
            }
            check_indices(&self.executor)?;
            let part = self.executor.step(&run, observer.as_deref_mut());
            stats.time += part.time;
            stats.peak = stats.peak.max(part.peak);
            stats.n_runs += part.n_runs;
            loss += f64::from(self.executor.floats(self.loss)[0]);
        }
        self.step = step;
        Ok(StepResult {
            step,
            loss: (loss / self.n_micro as f64) as f32,
            learning_rate,
            gradient_norm: self.gradient_norm.map(|norm| self.executor.floats(norm)[0]),
            stats,
        })
    }
}
