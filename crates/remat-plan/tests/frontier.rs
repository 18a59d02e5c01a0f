//! The frontier over many budgets: monotone, within every budget, each point a checked plan.

mod common;

use common::{NO_INSTANCES, network, planning_dir, random_problem, skip};
use remat_plan::{Bytes, Frontier, Problem, Request, Status, check, frontier};

/// As many budgets as a percentage has, with both ends.
const N_POINTS: usize = 101;

fn sweep(problem: &Problem, planner: &str, n_points: usize, effort: f64) -> Frontier {
    let request = Request { effort: Some(effort), ..Request::new(Bytes(0)) };
    let mut n_done = 0;
    let curve = frontier(problem, planner, n_points, &request, |done| n_done = done)
        .unwrap_or_else(|bug| panic!("{bug}"));
    assert_eq!((curve.points.len(), n_done), (n_points, n_points));
    check_frontier(problem, planner, &curve);
    curve
}

fn check_frontier(problem: &Problem, planner: &str, curve: &Frontier) {
    let mut last: Option<(f64, f64)> = None;
    for point in &curve.points {
        let name = format!("{planner} on {} at {}", problem.name, point.budget.0);
        let Some(plan) = &point.plan else {
            assert!(last.is_none(), "{name}: a smaller budget has a plan");
            assert!(point.lowest_peak > point.budget && point.why.is_some(), "{name}");
            continue;
        };
        assert_eq!(check(problem, plan), [], "{name}");
        assert_eq!((plan.budget_bytes, plan.lower_bound), (point.budget, point.lower_bound), "{name}");
        assert!(plan.peak_bytes <= point.budget && point.why.is_none(), "{name}");
        let bound = plan.lower_bound.expect("every plan has a bound");
        assert!(bound >= curve.base_cost * (1.0 - 1e-9), "{name}");
        if let Some((cost, smaller_bound)) = last {
            assert!(plan.cost <= cost, "{name}: the cost rises from {cost} to {}", plan.cost);
            assert!(bound <= smaller_bound * (1.0 + 1e-9), "{name}: the bound rises");
        }
        last = Some((plan.cost, bound));
    }
    let top = curve.points.last().and_then(|point| point.plan.as_ref()).expect("keeping everything fits");
    assert_eq!((top.status, top.computes().count()), (Status::Optimal, problem.nodes.len()), "{planner}");
}

#[test]
fn every_planner_has_a_monotone_frontier_over_101_budgets() {
    for problem in [network(5, 10), random_problem(77, 14)] {
        for info in remat_plan::PLANNERS.iter().filter(|info| info.name != "ilp") {
            sweep(&problem, info.name, N_POINTS, 0.002);
        }
    }
}

#[test]
fn neighbours_answer_where_a_plan_meets_a_bound() {
    // A tiny graph has fewer different plans than budgets.
    let curve = sweep(&random_problem(9, 8), "best", N_POINTS, 0.01);
    let n_planned = curve.points.iter().filter(|point| point.was_planned).count();
    assert!(n_planned < N_POINTS / 2, "{n_planned} of {N_POINTS} budgets were planned");
    // What the neighbours said is what planning would have said.
    let problem = random_problem(9, 8);
    for point in curve.points.iter().filter(|point| !point.was_planned) {
        let outcome = remat_plan::solve(&problem, "best", &Request::new(point.budget)).unwrap();
        assert_eq!(outcome.plan().map(|plan| plan.cost), point.plan.as_ref().map(|plan| plan.cost));
    }
}

#[test]
fn one_point_and_none_are_curves_too() {
    assert_eq!(sweep(&network(1, 2), "save-all", 1, 1.0).points.len(), 1);
    let request = Request::new(Bytes(0));
    assert!(frontier(&network(1, 2), "save-all", 0, &request, |_| ()).unwrap().points.is_empty());
}

#[test]
fn the_shared_instances_have_monotone_frontiers() {
    let Some(dir) = planning_dir() else {
        return skip("the_shared_instances_have_monotone_frontiers", NO_INSTANCES);
    };
    for instance in ["resnet50_b184", "unet_b11"] {
        let text = std::fs::read_to_string(dir.join(format!("{instance}.json"))).unwrap();
        let problem = Problem::from_json(&text).unwrap();
        sweep(&problem, "mu-two", N_POINTS, 1.0);
        sweep(&problem, "best", N_POINTS, 0.002);
    }
}
