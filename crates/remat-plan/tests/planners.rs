//! One property guards every planner: what it returns passes the checker and is what it says.

mod common;

use common::{count, network, random_problem};
use remat_plan::{
    Bytes, Outcome, PLANNERS, Problem, Request, Why, check, frontier, memory_floor, simulate, solve,
};

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

/// Compares every planner with the oracle; says whether the oracle answered.
fn check_against_exhaustive(problem: &Problem, budget: u64) -> bool {
    let request = Request { effort: Some(0.02), ..Request::new(Bytes(budget)) };
    let oracle = solve(problem, "exhaustive", &request).expect("the oracle makes valid plans");
    let optimum = match &oracle {
        Outcome::Optimal(plan) => Some(plan.cost),
        Outcome::Infeasible { why: Why::Exhausted | Why::BelowFloor(_), .. } => None,
        _ => return false,
    };
    for info in PLANNERS {
        let outcome = solve(problem, info.name, &request).unwrap_or_else(|bug| panic!("{bug}"));
        let name = format!("{} on {} at {budget}", info.name, problem.name);
        match (outcome, optimum) {
            (Outcome::Optimal(plan) | Outcome::Feasible(plan, _), Some(optimum)) => {
                let bound = plan.lower_bound.expect("every plan has a bound");
                assert!(
                    bound <= optimum * (1.0 + 1e-9),
                    "{name}: the bound {bound} is above the optimum {optimum}"
                );
                assert!(
                    plan.cost >= optimum * (1.0 - 1e-9),
                    "{name}: {} is below the optimum {optimum}",
                    plan.cost
                );
                if info.name == "best" {
                    assert!(plan.cost <= optimum * (1.0 + 1e-9), "{name}: {} is not {optimum}", plan.cost);
                }
            }
            (Outcome::Infeasible { why, .. }, Some(_)) => {
                let is_proof = matches!(why, Why::BelowFloor(_) | Why::CutTooLarge { .. } | Why::Exhausted);
                assert!(!is_proof, "{name}: a feasible budget is called infeasible: {why}");
                assert_ne!(info.name, "best", "{name}: a feasible budget is called infeasible");
            }
            (Outcome::Optimal(_) | Outcome::Feasible(..), None) => {
                panic!("{name}: there is no plan, says the oracle")
            }
            (Outcome::Infeasible { .. }, None) => {}
        }
    }
    true
}

#[test]
fn best_equals_exhaustive_search_on_tiny_graphs_and_no_bound_exceeds_the_optimum() {
    let mut n_answers = 0;
    let n_graphs = std::env::var("REMAT_RANDOM_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for seed in 1000..1000 + n_graphs {
        let problem = random_problem(seed, 8);
        let (floor, all) = (memory_floor(&problem).bytes.0, keep_all_peak(&problem));
        for budget in [floor.saturating_sub(1), floor, floor + 2, (floor + all) / 2] {
            n_answers += usize::from(check_against_exhaustive(&problem, budget));
        }
    }
    assert!(n_answers as u64 > 3 * n_graphs, "the oracle answered only {n_answers} times");
}

#[test]
fn the_frontier_is_monotone_and_every_point_is_checked() {
    let problem = network(5, 10);
    for planner in ["mu-two", "sqrt", "chain-dp"] {
        let points = frontier(&problem, planner, 21, &Request::new(Bytes(0))).unwrap();
        assert_eq!(points.len(), 21);
        let mut last_cost = f64::INFINITY;
        for point in &points {
            let Some(plan) = &point.plan else { continue };
            assert_eq!(check(&problem, plan), [], "{planner} at {}", point.budget);
            assert_eq!(plan.budget_bytes, point.budget);
            assert!(plan.cost <= last_cost, "{planner} at {}", point.budget);
            last_cost = plan.cost;
        }
        let last = points[20].plan.as_ref().expect("keeping everything fits");
        assert_eq!(last.cost, problem.base_cost(), "{planner}");
    }
}
