//! One property guards every planner: what it returns passes the checker and is what it says.

mod common;

use common::{count, network, node, random_problem};
use remat_plan::{
    Bytes, Node, Outcome, PLANNERS, Phase, Problem, ProblemSpec, Request, Value, ValueId, check, checkpoint,
    memory_floor, simulate, solve,
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

/// A step whose backward begins before its forward has ended, as with two losses.
#[test]
fn phases_may_alternate() {
    let value = |name: &str| Value::new(name.to_owned(), Bytes(8));
    let id = ValueId::new;
    let spec = ProblemSpec {
        name: "alternating".to_owned(),
        cost_unit: "1".to_owned(),
        fixed_bytes: Bytes(0),
        values: ["x", "a", "da", "b", "db"].map(value).to_vec(),
        inputs: vec![id(0)],
        nodes: vec![
            node("a".into(), Phase::Forward, 1.0, vec![id(0)], vec![id(1)]),
            node("da".into(), Phase::Backward, 1.0, vec![id(1)], vec![id(2)]),
            node("b".into(), Phase::Forward, 1.0, vec![id(1)], vec![id(3)]),
            node("db".into(), Phase::Backward, 1.0, vec![id(1), id(2), id(3)], vec![id(4)]),
        ],
        outputs: vec![id(4)],
        ..ProblemSpec::default()
    };
    let problem = Problem::new(spec).expect("valid");
    let floor = memory_floor(&problem).bytes;
    for info in PLANNERS.iter().filter(|info| info.name != "ilp") {
        for budget in [Bytes(1), floor] {
            let outcome = solve(&problem, info.name, &Request::new(budget)).unwrap();
            assert!(outcome.plan().is_none_or(|plan| plan.peak_bytes <= budget), "{}", info.name);
        }
    }
}

#[test]
fn modules_that_read_overwritten_state_again_cannot_be_checkpointed() {
    let value = |name: &str| Value::new(name.to_owned(), Bytes(8));
    let id = ValueId::new;
    let in_module = |module: &str, node: Node| Node { module: Some(module.to_owned()), ..node };
    // The update of w comes before the last reader of a, which would have to be recomputed from w.
    let spec = ProblemSpec {
        name: "early update".to_owned(),
        cost_unit: "1".to_owned(),
        fixed_bytes: Bytes(0),
        values: ["x", "w", "a", "b", "loss", "dw", "w.new", "dx", "a.out", "b.out"].map(value).to_vec(),
        inputs: vec![id(0), id(1)],
        nodes: vec![
            in_module("block.0", node("linear".into(), Phase::Forward, 1.0, vec![id(0), id(1)], vec![id(2)])),
            in_module("block.0", node("relu".into(), Phase::Forward, 1.0, vec![id(2)], vec![id(8)])),
            in_module("block.1", node("gelu".into(), Phase::Forward, 1.0, vec![id(0)], vec![id(3)])),
            in_module("block.1", node("tanh".into(), Phase::Forward, 1.0, vec![id(3)], vec![id(9)])),
            node("loss".into(), Phase::Forward, 1.0, vec![id(8), id(9)], vec![id(4)]),
            node("dw".into(), Phase::Backward, 1.0, vec![id(4)], vec![id(5)]),
            Node {
                consumes: vec![id(1)],
                recompute: false,
                ..node("sgd".into(), Phase::Optimizer, 1.0, vec![id(1), id(5)], vec![id(6)])
            },
            node("dx".into(), Phase::Backward, 1.0, vec![id(2), id(3)], vec![id(7)]),
        ],
        outputs: vec![id(6), id(7)],
        ..ProblemSpec::default()
    };
    let problem = Problem::new(spec).expect("valid");
    let plan = checkpoint(&problem, &["block.1"]).expect("gelu needs x alone");
    assert!(check(&problem, &plan).is_empty());
    assert_eq!(plan.cost, problem.base_cost() + 1.0);
    let error = checkpoint(&problem, &["block.1", "block.0"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the modules `block.0` cannot be checkpointed: recomputing them in backward reads `w`, which the update `sgd` has \
         overwritten by then; leave them out, or let the update run after them"
    );
    let error = checkpoint(&problem, &["block.7"]).unwrap_err().to_string();
    assert_eq!(error, "no forward node belongs to the module `block.7`");
}

#[test]
fn who_refuses_names_a_peak_that_can_be_asked_for() {
    let problem = network(4, 10);
    let floor = memory_floor(&problem).bytes;
    for budget in [Bytes(0), Bytes(floor.0 - 1)] {
        let request = Request { effort: Some(0.01), ..Request::new(budget) };
        let lowest = |planner: &str| match solve(&problem, planner, &request).unwrap() {
            Outcome::Infeasible { lowest_peak, .. } => lowest_peak,
            plan => panic!("{planner} has a plan below the floor: {plan:?}"),
        };
        let best = lowest("best");
        for info in PLANNERS.iter().filter(|info| info.name != "ilp") {
            assert!(best <= lowest(info.name), "{} gets lower than best: {best}", info.name);
        }
        let again = Request { budget: best, ..request.clone() };
        assert!(solve(&problem, "best", &again).unwrap().plan().is_some(), "{best} was promised");
    }
}

/// Of forty values that a node makes, any twenty may die to make room: more sets than anyone can try.
#[test]
fn many_small_values_that_may_die_do_not_stop_the_search() {
    let n_values = 40;
    let id = ValueId::new;
    let value = |i| Value::new(format!("v{i}"), Bytes(if i == n_values { 20 } else { 1 }));
    let small: Vec<ValueId> = (0..n_values).map(id).collect();
    let all: Vec<ValueId> = (0..=n_values).map(id).collect();
    let mut wide = node("wide".into(), Phase::Forward, 1.0, vec![], vec![id(n_values)]);
    wide.workspace_bytes = Bytes(40);
    let spec = ProblemSpec {
        name: "many small values".to_owned(),
        cost_unit: "1".to_owned(),
        fixed_bytes: Bytes(0),
        values: (0..=n_values + 1).map(value).collect(),
        inputs: vec![],
        nodes: vec![
            node("split".into(), Phase::Forward, 1.0, vec![], small),
            wide,
            node("join".into(), Phase::Backward, 1.0, all, vec![id(n_values + 1)]),
        ],
        outputs: vec![id(n_values + 1)],
        ..ProblemSpec::default()
    };
    let problem = Problem::new(spec).expect("a valid problem");
    for budget in [62, 80, 99, 101] {
        let begin = std::time::Instant::now();
        check_planners(&problem, budget);
        let seconds = begin.elapsed().as_secs();
        assert!(seconds < 60, "budget {budget}: {seconds} s");
    }
}
