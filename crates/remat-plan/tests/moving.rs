//! Planners that use stores: every plan passes the checker, and the same request gives the same plan.

mod common;

use common::stores::random_problem_with_stores;
use remat_plan::{
    Bytes, Outcome, PLANNERS, Plan, Problem, Request, Step, StoreId, ValueId, memory_floor, solve,
};

/// The planners that move values.
const MOVING: [&str; 4] = ["swap", "mu-two", "mu-two-literal", "best"];

fn solved(problem: &Problem, planner: &str, budget: u64, effort: f64) -> Option<Plan> {
    let request = Request::new(Bytes(budget)).effort(effort).seed(3);
    let outcome = solve(problem, planner, &request).unwrap_or_else(|bug| {
        panic!("{planner} on {} at {budget}: {bug}\n{}", problem.name, problem.to_text())
    });
    if let Outcome::Infeasible { lowest_peak, .. } = &outcome {
        assert!(lowest_peak.0 > budget, "{planner} on {}: {} fits {budget}", problem.name, lowest_peak.0);
    }
    outcome.plan().cloned()
}

#[test]
fn every_plan_on_random_problems_passes_the_checker() {
    let (mut n_plans, mut n_moving, mut n_resting) = (0, 0, 0);
    for seed in 0..600 {
        let problem = random_problem_with_stores(seed, 14);
        let (floor, all) = (memory_floor(&problem).bytes.0, keep_all_peak(&problem));
        for planner in MOVING {
            for budget in [floor, (floor + all) / 2, all.saturating_sub(1), all] {
                let Some(plan) = solved(&problem, planner, budget, 0.002) else { continue };
                n_plans += 1;
                n_moving += usize::from(plan.uses_stores());
                n_resting += usize::from(!plan.stored.is_empty());
            }
        }
    }
    let counts = (n_plans, n_moving, n_resting);
    assert!(
        n_plans > 2000 && n_moving > 500 && n_resting > 30,
        "plans, moving, with state at rest: {counts:?}"
    );
}

#[test]
fn the_same_request_gives_the_same_plan() {
    for seed in 0..20 {
        let problem = random_problem_with_stores(seed, 30);
        let budget = (memory_floor(&problem).bytes.0 + 2 * keep_all_peak(&problem)) / 3;
        for planner in MOVING {
            let plan = solved(&problem, planner, budget, 0.01);
            assert_eq!(plan, solved(&problem, planner, budget, 0.01), "{planner} on {}", problem.name);
        }
    }
}

#[test]
fn best_is_not_worse_than_the_planners_it_begins_with() {
    for seed in 0..60 {
        let problem = random_problem_with_stores(seed, 40);
        let budget = (memory_floor(&problem).bytes.0 + keep_all_peak(&problem)) / 2;
        let best = solved(&problem, "best", budget, 0.05).map_or(f64::INFINITY, |plan| plan.cost);
        for planner in ["swap", "mu-two", "save-all"] {
            let other = solved(&problem, planner, budget, 0.05).map_or(f64::INFINITY, |plan| plan.cost);
            assert!(best <= other * (1.0 + 1e-9), "{planner} on {}: {other} < {best}", problem.name);
        }
    }
}

fn keep_all_peak(problem: &Problem) -> u64 {
    let outcome =
        solve(problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all makes valid plans");
    outcome.plan().expect("everything fits in all memory").peak_bytes.0
}

#[test]
fn the_table_says_which_planners_move_values() {
    let names: Vec<&str> = PLANNERS.iter().filter(|info| info.uses_stores).map(|info| info.name).collect();
    assert!(MOVING.iter().all(|name| names.contains(name)), "{names:?}");
}

/// Three layers; the first activation is idle longest, and a byte takes `out` to be copied out.
fn three_layers(out: f64) -> Problem {
    let text = format!(
        "remat.problem/2
name layers
channel out overlaps
channel in overlaps
store file out 0 0.0 {out:?} in 1 0.0 0.01
value %0 10 x
value %1 100 a
value %2 100 b
value %3 100 c
value %4 10 dc
value %5 10 db
value %6 10 da
inputs %0
forward f1 cost 5.0 reads %0 makes %1
forward f2 cost 5.0 reads %1 makes %2
forward f3 cost 5.0 reads %2 makes %3
backward b3 cost 5.0 reads %3 makes %4
backward b2 cost 5.0 reads %2 %4 makes %5
backward b1 cost 5.0 reads %1 %5 makes %6
outputs %6
"
    );
    Problem::from_text(&text).expect("a valid problem")
}

#[test]
fn the_printed_policy_swaps_what_is_idle_longest_and_forgets_the_copy_out() {
    // A copy back of one second is hidden under b2, so it costs less than running f1 again.
    let plan = solved(&three_layers(0.01), "mu-two-literal", 250, 1.0).expect("two of three fit");
    let moved: Vec<Step> =
        plan.steps.iter().copied().filter(|step| matches!(step, Step::Out(..) | Step::In(..))).collect();
    let (a, file) = (ValueId(1), StoreId(0));
    assert_eq!(moved, [Step::Out(a, file), Step::In(a, file)]);
    assert_eq!((plan.cost, plan.computes().count()), (30.0, 6));
    // The printed overhead is that of the copy back alone: with a copy out of 50 s the policy does the same and waits for it.
    let slow = solved(&three_layers(0.5), "mu-two-literal", 250, 1.0).expect("two of three fit");
    assert!(slow.uses_stores() && slow.cost > 60.0, "{}", slow.cost);
    let repaired = solved(&three_layers(0.5), "mu-two", 250, 1.0).expect("two of three fit");
    assert!(!repaired.uses_stores() && repaired.cost == 35.0, "{}", repaired.cost);
}
