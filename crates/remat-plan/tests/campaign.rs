//! A slice of the campaign of `cargo run --release -p remat-plan --example campaign`: every planner on random graphs,
//! without stores and with them.

mod common;

use common::campaign::{Tally, check_graph};
use common::external::{External, NO_CHECKER};
use common::skip;
use common::store_campaign::{StoreTally, check_problem};

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

const N_PROBLEMS: u64 = 120;
const MAX_NODES_WITH_STORES: usize = 6;

#[test]
fn every_planner_keeps_its_promises_with_stores() {
    let mut external = External::start();
    if external.is_none() {
        skip("the external checker in every_planner_keeps_its_promises_with_stores", NO_CHECKER);
    }
    let mut tally = StoreTally::default();
    for seed in 0..N_PROBLEMS {
        tally.add(check_problem(seed, MAX_NODES_WITH_STORES, &mut external));
    }
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(100 * tally.n_answered > 98 * tally.n_requests, "{tally:?}");
    assert!(tally.n_impossible > 0 && tally.n_below_state > 0 && tally.n_moving > 100, "{tally:?}");
    assert!(tally.n_resting > 0 && tally.n_bounded > 0, "{tally:?}");
    assert!(tally.n_hard > 40 && tally.n_equal == tally.n_hard, "{}", tally.misses.join("\n"));
    // The race alone is worth something on larger problems only if it misses few of these.
    assert!(5 * (tally.n_race_costlier + tally.n_race_refused) <= tally.n_hard, "{tally:?}");
}
