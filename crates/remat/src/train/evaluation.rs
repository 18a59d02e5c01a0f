//! Evaluation inside the memory of training.
//!
//! In: the forward graph of a model and a program that trains it. Out: an [`Evaluation`], which runs between two steps in
//! the training arena: parameters and statistics are read where training keeps them, and everything that evaluation
//! makes lies in the rest of the arena, which training does not need between steps. The layout's checker knows all
//! training state as live, so evaluation cannot touch it. State that rests in a store is loaded when it is needed. When the values do not fit as they are, they are planned with
//! recomputation; when that does not fit either, the answer says so.

use super::{Batch, Batches, Part, Session};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ids::ValueId;
use crate::op::{MicroBatch, Run};
use crate::pipeline::{Fit, Place, Program, Resting, compile_forward};
use crate::step::evaluation_pass;
use remat_plan::{Bytes, StoreId};

/// What held-out data gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// Mean loss over the batches.
    pub loss: f32,
    /// Mean share of right answers, for classifiers.
    pub accuracy: Option<f32>,
}

/// A compiled evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    program: Program,
    /// Where it keeps off, and finds what it reads.
    state: Places,
}

impl Evaluation {
    /// Compiles the evaluation of a model into the arena of a training program; `None` when it does not fit there.
    pub fn fit(forward: &Graph, training: &Program) -> Result<Option<Evaluation>> {
        let pass = evaluation_pass(forward, &training.schedule().graph)?;
        let state = places(&pass.graph, training)?;
        let resting = Resting { stores: training.stores(), sources: &state.resting };
        match compile_forward(&pass, training.peak(), Place::Around(&state.placed), resting)? {
            Fit::Fits(program) => Ok(Some(Evaluation { program: *program, state })),
            Fit::Refused(_) => Ok(None),
        }
    }

    /// Whether it lies around the state of this program, too.
    fn keeps_off_the_state_of(&self, training: &Program) -> bool {
        let found = places(&self.program.schedule().graph, training);
        training.peak() >= self.peak() && found.is_ok_and(|found| found == self.state)
    }

    /// The most memory of the arena that it uses, training state included.
    pub fn peak(&self) -> Bytes {
        self.program.peak()
    }

    /// Evaluates the first `n_batches` batches in the session's memory. The state of training does not change. The session
    /// must run the training program that this was made for, or one that keeps its state in the same places.
    pub fn run(&self, session: &mut Session, batches: &mut dyn Batches, n_batches: u64) -> Result<Score> {
        session.check_state()?;
        if !self.keeps_off_the_state_of(session.executor().program()) {
            let message =
                "this evaluation was made for another training program; make one with `Evaluation::fit`";
            return Err(Error::Budget { message: message.to_owned() });
        }
        let roles = self.program.roles();
        let seed = session.seed();
        let executor = session.executor_mut();
        let (mut loss, mut accuracy) = (0.0, 0.0);
        for batch in 1..=n_batches {
            let inputs = executor.other_batch_mut(&self.program);
            let mut filled = Batch::new(batch, Part::HeldOut, seed, inputs);
            batches.fill(&mut filled)?;
            filled.check()?;
            let run = Run { seed: 0, step: batch, learning_rate: 0.0, micro: MicroBatch::ONLY };
            executor.run_other(&self.program, &run)?;
            let number = |value: ValueId| {
                let (offset, bytes) = self.program.range(value);
                f64::from(crate::exec::as_floats(executor.arena().slice(offset, bytes))[0])
            };
            loss += number(roles.loss);
            accuracy += roles.accuracy.map_or(0.0, number);
        }
        let mean = |sum: f64| (sum / n_batches as f64) as f32;
        Ok(Score { loss: mean(loss), accuracy: roles.accuracy.map(|_| mean(accuracy)) })
    }
}

/// Where all state of training is found.
#[derive(Clone, PartialEq, Debug)]
struct Places {
    /// Its offset in the arena or in its store.
    placed: Vec<(ValueId, u64)>,
    /// The store of what rests in one.
    resting: Vec<(ValueId, StoreId)>,
}

/// Where the training program keeps the state that evaluation finds.
fn places(graph: &Graph, training: &Program) -> Result<Places> {
    let trained = &training.schedule().graph;
    let n_states =
        |graph: &Graph| graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state()).count();
    if n_states(graph) != n_states(trained) {
        return Err(Error::bug("evaluation", ["training has other state"]));
    }
    let (mut placed, mut resting) = (Vec::new(), Vec::new());
    for source in graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state()) {
        let same = trained
            .sources
            .iter()
            .find(|s| s.name == source.name && trained.values[s.value].ty == graph.values[source.value].ty);
        let fault = || Error::bug("evaluation", [format!("training has no {}", source.name)]);
        let same = same.ok_or_else(fault)?.value;
        let offset = match training.stored(same).next() {
            Some((store, offset)) => {
                resting.push((source.value, StoreId::new(store)));
                offset
            }
            None => training.layout().offset[same].ok_or_else(fault)?,
        };
        placed.push((source.value, offset));
    }
    Ok(Places { placed, resting })
}
