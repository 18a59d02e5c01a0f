//! The rewriter: recomputes become clones, readers are redirected, frees are explicit; the checker finds every fault.

use expect_test::{Expect, expect};
use remat::graph::Graph;
use remat::ids::{Id, IdVec};
use remat::profile::{PlanningProblem, problem};
use remat::rewrite::{Schedule, Step, apply, check};
use remat_plan::{Bytes, NodeId, Plan, Status, free_early, simulate};

const STEP: &str = r#"graph "tiny"
%0: f32[16] = input "x" "batch"
%1: f32[16] = parameter "w" {"uniform":0.5}
%2: f32[16] = add {} %0 %1 @a forward
%3: f32[16] = relu {} %2 @b forward
%4: f32[16] = relu {} %3 @c forward
%5: f32[16] = relu_grad {} %4 %4 @c backward
%6: f32[16] = relu_grad {} %3 %5 @b backward
%7: f32[16] = sgd {"momentum":0.0,"weight_decay":0.0,"nesterov":false} %1 %6 @a optimizer
output %4
"#;

fn tiny() -> (Graph, PlanningProblem) {
    let graph = Graph::from_text(STEP).expect("valid text");
    let seconds = IdVec::filled(graph.nodes.len(), 1.0);
    let problem = problem(&graph, &seconds).expect("a valid problem");
    (graph, problem)
}

/// The plan that computes these nodes in this order and frees as early as possible.
fn plan(problem: &PlanningProblem, computes: &[usize]) -> Plan {
    let computes: Vec<NodeId> = computes.iter().map(|&n| NodeId::new(n)).collect();
    let steps = free_early(&problem.problem, &computes);
    let simulation = simulate(&problem.problem, &steps).expect("valid steps");
    Plan {
        problem: problem.problem.name.clone(),
        planner: "by hand".into(),
        status: Status::Feasible,
        budget_bytes: Bytes(u64::MAX),
        peak_bytes: simulation.peak,
        cost: simulation.cost,
        lower_bound: None,
        steps,
    }
}

fn check_rewrite(computes: &[usize], expected: Expect) {
    let (graph, problem) = tiny();
    let schedule = apply(&graph, &problem, &plan(&problem, computes)).expect("a right schedule");
    expected.assert_eq(&schedule.to_text());
}

#[test]
fn without_recomputes_only_frees_are_added() {
    check_rewrite(
        &[0, 1, 2, 3, 4, 5],
        expect![[r#"
            %2: f32[16] = add {} %0 %1 @a forward
            free %0
            %3: f32[16] = relu {} %2 @b forward
            free %2
            %4: f32[16] = relu {} %3 @c forward
            %5: f32[16] = relu_grad {} %4 %4 @c backward
            %6: f32[16] = relu_grad {} %3 %5 @b backward
            free %3
            free %5
            %7: f32[16] = sgd {"momentum":0.0,"nesterov":false,"weight_decay":0.0} %1 %6 @a optimizer
            free %6
        "#]],
    );
}

#[test]
fn a_dropped_value_is_recomputed_before_its_backward_use() {
    check_rewrite(
        &[0, 1, 2, 3, 0, 1, 4, 5],
        expect![[r#"
            %2: f32[16] = add {} %0 %1 @a forward
            %3: f32[16] = relu {} %2 @b forward
            free %2
            %4: f32[16] = relu {} %3 @c forward
            free %3
            %5: f32[16] = relu_grad {} %4 %4 @c backward
            %8: f32[16] = add {} %0 %1 @a forward of n0
            free %0
            %9: f32[16] = relu {} %8 @b forward of n1
            free %8
            %6: f32[16] = relu_grad {} %9 %5 @b backward
            free %9
            free %5
            %7: f32[16] = sgd {"momentum":0.0,"nesterov":false,"weight_decay":0.0} %1 %6 @a optimizer
            free %6
        "#]],
    );
}

/// A right schedule, broken in one place.
fn broken(change: impl FnOnce(&mut Schedule)) -> Vec<String> {
    let (graph, problem) = tiny();
    let mut schedule =
        apply(&graph, &problem, &plan(&problem, &[0, 1, 2, 3, 0, 1, 4, 5])).expect("a right schedule");
    assert!(check(&graph, &schedule).is_empty());
    change(&mut schedule);
    check(&graph, &schedule)
}

#[test]
fn the_checker_sees_what_a_wrong_rewriter_would_do() {
    // A reader that was not redirected to the copy that is live.
    let stale = broken(|s| {
        let id = s
            .graph
            .nodes
            .ids()
            .find(|&n| s.graph.nodes[n].scope == "b" && n.index() == 4)
            .expect("the reader");
        s.graph.nodes[id].inputs[0] = s.graph.nodes[s.graph.nodes.ids().nth(1).expect("node 1")].outputs[0];
    });
    assert!(!stale.is_empty());
    let lost_run = broken(|s| s.steps.retain(|step| *step != Step::Run(Id::new(2))));
    assert!(lost_run.iter().any(|f| f.contains("never runs")), "{lost_run:?}");
    let update_twice = broken(|s| {
        let last = s.graph.nodes.ids().nth(5).expect("the update");
        s.steps.push(Step::Run(last));
    });
    assert!(update_twice.iter().any(|f| f.contains("update")), "{update_twice:?}");
    let early_free = broken(|s| {
        let at = s.steps.iter().position(|step| matches!(step, Step::Free(_))).expect("a free");
        let free = s.steps.remove(at);
        s.steps.insert(0, free);
    });
    assert!(!early_free.is_empty());
    let other_op = broken(|s| {
        let id = s.graph.nodes.ids().next_back().expect("a clone");
        s.graph.nodes[id].op = remat::op::add::Add {}.into();
    });
    assert!(other_op.iter().any(|f| f.contains("another op")), "{other_op:?}");
}
