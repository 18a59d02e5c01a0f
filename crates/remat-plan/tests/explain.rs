//! What an explanation says about a plan, on graphs that can be followed by hand.

mod common;

use common::{network, node};
use expect_test::expect;
use remat_plan::{
    Bytes, Channel, ChannelId, Link, Moves, NodeId, Phase, Plan, Problem, ProblemSpec, Request, Status, Step,
    Store, StoreId, Value, ValueId, check, explain, memory_floor, solve,
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

/// The same with a store: copying `a` takes 4 s in either direction.
fn bypass_with_store() -> Problem {
    let channel = |name: &str| Channel { name: name.into(), overlaps: true };
    let link =
        |number| Link { channel: ChannelId(number), latency: 0.0, cost_per_byte: 4.0 / f64::from(40 << 20) };
    let store = Store { name: "disk".into(), capacity_bytes: None, out: link(0), back: link(1) };
    let channels = vec![channel("to disk"), channel("from disk")];
    Problem::new(ProblemSpec { channels, stores: vec![store], ..bypass().spec().clone() })
        .expect("well formed")
}

/// Moves `a` while `c` is made, and copies it back before `b` is freed.
fn moving_plan() -> Plan {
    let (a, disk) = (ValueId(1), StoreId(0));
    let run = |node| Step::Compute(NodeId(node));
    let steps = vec![
        run(0),
        Step::Out(a, disk),
        run(1),
        Step::Free(a),
        Step::Free(ValueId(0)),
        run(2),
        Step::In(a, disk),
        Step::Free(ValueId(2)),
        run(3),
    ];
    Plan {
        problem: "bypass".into(),
        planner: "by hand".into(),
        status: Status::Feasible,
        budget_bytes: Bytes(120 << 20),
        peak_bytes: Bytes(120 << 20),
        cost: 22.0,
        lower_bound: None,
        stored: Vec::new(),
        steps,
    }
}

#[test]
fn moves_are_told_with_their_times_waits_and_what_they_make_room_for() {
    let (problem, plan) = (bypass_with_store(), moving_plan());
    assert_eq!(check(&problem, &plan), []);
    let explanation = explain(&problem, &plan).unwrap();
    let moves = explanation.moves.as_ref().expect("a is moved");
    // Out from 2 to 6 s, while b is made until 5; in from 11 to 15 s, while nothing can run.
    assert_eq!((moves.copying, moves.waiting, moves.hidden_percent), (8.0, 5.0, 37.5));
    let [moved] = &moves.values[..] else { panic!("one value is moved: {moves:?}") };
    assert_eq!((moved.out, moved.back, moved.waited), (Some((2.0, 6.0)), Some((11.0, 15.0)), 5.0));
    assert_eq!((moved.maker_cost, moved.rests), (Some(2.0), false));
    let away = moved.away.as_ref().expect("its memory is freed");
    assert_eq!((away.from_step, away.to_step, away.tightest_step), (3, 6, 5));
    assert_eq!((away.used_bytes, away.excess_if_kept_bytes), (Bytes(80 << 20), Bytes(0)));
    let text = explanation.to_string();
    for words in [
        "the peak is at step 6, where a is copied in from a store: 40.00 MiB",
        "moved to and from stores: 1 value\n",
        "40.00 MiB out to disk: 1 copy, 4.000000 s",
        "37.5 % of 8.000000 s of copying is hidden; the step waits 5.000000 s",
        "away from step 3 to 6: kept, step 5 (make_c, 80.00 MiB) would still fit; waited for 5.000000 s",
        "running its maker again would take 2.000000 s",
        "nothing is recomputed",
    ] {
        assert!(text.contains(words), "`{words}` is missing:\n{text}");
    }
}

#[test]
fn a_store_of_twice_the_speed_saves_what_the_same_steps_then_need_less() {
    let (problem, plan) = (bypass_with_store(), moving_plan());
    assert_eq!(Moves::saved_by_faster_copies(&problem, &plan, 1.0), Ok(0.0));
    assert_eq!(Moves::saved_by_faster_copies(&problem, &plan, 2.0), Ok(3.0));
    assert_eq!(Moves::of(&problem.without_stores(), &Plan { steps: vec![], ..plan }), Ok(None));
}

#[test]
fn the_times_of_moves_add_up_on_random_problems() {
    let mut n_moving = 0;
    for seed in 0..30 {
        let problem = common::stores::random_problem_with_stores(seed, 10);
        let floor = memory_floor(&problem).bytes;
        let request = Request::new(floor + Bytes(floor.0 / 4)).effort(0.05);
        let outcome = solve(&problem, "swap", &request).expect("a valid plan");
        let Some(plan) = outcome.plan() else { continue };
        let Some(moves) = Moves::of(&problem, plan).expect("a checked plan") else { continue };
        n_moving += 1;
        let computing: f64 = plan.computes().map(|node| problem.node(node).cost).sum();
        assert!(
            (computing + moves.waiting - plan.cost).abs() < 1e-9 * plan.cost.max(1.0),
            "{seed}: {moves:?}"
        );
        assert!((0.0..=100.0).contains(&moves.hidden_percent), "{seed}");
        let waited: f64 = moves.values.iter().map(|value| value.waited).sum();
        assert!(waited <= moves.waiting + 1e-9 * plan.cost.max(1.0), "{seed}");
        for value in &moves.values {
            let Some(away) = &value.away else { continue };
            assert!((away.from_step..away.to_step).contains(&away.tightest_step), "{seed}");
            assert!(away.used_bytes <= plan.peak_bytes, "{seed}");
        }
    }
    assert!(n_moving >= 5, "only {n_moving} plans move anything");
}
