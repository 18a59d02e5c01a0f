//! What an explanation says about a plan, on graphs that can be followed by hand.

mod common;

use common::{network, node};
use expect_test::expect;
use remat_plan::{
    Bytes, Phase, Problem, ProblemSpec, Request, Step, Value, ValueId, explain, memory_floor, solve,
};

/// x -> a -> b -> c -> d, where d reads a again: a kept until then costs its bytes while c is made.
fn bypass() -> Problem {
    let value = |name: &str, bytes| Value::new(name, Bytes(bytes));
    let step = |name: &str, phase, cost, inputs: &[u32], output: u32| {
        let inputs = inputs.iter().map(|&v| ValueId(v)).collect();
        node(name.into(), phase, cost, inputs, vec![ValueId(output)])
    };
    Problem::new(ProblemSpec {
        name: "bypass".into(),
        cost_unit: "s".into(),
        fixed_bytes: Bytes(0),
        values: vec![
            value("x", 10 << 20),
            value("a", 40 << 20),
            value("b", 30 << 20),
            value("c", 50 << 20),
            value("d", 1),
        ],
        inputs: vec![ValueId(0)],
        nodes: vec![
            step("make_a", Phase::Forward, 2.0, &[0], 1),
            step("make_b", Phase::Forward, 3.0, &[1], 2),
            step("make_c", Phase::Forward, 5.0, &[2], 3),
            step("make_d", Phase::Backward, 7.0, &[1, 3], 4),
        ],
        outputs: vec![ValueId(4)],
        ..ProblemSpec::default()
    })
    .expect("the graph is well formed")
}

#[test]
fn a_recompute_is_explained_by_the_step_that_it_relieves() {
    let problem = bypass();
    let request = Request::new(Bytes(105 << 20));
    let outcome = solve(&problem, "best", &request).unwrap();
    let explanation = explain(&problem, outcome.plan().unwrap()).unwrap();
    expect![[r#"
        peak 100.00 MiB of a budget of 105.00 MiB; no plan is below 90.00 MiB
        the floor: node 3 (make_d) alone needs 90.00 MiB: 90.00 MiB for its operands, 0 B workspace, 0 B fixed, 0 B of other values that must be live then
        cost 19.000000 s, 11.76 % above no recomputation; no plan within the budget costs less
        the peak is at step 5, recomputing make_a: 40.00 MiB outputs, 0 B workspace
             50.00 MiB  c, waits for a later use
             10.00 MiB  x, read there
        recomputed nodes: 1
             40.00 MiB  make_a, 1 extra, 2.000000 s, 0.050000 s per MiB
                        dropped from step 2 to 5: kept, step 3 (make_c, 90.00 MiB) would be 25.00 MiB over the budget; nothing else of that size could go there
    "#]]
    .assert_eq(&explanation.to_string());
}

#[test]
fn no_reason_is_wrong_about_what_keeping_would_need() {
    for seed in 0..4 {
        let problem = network(seed, 9);
        let floor = memory_floor(&problem).bytes.0;
        for extra in [400, 2000, 4000] {
            let request = Request { effort: Some(0.01), ..Request::new(Bytes(floor + extra)) };
            let outcome = solve(&problem, "mu-two", &request).unwrap();
            let Some(plan) = outcome.plan() else { continue };
            let explanation = explain(&problem, plan).unwrap();
            for recomputed in &explanation.recomputed {
                let reason = recomputed.reason.as_ref().expect("every node here has an output");
                assert_eq!(plan.steps[reason.again_at], Step::Compute(recomputed.node));
                let outputs = &problem.node(recomputed.node).outputs;
                assert!(outputs.iter().any(|&v| plan.steps[reason.dropped_at] == Step::Free(v)));
                let Some(step) = &reason.relieved else { continue };
                assert!(reason.dropped_at < step.at && step.at < reason.again_at);
                assert!(step.used <= plan.peak_bytes);
                assert_eq!(plan.steps[step.at], Step::Compute(step.node));
            }
        }
    }
}
