//! The same problem, budget, effort and seed give the same plan, from one version to the next.
//!
//! Cost, peak and a hash of the whole plan are pinned for generated steps. A change that is meant to alter plans updates them
//! with `UPDATE_EXPECT=1`, and its message says why; any other change must leave them alone. An observer changes nothing.

mod common;

use common::{network, random_problem};
use expect_test::expect;
use remat_plan::{Bytes, Problem, Progress, Request, memory_floor, solve};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// A budget between the floor and the peak without recomputation.
fn budget(problem: &Problem, percent: u64) -> Bytes {
    let everything = solve(problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all is known");
    let most = everything.plan().expect("everything fits").peak_bytes.0;
    let floor = memory_floor(problem).bytes.0;
    Bytes(floor + (most - floor) * percent / 100)
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn line(problem: &Problem, planner: &str, percent: u64) -> String {
    let budget = budget(problem, percent);
    let request = Request::new(budget).effort(0.05).seed(7);
    let outcome = solve(problem, planner, &request).expect("the planner is known and its plan valid");
    let plan = outcome.to_plan(problem, planner, budget);
    let (status, hash) = (plan.status.name(), hash(&plan.to_json()));
    format!(
        "{:<13} {planner:<9} {percent:>2} % {status:<10} {:>10.3} {:>6} {hash:016x}\n",
        problem.name, plan.cost, plan.peak_bytes.0
    )
}

#[test]
fn plans_stay_the_same() {
    let mut table = String::new();
    for problem in [network(1, 12), network(2, 30), random_problem(3, 40), random_problem(8, 40)] {
        for planner in ["sqrt", "min-cut", "mu-two", "chain-dp", "eviction", "best"] {
            for percent in [15, 45] {
                let _ = write!(table, "{}", line(&problem, planner, percent));
            }
        }
    }
    expect![[r#"
        network-1-12  sqrt      15 % infeasible      0.000  11166 cf201d0af60ecb31
        network-1-12  sqrt      45 % feasible    37310.800  13592 5a582e305a76b079
        network-1-12  min-cut   15 % infeasible      0.000  17020 e2a6a68dc5fccb61
        network-1-12  min-cut   45 % infeasible      0.000  17020 e394b4ce9493a445
        network-1-12  mu-two    15 % feasible    63549.350   8904 b0bc932536b79211
        network-1-12  mu-two    45 % feasible    37620.600  13741 2c61c0e4d183002c
        network-1-12  chain-dp  15 % infeasible      0.000   8964 b21285e79f4310df
        network-1-12  chain-dp  45 % feasible    37261.800  13882 f8c2c1e5f5f9c7da
        network-1-12  eviction  15 % feasible    48753.250   8561 480222ae899cc021
        network-1-12  eviction  45 % feasible    36158.400  13808 1ee5d39049f59927
        network-1-12  best      15 % feasible    42224.950   8924 c6b627f2b9881fda
        network-1-12  best      45 % feasible    35089.900  13980 788ab8293b6c18de
        network-2-30  sqrt      15 % infeasible      0.000  18210 84befa7febda17da
        network-2-30  sqrt      45 % feasible    90731.250  25321 7fc78bb98cb2e10d
        network-2-30  min-cut   15 % infeasible      0.000  34555 8d74e53882bb328d
        network-2-30  min-cut   45 % infeasible      0.000  34555 88c4a028e1f4887b
        network-2-30  mu-two    15 % feasible   134834.100  15137 74c9d25ed2a4be45
        network-2-30  mu-two    45 % feasible    83909.350  27893 57b4d191d7bf7677
        network-2-30  chain-dp  15 % feasible    99521.700  15057 dee97745a0963223
        network-2-30  chain-dp  45 % feasible    87771.250  27808 a5d4da9b2d8e121a
        network-2-30  eviction  15 % feasible   116744.600  14533 e513c024e1270714
        network-2-30  eviction  45 % feasible    83079.800  27926 eb7ef8267f6d3e7e
        network-2-30  best      15 % feasible    96509.100  15192 2e51859533b1deb4
        network-2-30  best      45 % feasible    80914.200  27940 60833e42d7902bc7
        random-3      sqrt      15 % infeasible      0.000     27 d7da25504c4b00e4
        random-3      sqrt      45 % infeasible      0.000     27 b1eca7237c719a22
        random-3      min-cut   15 % infeasible      0.000     24 7c9d6cf701752b22
        random-3      min-cut   45 % infeasible      0.000     24 4425f4ce6a673884
        random-3      mu-two    15 % infeasible      0.000     22 30a0e0fab93dbad6
        random-3      mu-two    45 % feasible       48.000     22 5279d325c89dcf0b
        random-3      chain-dp  15 % infeasible      0.000     27 5e090e590b0ffbae
        random-3      chain-dp  45 % infeasible      0.000     27 80abdd99d8ac33f0
        random-3      eviction  15 % infeasible      0.000     22 40bb4da1085a9122
        random-3      eviction  45 % feasible       56.000     22 fa2e9c7bfcfd4711
        random-3      best      15 % optimal        50.000     19 ce97ccc88f2130dc
        random-3      best      45 % optimal        44.000     22 af2ddee929266b9e
        random-8      sqrt      15 % infeasible      0.000     46 8db0fe134b90ee22
        random-8      sqrt      45 % infeasible      0.000     46 c53e47605ed20356
        random-8      min-cut   15 % infeasible      0.000     46 8195b9283f5f9bff
        random-8      min-cut   45 % infeasible      0.000     46 1530d2791434013b
        random-8      mu-two    15 % infeasible      0.000     42 eb7aa1959b34b587
        random-8      mu-two    45 % infeasible      0.000     42 8fdfbc50ad8ab673
        random-8      chain-dp  15 % infeasible      0.000     46 e77aa0d3e6741d24
        random-8      chain-dp  45 % infeasible      0.000     46 f30056995e9cdde8
        random-8      eviction  15 % infeasible      0.000     46 ab271259d299ed0f
        random-8      eviction  45 % infeasible      0.000     46 f28097c542ee79cb
        random-8      best      15 % infeasible      0.000     42 d73229b31a713196
        random-8      best      45 % feasible       86.000     39 a9e0fc552d501f72
    "#]]
    .assert_eq(&table);
}

#[test]
fn an_observer_hears_of_progress_and_changes_nothing() {
    let problem = network(1, 12);
    let request = Request::new(budget(&problem, 20)).effort(0.1).seed(3);
    let unobserved = solve(&problem, "best", &request).unwrap();
    let heard: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let observed =
        solve(&problem, "best", &request.observer(move |news| ear.lock().unwrap().push(*news))).unwrap();
    assert_eq!(observed, unobserved);

    let (heard, plan) = (heard.lock().unwrap(), unobserved.plan().unwrap());
    assert!(heard.len() > 2, "{heard:?}");
    for pair in heard.windows(2) {
        let cost = |news: &Progress| news.cost.unwrap_or(f64::INFINITY);
        assert!(cost(&pair[1]) <= cost(&pair[0]) && pair[1].lower_bound >= pair[0].lower_bound, "{pair:?}");
        assert!(pair[1] != pair[0] && pair[1].elapsed >= pair[0].elapsed, "{pair:?}");
    }
    let last = heard.last().unwrap();
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
    assert!(close(last.cost.unwrap(), plan.cost), "{last:?}, {}", plan.cost);
    assert!(last.gap().unwrap() >= 0.0 && last.lower_bound <= plan.cost);
}
