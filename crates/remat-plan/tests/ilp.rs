//! The exact planner against exhaustive search; only with the feature `ilp`.
#![cfg(feature = "ilp")]

mod common;

use common::{Random, node, random_problem};
use remat_plan::{
    Bytes, Outcome, Phase, Problem, ProblemSpec, Request, StopReason, Value, ValueId, memory_floor, solve,
};

/// A graph in which every node reads what the one before made, so that there is only one order; and earlier values, so
/// that there is something to recompute. Some values may be overwritten in place.
fn total_order(seed: u64, n_nodes: usize) -> Problem {
    let mut random = Random(seed);
    let mut values = vec![Value::new("x".into(), Bytes(1 + random.below(4) as u64))];
    let mut nodes = Vec::new();
    for n in 0..n_nodes {
        let mut inputs = vec![ValueId::new(n)];
        let other = ValueId::new(random.below(n + 1));
        if random.chance(70) && !inputs.contains(&other) {
            inputs.push(other);
        }
        values.push(Value { name: format!("v{n}"), bytes: Bytes(1 + random.below(9) as u64) });
        let cost = random.below(6) as f64;
        let mut next = node(format!("n{n}"), Phase::Forward, cost, inputs, vec![ValueId::new(n + 1)]);
        next.recompute = !random.chance(10);
        if random.chance(40) {
            next.reuse = vec![(ValueId::new(n), ValueId::new(n + 1))];
        }
        nodes.push(next);
    }
    let spec = ProblemSpec {
        name: format!("total-{seed}"),
        cost_unit: "1".into(),
        fixed_bytes: Bytes(0),
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId::new(n_nodes)],
        values,
        nodes,
        ..ProblemSpec::default()
    };
    Problem::new(spec).expect("the generator makes valid problems")
}

fn budgets(problem: &Problem) -> [u64; 2] {
    let all = solve(problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all makes valid plans");
    let all = all.plan().expect("everything fits in all memory").peak_bytes.0;
    let floor = memory_floor(problem).bytes.0;
    [floor, (floor + all) / 2]
}

#[test]
fn with_one_order_it_finds_what_exhaustive_search_finds() {
    let mut n_compared = 0;
    for seed in 0..60 {
        let problem = total_order(seed, 9);
        for budget in budgets(&problem) {
            let request = Request::new(Bytes(budget));
            let oracle = solve(&problem, "exhaustive", &request).unwrap();
            let exact = solve(&problem, "ilp", &request).unwrap();
            let cost = |outcome: &Outcome| outcome.plan().map(|plan| plan.cost);
            assert_eq!(cost(&exact), cost(&oracle), "{} at {budget}", problem.name);
            n_compared += usize::from(cost(&oracle).is_some_and(|cost| cost > problem.base_cost()));
        }
    }
    assert!(n_compared > 20, "only {n_compared} requests need a recompute");
}

#[test]
fn on_any_graph_it_is_valid_and_says_what_it_proved() {
    let mut n_in_order = 0;
    for seed in 0..80 {
        let problem = random_problem(seed, 8);
        for budget in budgets(&problem) {
            let request = Request::new(Bytes(budget));
            let oracle = solve(&problem, "exhaustive", &request).unwrap();
            let exact = solve(&problem, "ilp", &request).unwrap_or_else(|bug| panic!("{bug}"));
            let name = format!("{} at {budget}", problem.name);
            match (&exact, oracle.plan()) {
                (Outcome::Optimal(plan), Some(best)) => assert_eq!(plan.cost, best.cost, "{name}"),
                (Outcome::Feasible(plan, reason), Some(best)) => {
                    assert!(plan.cost >= best.cost, "{name}");
                    n_in_order += usize::from(*reason == StopReason::OptimalInOrder);
                    // mu-two keeps the order too, with any number of runs; so far it was never cheaper.
                    let other = solve(&problem, "mu-two", &request).unwrap();
                    assert!(other.plan().is_none_or(|other| plan.cost <= other.cost), "{name}");
                }
                (Outcome::Infeasible { lowest_peak, .. }, _) => assert!(lowest_peak.0 > budget, "{name}"),
                (_, None) => panic!("{name}: there is no plan, says the oracle"),
            }
        }
    }
    assert!(n_in_order > 0, "every plan was optimal in all orders, so nothing was said about one order");
}
