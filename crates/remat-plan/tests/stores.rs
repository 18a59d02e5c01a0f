//! Plans that use stores: the simulator, the checker and the external checker say the same of valid and of broken ones.

mod common;

use common::external::{External, NO_CHECKER};
use common::naive::{Naive, cheapest};
use common::stores::{
    budget_below_state, claimed, network_with_store, random_plan, random_problem_with_stores,
};
use common::{Random, skip};
use remat_plan::{
    Bytes, NodeId, Outcome, PLAN_SCHEMA_2, Plan, Problem, Request, Step, StoreId, ValueId, check,
    memory_floor, solve,
};

const N_CASES: u64 = 400;

fn cases() -> impl Iterator<Item = (Problem, Plan, Random)> {
    (0..N_CASES).map(|seed| {
        let problem = random_problem_with_stores(seed, 12);
        let mut random = Random(seed);
        let plan = random_plan(&problem, &mut random);
        (problem, plan, random)
    })
}

#[test]
fn the_checker_agrees_with_the_simulator() {
    let (mut n_copies, mut n_stored, mut n_valid, mut n_broken) = (0, 0, 0, 0);
    for (problem, plan, mut random) in cases() {
        let names = |faults: Vec<_>| {
            faults.iter().map(|f: &remat_plan::Fault| f.with_names(&problem).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(check(&problem, &plan)), [""; 0], "{}", plan.to_text(&problem));
        n_copies += plan.steps.iter().filter(|step| step.uses_store()).count();
        n_stored += plan.stored.len();
        assert!(memory_floor(&problem).bytes <= plan.peak_bytes, "{}", plan.to_text(&problem));
        for _ in 0..20 {
            let (stored, steps) = mutated(&problem, &plan, &mut random);
            match claimed(&problem, stored.clone(), steps.clone()) {
                Some(other) => {
                    assert_eq!(names(check(&problem, &other)), [""; 0], "{}", other.to_text(&problem));
                    n_valid += 1;
                }
                None => {
                    let other = Plan { stored, steps, ..plan.clone() };
                    assert_ne!(check(&problem, &other), [], "{}", other.to_text(&problem));
                    n_broken += 1;
                }
            }
        }
    }
    let counts = [n_copies, n_stored, n_valid, n_broken];
    let is_enough = counts.iter().zip([1000, 20, 500, 2000]).all(|(&n, least)| n > least);
    assert!(is_enough, "copies, stored inputs, valid and broken mutants: {counts:?}");
}

/// One step more, less, changed or elsewhere.
fn mutated(problem: &Problem, plan: &Plan, random: &mut Random) -> (Vec<(ValueId, StoreId)>, Vec<Step>) {
    let (mut stored, mut steps) = (plan.stored.clone(), plan.steps.clone());
    let value = ValueId::new(random.below(problem.values.len()));
    let store = StoreId::new(random.below(problem.stores.len() + 1));
    let at = random.below(steps.len());
    let new = match random.below(5) {
        0 => Step::Compute(NodeId::new(random.below(problem.nodes.len()))),
        1 => Step::Free(value),
        2 => Step::Out(value, store),
        3 => Step::In(value, store),
        _ => Step::Discard(value, store),
    };
    match random.below(6) {
        0 => steps.insert(at, new),
        1 => steps[at] = new,
        2 => drop(steps.remove(at)),
        3 => {
            let other = random.below(steps.len());
            steps.swap(at, other);
        }
        4 if !stored.is_empty() => drop(stored.swap_remove(0)),
        _ => {
            let step = steps.remove(at);
            let other = random.below(steps.len() + 1);
            steps.insert(other, step);
        }
    }
    (stored, steps)
}

#[test]
fn both_forms_hold_the_same() {
    for (problem, plan, _) in cases() {
        assert_eq!(Problem::parse(&problem.to_json()).unwrap(), problem);
        assert_eq!(Problem::parse(&problem.to_text()).unwrap(), problem);
        assert_eq!(Plan::parse(&plan.to_json(), &problem).unwrap(), plan);
        assert_eq!(Plan::parse(&plan.to_text(&problem), &problem).unwrap(), plan);
        assert_eq!(plan.to_json().contains(PLAN_SCHEMA_2), plan.uses_stores());
    }
}

#[test]
fn the_external_checker_agrees() {
    let Some(mut external) = External::start() else {
        return skip("the_external_checker_agrees", NO_CHECKER);
    };
    for (problem, plan, mut random) in cases() {
        let (stored, steps) = mutated(&problem, &plan, &mut random);
        let broken = Plan { stored, steps, ..plan.clone() };
        for plan in [plan, broken] {
            let (is_valid, answer) = external.ask(&problem, &plan);
            assert_eq!(is_valid, check(&problem, &plan).is_empty(), "{answer}\n{}", plan.to_json());
        }
    }
}

#[test]
fn planners_without_stores_claim_no_more_than_they_know() {
    for seed in 0..60 {
        let problem = random_problem_with_stores(seed, 10);
        let budget = memory_floor(&problem.without_stores()).bytes;
        for planner in ["chain-dp", "save-all"] {
            let outcome = solve(&problem, planner, &Request::new(budget).effort(0.1)).expect("a valid plan");
            match outcome.plan() {
                Some(plan) => {
                    assert!(!plan.uses_stores());
                    assert!(plan.lower_bound.expect("a bound") >= problem.base_cost() - 1e-9);
                }
                None => {
                    let Outcome::Infeasible { why, .. } = &outcome else { unreachable!("there is no plan") };
                    assert!(!why.is_proof(), "{why}");
                }
            }
        }
    }
}

/// The exhaustive planner against brute force that has none of its ideas.
#[test]
fn exhaustive_search_finds_the_cheapest_plan() {
    const MOST_STATES: usize = 3_000;
    let (mut n_equal, mut n_moved, mut n_impossible) = (0, 0, 0);
    for seed in 0..1_200 {
        let problem = random_problem_with_stores(seed, 4);
        if problem.values.len() > 5 {
            continue;
        }
        let floor = memory_floor(&problem).bytes;
        for budget in [floor, floor + Bytes(2)] {
            let request = Request::new(budget).effort(0.3);
            let name = format!("seed {seed}, budget {budget}");
            match solve(&problem, "exhaustive", &request).expect("a valid plan") {
                // What fits without recomputing or moving anything needs no second opinion.
                Outcome::Optimal(plan) if plan.cost > problem.base_cost() || plan.uses_stores() => {
                    match cheapest(&problem, budget.0, plan.cost, MOST_STATES) {
                        Naive::Unknown => continue,
                        answer => assert_eq!(answer, Naive::Cost(plan.cost), "{name}"),
                    }
                    n_equal += 1;
                    n_moved += u32::from(plan.uses_stores());
                }
                Outcome::Infeasible { why, .. } if why.is_proof() => {
                    let most = 2.0 * problem.base_cost() + 4.0;
                    let answer = cheapest(&problem, budget.0, most, MOST_STATES);
                    assert!(!matches!(answer, Naive::Cost(_)), "{name}: {answer:?}");
                    n_impossible += u32::from(answer == Naive::None);
                }
                _ => {}
            }
        }
    }
    let counts = [n_equal, n_moved, n_impossible];
    let is_enough = counts.iter().zip([60, 50, 2]).all(|(&n, least)| n > least);
    assert!(is_enough, "equal, of these with copies, without a plan: {counts:?}");
}

/// A whole training step of thirty thousand nodes, with half of the memory that it takes to keep everything.
#[test]
fn a_large_step_with_a_store_gets_a_checked_plan_and_a_bound() {
    let problem = network_with_store(7, 4_300);
    assert!(problem.nodes.len() > 30_000);
    let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("a valid plan");
    let half = Bytes(everything.plan().expect("everything fits").peak_bytes.0 / 2);
    for budget in [half, budget_below_state(&problem)] {
        // The work of a second or two; the example `large_swap` measures time.
        let outcome = solve(&problem, "best", &Request::new(budget).effort(0.5)).expect("a valid plan");
        let plan = outcome.plan().expect("a store has room for what is too much");
        assert!(plan.uses_stores() && plan.peak_bytes <= budget);
        assert!(plan.lower_bound.is_some_and(|bound| problem.base_cost() <= bound && bound <= plan.cost));
    }
}
