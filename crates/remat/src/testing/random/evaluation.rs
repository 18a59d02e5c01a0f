//! Evaluation between two steps, in the memory of training: it leaves all state alone, and its score does not depend on the
//! plan of training.

use crate::graph::Graph;
use crate::pipeline::Program;
use crate::train::{Evaluation, Score, Session, Synthetic};

const SEED: u64 = 9;

/// Trains one step of each program and evaluates where that fits; returns how many it fits.
pub(super) fn check(forward: &Graph, programs: &[(String, Program)]) -> Result<usize, String> {
    let mut expected: Option<Score> = None;
    let mut n_evaluations = 0;
    for (name, program) in programs {
        let Some(score) =
            evaluate(forward, program).map_err(|fault| format!("{name}, evaluation: {fault}"))?
        else {
            continue;
        };
        n_evaluations += 1;
        let bits = |score: Score| (score.loss.to_bits(), score.accuracy.map(f32::to_bits));
        let first = *expected.get_or_insert(score);
        if bits(first) != bits(score) {
            return Err(format!("{name}: evaluation gives {score:?} instead of {first:?}"));
        }
    }
    Ok(n_evaluations)
}

fn evaluate(forward: &Graph, program: &Program) -> Result<Option<Score>, String> {
    let says = |error: crate::Error| error.to_string();
    let Some(evaluation) = Evaluation::fit(forward, program).map_err(says)? else { return Ok(None) };
    if evaluation.peak() > program.peak() {
        return Err("it needs more memory than training".to_owned());
    }
    let batches = Box::new(Synthetic { seed: SEED });
    let mut session = Session::new(program.clone(), batches, SEED, 1).map_err(says)?;
    session.step(None).map_err(says)?;
    let before = session.state_hash().map_err(says)?;
    let score = evaluation.run(&mut session, &mut Synthetic { seed: SEED }, 1).map_err(says)?;
    if session.state_hash().map_err(says)? != before {
        return Err("it changed the state of training".to_owned());
    }
    Ok(Some(score))
}
