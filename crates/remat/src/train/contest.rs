//! Several programs of one model against each other: whole steps, alternating, after a warm-up.
//!
//! In every round each program begins from the same weights, runs the steps that warm up and then the timed ones;
//! only one program is in memory at a time, so the largest decides how much is needed. What slows the machine down for
//! a while slows down all of them. Since all begin alike, their losses and their state at the end of a round must be
//! equal to the bit.

use super::{Session, Synthetic};
use crate::error::Result;
use crate::pipeline::Program;
use crate::profile::Sample;
use remat_plan::Bytes;

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// Times that all programs take their turn.
    pub n_rounds: usize,
    /// Steps of a turn that are not timed. Memory is resident before the first step, so steps of many seconds need none.
    pub n_warm_up: usize,
    /// Timed steps of a turn.
    pub n_steps: usize,
}

/// What one program did.
#[derive(Clone, PartialEq, Debug)]
pub struct Performance {
    /// All timed steps of all rounds.
    pub time: Sample,
    /// The highest address that a kernel was given.
    pub measured_peak: Bytes,
    /// Seconds that the timed steps waited for copies to and from stores.
    pub stalls: Sample,
    /// Loss of every step of a round.
    pub losses: Vec<f32>,
    /// Hash of all parameters, buffers and optimizer state after a round.
    pub state: u64,
}

impl Performance {
    /// Whether two programs computed the same, to the bit.
    pub fn has_the_bits_of(&self, other: &Performance) -> bool {
        let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        bits(&self.losses) == bits(&other.losses) && self.state == other.state
    }
}

/// Runs the programs alternately. `progress` is called after every step.
pub fn contest(
    programs: &[&Program],
    seed: u64,
    n_threads: usize,
    rounds: Rounds,
    mut progress: impl FnMut(),
) -> Result<Vec<Performance>> {
    // Of each timed step, how long it took and how long it waited.
    let mut times: Vec<Vec<(f64, f64)>> = vec![Vec::new(); programs.len()];
    let mut performances: Vec<Option<Performance>> = vec![None; programs.len()];
    for _ in 0..rounds.n_rounds.max(1) {
        for (program, (times, performance)) in
            programs.iter().zip(times.iter_mut().zip(performances.iter_mut()))
        {
            let batches = Box::new(Synthetic { seed });
            let mut session = Session::new((*program).clone(), batches, seed, n_threads)?;
            let (mut losses, mut measured_peak) = (Vec::new(), Bytes(0));
            for step in 0..rounds.n_warm_up + rounds.n_steps.max(1) {
                let result = session.step(None)?;
                losses.push(result.loss);
                measured_peak = measured_peak.max(result.stats.peak);
                if step >= rounds.n_warm_up {
                    times.push((result.stats.time.as_secs_f64(), result.stats.stalls.as_secs_f64()));
                }
                progress();
            }
            let (time, stalls): (Vec<f64>, Vec<f64>) = times.iter().copied().unzip();
            let (time, stalls) = (Sample::of(time), Sample::of(stalls));
            let state = session.state_hash()?;
            *performance = Some(Performance { time, measured_peak, stalls, losses, state });
        }
    }
    Ok(performances.into_iter().map(|p| p.expect("every program had its turn")).collect())
}
