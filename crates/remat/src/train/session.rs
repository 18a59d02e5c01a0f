//! A training session: a program with its memory, its batches and its place in the run.

use super::{Batches, Optimizer, check_indices};
use crate::error::Result;
use crate::exec::{Engine, Executor, Observer, StepStats};
use crate::graph::Kind;
use crate::ids::ValueId;
use crate::op::Run;
use crate::pipeline::Program;

/// What one training step gave.
#[derive(Clone, PartialEq, Debug)]
pub struct StepResult {
    /// The step, from 1.
    pub step: u64,
    /// The loss before the update.
    pub loss: f32,
    /// Time and memory.
    pub stats: StepStats,
}

/// A running training.
#[derive(Debug)]
pub struct Session {
    executor: Executor,
    batches: Box<dyn Batches>,
    learning_rate: f64,
    seed: u64,
    step: u64,
    loss: ValueId,
    batch_sources: Vec<usize>,
}

impl Session {
    /// Reserves the memory and initialises the model.
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
        let batch_sources = (0..graph.sources.len()).filter(is_batch).collect();
        let loss = graph.outputs[0];
        let learning_rate = optimizer.learning_rate;
        Ok(Session { executor, batches, learning_rate, seed, step: 0, loss, batch_sources })
    }

    /// The memory and the program.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The memory and the program.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Runs the next step. The observer sees every value as it is made.
    pub fn step(&mut self, observer: Option<&mut Observer<'_>>) -> Result<StepResult> {
        let step = self.step + 1;
        for &i in &self.batch_sources {
            let source = self.executor.graph().sources[i].clone();
            self.batches.fill(step, &source, self.executor.bytes_mut(source.value))?;
        }
        check_indices(&self.executor)?;
        let run = Run { seed: self.seed, step, learning_rate: self.learning_rate };
        let stats = self.executor.step(&run, observer);
        self.step = step;
        Ok(StepResult { step, loss: self.executor.floats(self.loss)[0], stats })
    }
}
