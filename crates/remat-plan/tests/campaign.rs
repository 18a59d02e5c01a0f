//! A slice of the campaign of `cargo run --release -p remat-plan --example campaign`: every planner on random graphs.

mod common;

use common::campaign::{Tally, check_graph};

/// About twenty seconds in a release build on one core.
const N_GRAPHS: u64 = 1000;
const MAX_NODES: usize = 12;

#[test]
fn every_planner_keeps_its_promises_on_random_graphs() {
    let mut tally = Tally::default();
    for seed in 0..N_GRAPHS {
        tally.add(check_graph(seed, MAX_NODES));
    }
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    // The oracle is worth its name only if it answers.
    assert!(100 * tally.n_answered > 99 * tally.n_requests, "{tally:?}");
    assert!(tally.n_impossible > 0 && tally.n_proved > 0, "{tally:?}");
    // Local search promises nothing, but on graphs of this size it misses few of the optima.
    assert!(tally.n_hard > 100, "{tally:?}");
    assert!(20 * tally.misses.len() <= tally.n_hard, "{}", tally.misses.join("\n"));
}
