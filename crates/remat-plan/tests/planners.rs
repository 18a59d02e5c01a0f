//! One property guards every planner: what it returns passes the checker and is what it says.

mod common;

use common::{count, network, random_problem};
use remat_plan::{Bytes, Outcome, PLANNERS, Problem, Request, check, memory_floor, simulate, solve};

fn keep_all_peak(problem: &Problem) -> u64 {
    let outcome =
        solve(problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all makes valid plans");
    outcome.plan().expect("everything fits in all memory").peak_bytes.0
}

/// Runs every planner for one budget.
fn check_planners(problem: &Problem, budget: u64) {
    let floor = memory_floor(problem);
    for info in PLANNERS {
        let request = Request { effort: Some(0.01), ..Request::new(Bytes(budget)) };
        let outcome = solve(problem, info.name, &request).unwrap_or_else(|bug| panic!("{bug}"));
        match &outcome {
            Outcome::Infeasible { lowest_peak, .. } => {
                assert!(lowest_peak.0 > budget, "{}: {} fits {budget}", info.name, lowest_peak.0);
            }
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
                let name = format!("{} on {} at {budget}", info.name, problem.name);
                assert!(check(problem, plan).is_empty(), "{name}");
                let simulated = simulate(problem, &plan.steps).expect("checked plans can be simulated");
                let (peak, cost) = count(problem, &plan.steps);
                assert_eq!(plan.peak_bytes, simulated.peak, "{name}");
                assert_eq!(plan.peak_bytes.0, peak, "{name}");
                assert!((plan.cost - cost).abs() <= 1e-9 * cost, "{name}");
                assert!(plan.peak_bytes.0 <= budget, "{name}");
                assert!(
                    plan.peak_bytes >= floor.bytes,
                    "{name}: the floor {} is wrong: {:?}",
                    floor.bytes.0,
                    plan
                );
                assert_eq!(plan.planner, info.name);
            }
        }
    }
}

#[test]
fn every_plan_on_random_graphs_passes_the_checker() {
    for seed in 0..150 {
        let problem = random_problem(seed, 14);
        let (floor, all) = (memory_floor(&problem).bytes.0, keep_all_peak(&problem));
        for budget in [floor, (floor + all) / 2, all.saturating_sub(1), all] {
            check_planners(&problem, budget);
        }
    }
}

#[test]
fn every_plan_on_networks_passes_the_checker() {
    for seed in 0..6 {
        let problem = network(seed, 3 + 4 * seed as usize);
        let (floor, all) = (memory_floor(&problem).bytes.0, keep_all_peak(&problem));
        for k in 0..=4 {
            check_planners(&problem, floor + (all - floor) * k / 4);
        }
    }
}

#[test]
fn each_planner_saves_memory_on_a_network_of_blocks() {
    let problem = network(1, 16);
    let all = keep_all_peak(&problem);
    for (planner, percent) in [("sqrt", 60), ("per-block", 60), ("mu-two", 60)] {
        let outcome = solve(&problem, planner, &Request::new(Bytes(all * percent / 100))).unwrap();
        assert!(outcome.plan().is_some(), "{planner}: {outcome:?}");
    }
}

#[test]
fn a_graph_of_30000_nodes_is_planned_without_deep_recursion() {
    let problem = network(3, 4300);
    assert!(problem.nodes.len() > 30_000);
    let all = keep_all_peak(&problem);
    let outcome = solve(&problem, "sqrt", &Request::new(Bytes(all / 2))).unwrap();
    assert!(outcome.plan().is_some(), "{:?}", outcome);
}

#[test]
fn planners_are_deterministic() {
    let problem = network(2, 8);
    let budget = Bytes(keep_all_peak(&problem) * 6 / 10);
    for info in PLANNERS {
        let request = Request { effort: Some(0.01), ..Request::new(budget) };
        assert_eq!((info.plan)(&problem, &request), (info.plan)(&problem, &request), "{}", info.name);
    }
}

#[test]
fn an_unknown_planner_is_an_error_that_lists_the_known_ones() {
    let error = solve(&random_problem(0, 3), "magic", &Request::new(Bytes(1))).unwrap_err().to_string();
    assert!(error.starts_with("there is no planner `magic`; the planners are save-all, sqrt"), "{error}");
}

#[test]
fn best_is_not_worse_than_any_other_planner_on_layered_graphs() {
    for (seed, n_layers) in [(1, 6), (2, 12), (3, 24)] {
        let problem = network(seed, n_layers);
        let (floor, all) = (memory_floor(&problem).bytes.0, keep_all_peak(&problem));
        for percent in [10, 30, 60] {
            let budget = Bytes(floor + (all - floor) * percent / 100);
            let request = Request { effort: Some(0.02), ..Request::new(budget) };
            let cost =
                |planner: &str| solve(&problem, planner, &request).unwrap().plan().map(|plan| plan.cost);
            let best = cost("best");
            for info in PLANNERS.iter().filter(|info| info.name != "ilp") {
                let Some(other) = cost(info.name) else { continue };
                let name = format!("{} on {} at {percent} % of the range", info.name, problem.name);
                assert!(best.is_some_and(|best| best <= other * (1.0 + 1e-9)), "{name}: {other} < {best:?}");
            }
        }
    }
}
