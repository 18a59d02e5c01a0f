//! Timetables against the simulator: the steps of every sequence that the moves can reach are valid, within the memory and as
//! early as they say.
//!
//! Beside the moves and not in the timetable, because the moves come later than it does.

use crate::common::stores::random_problem_with_stores;
use crate::planners::best::moves::{Kind, Moves};
use crate::schedule::moving::Moving;
use crate::schedule::moving::timetable::timetable;
use crate::schedule::random::Random;
use crate::schedule::tape::{Most, Tape};
use crate::simulate::simulate_with;

const N_PROBLEMS: u64 = 3000;
const N_MOVES: usize = 60;
const MAX_NODES: usize = 12;
/// How early copies in may begin, as parts of the cost of the step.
const LEADS: [f64; 3] = [0.0, 0.1, 1.0];

#[test]
fn every_sequence_has_steps_that_the_simulator_accepts() {
    let (mut n_tables, mut n_refused, mut n_earlier, mut faults) = (0, 0, 0, Vec::new());
    for seed in 0..N_PROBLEMS {
        let problem = random_problem_with_stores(seed, MAX_NODES);
        let moving = Moving::new(&problem);
        let mut random = Random::new(seed);
        let order: Vec<u32> = (0..moving.n_nodes as u32).collect();
        let mut tape = Tape::new(&moving.flat, i64::MAX / 2, &order);
        let mut moves = Moves::default();
        for _ in 0..N_MOVES {
            let proposal = match random.below(100) {
                0..40 => moves.propose_send(&moving, &mut tape, &mut random),
                40..60 => moves.propose(Kind::Drop, &mut tape, &mut random),
                60..70 => moves.propose(Kind::Delete, &mut tape, &mut random),
                70..75 => moves.propose(Kind::Swap, &mut tape, &mut random),
                _ => moves.propose(Kind::Shift, &mut tape, &mut random),
            };
            if proposal.is_none() || tape.try_change(&moves.change, Most::ANY).is_none() {
                continue;
            }
            tape.apply(&moves.change);
            let mut sequence = tape.computes();
            moving.flat.prune(&mut sequence);
            let peak = moving.flat.measure(&sequence, &mut Vec::new()).peak;
            let budget = peak + random.below(12) as i64;
            let lead = LEADS[random.below(LEADS.len())] * problem.base_cost();
            let Some(table) = timetable(&moving, &sequence, budget, lead) else {
                n_refused += 1;
                continue;
            };
            n_tables += 1;
            match simulate_with(&problem, &table.stored, &table.steps) {
                Err(error) => faults.push(format!("seed {seed}: {error}: {sequence:?}")),
                Ok(result) => {
                    let tolerance = 1e-9 * table.cost.max(1.0);
                    n_earlier += usize::from(result.cost < table.cost - tolerance);
                    if result.cost > table.cost + tolerance {
                        let (want, got) = (table.cost, result.cost);
                        faults.push(format!("seed {seed}: {got} instead of {want}: {sequence:?}"));
                    }
                    let most = budget.max(table.peak);
                    if result.peak.0 as i64 > most {
                        faults.push(format!("seed {seed}: {} above {most}: {sequence:?}", result.peak));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {n_tables}:\n{}", faults.len(), faults.join("\n"));
    assert!(n_tables > 50_000 && n_refused < n_tables / 10, "{n_tables} timetables, {n_refused} refused");
    assert!(n_earlier < n_tables / 10_000, "{n_earlier} of {n_tables} take less time than they say");
}
