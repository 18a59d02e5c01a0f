//! Reading and writing problems and plans: round trips, and a clear message with its place for every bad input.

mod common;

use common::{network, random_problem};
use expect_test::{Expect, expect};
use remat_plan::{
    Bytes, NodeId, Outcome, Plan, Problem, Request, Status, Step, ValueId, check, explain, free_early,
    simulate, solve,
};

/// x -> a -> b -> c, where the last node reads a again: dropping `a` saves memory at c's expense.
const SMALL: &str = r#"{ "schema": "remat.problem/1", "name": "small", "cost_unit": "s", "fixed_bytes": 100,
  "values": [ {"name": "x", "bytes": 8}, {"name": "a", "bytes": 64}, {"name": "b", "bytes": 32}, {"name": "c", "bytes": 16} ],
  "inputs": [0],
  "nodes": [
    {"name": "f", "op": "f", "phase": "forward", "cost": 1.5, "workspace_bytes": 4, "inputs": [0], "outputs": [1], "recompute": true},
    {"name": "g", "op": "g", "phase": "forward", "cost": 2, "workspace_bytes": 0, "inputs": [1], "outputs": [2], "recompute": true, "stream": 7},
    {"name": "h", "op": "h", "phase": "backward", "cost": 3, "workspace_bytes": 0, "inputs": [2, 1], "outputs": [3], "recompute": false}
  ],
  "outputs": [3], "comment": "extra fields are allowed" }"#;

fn small() -> Problem {
    Problem::from_json(SMALL).expect("the small problem is valid")
}

/// The message for the small problem after replacing one text by another.
fn check_bad(from: &str, to: &str, want: Expect) {
    assert!(SMALL.contains(from), "{from} does not occur");
    let error = Problem::from_json(&SMALL.replacen(from, to, 1)).expect_err("this must be refused");
    want.assert_eq(&error.to_string());
}

#[test]
fn problems_survive_a_round_trip() {
    for problem in (0..200).map(|seed| random_problem(seed, 10)).chain([small(), network(1, 5)]) {
        assert_eq!(Problem::from_json(&problem.to_json()).unwrap(), problem);
    }
}

#[test]
fn optional_fields_are_left_out_when_empty() {
    let text = small().to_json();
    assert!(
        text.starts_with(r#"{"schema":"remat.problem/1","name":"small","cost_unit":"s","fixed_bytes":100,"#)
    );
    assert!(!text.contains("consumes") && !text.contains("reuse") && !text.contains("module"), "{text}");
}

#[test]
fn broken_json_is_located() {
    check_bad(
        "\"inputs\": [0],",
        "\"inputs\": [0,",
        expect!["the problem is not valid `remat.problem/1` JSON: line 4, column 10: expected `,` or `]`"],
    );
    check_bad(
        "\"bytes\": 64",
        "\"bytes\": -64",
        expect![
            "the problem is not valid `remat.problem/1` JSON: line 2, column 67: invalid value: integer `-64`, expected u64"
        ],
    );
    check_bad(
        "\"cost\": 1.5",
        "\"cost\": 1e999",
        expect!["the problem is not valid `remat.problem/1` JSON: line 5, column 62: number out of range"],
    );
    check_bad(
        "\"cost\": 1.5",
        "\"cost\": NaN",
        expect!["the problem is not valid `remat.problem/1` JSON: line 5, column 58: expected value"],
    );
    check_bad(
        "\"phase\": \"forward\"",
        "\"phase\": \"fw\"",
        expect![
            "the problem is not valid `remat.problem/1` JSON: line 5, column 42: unknown variant `fw`, expected one of `forward`, `backward`, `optimizer`"
        ],
    );
    check_bad(
        "\"op\": \"f\", ",
        "",
        expect!["the problem is not valid `remat.problem/1` JSON: line 5, column 122: missing field `op`"],
    );
    check_bad(
        "remat.problem/1",
        "remat.problem/2",
        expect![[r#"the problem's `schema` is "remat.problem/2", not "remat.problem/1""#]],
    );
    check_bad(
        "\"schema\": \"remat.problem/1\",",
        "",
        expect![[r#"the problem's `schema` is missing, not "remat.problem/1""#]],
    );
}

#[test]
fn ids_out_of_range_and_duplicates_are_located() {
    check_bad(
        "\"inputs\": [2, 1]",
        "\"inputs\": [2, 99, 1, 98]",
        expect![[r#"
        the problem has 2 faults:
          node 2 (h): input 99 is out of range (there are 4 values)
          node 2 (h): input 98 is out of range (there are 4 values)"#]],
    );
    check_bad(
        "\"outputs\": [3], \"c",
        "\"outputs\": [3, 4], \"c",
        expect![[r#"
        the problem has 1 fault:
          problem: output 4 is out of range (there are 4 values)"#]],
    );
    check_bad(
        "\"inputs\": [2, 1]",
        "\"inputs\": [2, 1, 2]",
        expect![[r#"
        the problem has 1 fault:
          node 2 (h): input 2 is listed twice"#]],
    );
    check_bad(
        "\"inputs\": [0],\n  \"nodes",
        "\"inputs\": [0, 0],\n  \"nodes",
        expect![[r#"
        the problem has 1 fault:
          problem: input 0 is listed twice"#]],
    );
}

#[test]
fn every_value_has_exactly_one_origin_before_its_readers() {
    check_bad(
        "\"outputs\": [2]",
        "\"outputs\": [2, 1]",
        expect![[r#"
        the problem has 1 fault:
          node 1 (g): output 1 (a) already has a producer: node 0 (f)"#]],
    );
    check_bad(
        "\"outputs\": [1]",
        "\"outputs\": [1, 0]",
        expect![[r#"
        the problem has 1 fault:
          node 0 (f): output 0 (x) already has a producer: it is an input of the problem"#]],
    );
    check_bad(
        "\"outputs\": [2]",
        "\"outputs\": []",
        expect![[r#"
        the problem has 1 fault:
          node 2 (h): input 2 (b) has no producer and is not an input of the problem"#]],
    );
    check_bad(
        "\"inputs\": [0], \"outputs\": [1]",
        "\"inputs\": [2], \"outputs\": [1]",
        expect![[r#"
        the problem has 2 faults:
          node 0 (f): input 2 (b) is made by node 1 (g), which stands later in the list
          problem: the nodes form a cycle: 0 (f) -> 1 (g) -> 0 (f)"#]],
    );
    check_bad(
        "\"inputs\": [0], \"outputs\": [1]",
        "\"inputs\": [1], \"outputs\": [1]",
        expect![[r#"
        the problem has 2 faults:
          node 0 (f): input 1 (a) is made by node 0 (f), which stands later in the list
          problem: the nodes form a cycle: 0 (f) -> 0 (f)"#]],
    );
    check_bad(
        "\"outputs\": [3], \"r",
        "\"outputs\": [], \"r",
        expect![[r#"
        the problem has 1 fault:
          problem: output 3 (c) has no producer and is not an input of the problem"#]],
    );
}

#[test]
fn nodes_in_the_wrong_order_without_a_cycle_are_told_apart() {
    let swapped = SMALL.replace("\"inputs\": [0], \"outputs\": [1]", "\"inputs\": [0], \"outputs\": [#]");
    let swapped = swapped.replace("\"inputs\": [1], \"outputs\": [2]", "\"inputs\": [0], \"outputs\": [1]");
    let swapped = swapped.replace("\"inputs\": [0], \"outputs\": [#]", "\"inputs\": [1], \"outputs\": [2]");
    expect![[r#"
        the problem has 1 fault:
          node 0 (f): input 1 (a) is made by node 1 (g), which stands later in the list"#]]
    .assert_eq(&Problem::from_json(&swapped).unwrap_err().to_string());
}

#[test]
fn costs_and_sums_are_bounded() {
    check_bad(
        "\"cost\": 1.5",
        "\"cost\": -1.5",
        expect![[r#"
        the problem has 1 fault:
          node 0 (f): the cost -1.5 is not a finite number of at least zero"#]],
    );
    let huge = SMALL.replace("\"cost\": 1.5", "\"cost\": 1e308").replace("\"cost\": 2", "\"cost\": 1e308");
    expect![[r#"
        the problem has 1 fault:
          problem: the sum of all costs is too large for a number"#]]
    .assert_eq(&Problem::from_json(&huge).unwrap_err().to_string());
    check_bad(
        "\"bytes\": 64",
        "\"bytes\": 9000000000000000000",
        expect![[r#"
        the problem has 1 fault:
          problem: the sizes add up to more than 2^63 bytes"#]],
    );
}

#[test]
fn consumes_and_reuse_must_make_sense() {
    let end = "\"outputs\": [3], \"recompute\": false";
    check_bad(
        end,
        "\"outputs\": [3], \"recompute\": false, \"consumes\": [0]",
        expect![[r#"
        the problem has 1 fault:
          node 2 (h): consumed value 0 is not among the inputs"#]],
    );
    check_bad(
        end,
        "\"outputs\": [3], \"recompute\": true, \"consumes\": [2]",
        expect![[r#"
        the problem has 2 faults:
          node 2 (h): it consumes a value, so it must have "recompute": false
          node 2 (h): it consumes more bytes (32) than its outputs hold (16)"#]],
    );
    check_bad(
        end,
        "\"outputs\": [3], \"recompute\": false, \"reuse\": [[2, 1], [0, 3]]",
        expect![[r#"
        the problem has 2 faults:
          node 2 (h): the reuse pair [2, 1] is not an input and an output of the node
          node 2 (h): the reuse pair [0, 3] is not an input and an output of the node"#]],
    );
    check_bad(
        "\"inputs\": [1], \"outputs\": [2], \"recompute\": true",
        "\"inputs\": [1], \"outputs\": [2], \"recompute\": false, \"consumes\": [1]",
        expect![[r#"
        the problem has 2 faults:
          node 1 (g): consumed value 1 (a) is read by the later node 2 (h)
          node 1 (g): it consumes more bytes (64) than its outputs hold (32)"#]],
    );
    let lists = "\"outputs\": [3], \"recompute\": false}\n  ],\n  \"outputs\": [3]";
    check_bad(
        lists,
        "\"outputs\": [3], \"recompute\": false, \"consumes\": [2, 2]}\n  ],\n  \"outputs\": [2, 3]",
        expect![[r#"
        the problem has 4 faults:
          node 2 (h): consumed value 2 is listed twice
          node 2 (h): consumed value 2 (b) is an output of the problem
          node 2 (h): consumed value 2 (b) is an output of the problem
          node 2 (h): it consumes more bytes (64) than its outputs hold (16)"#]],
    );
}

fn planned() -> (Problem, Plan) {
    let problem = small();
    let outcome = solve(&problem, "save-all", &Request::new(Bytes(300))).expect("save-all makes valid plans");
    let plan = outcome.plan().expect("it fits").clone();
    (problem, plan)
}

#[test]
fn plans_survive_a_round_trip_in_the_form_of_the_format() {
    let (problem, plan) = planned();
    let text = plan.to_json();
    expect![[r#"{"schema":"remat.plan/1","problem":"small","planner":"save-all","status":"optimal","budget_bytes":300,"peak_bytes":212,"cost":6.5,"lower_bound":6.5,"steps":[["compute",0],["free",0],["compute",1],["compute",2],["free",1],["free",2]]}"#]].assert_eq(&text);
    assert_eq!(Plan::from_json(&text, &problem).unwrap(), plan);
}

#[test]
fn an_infeasible_answer_is_a_plan_without_steps() {
    let problem = small();
    let budget = Bytes(120);
    let outcome = solve(&problem, "save-all", &Request::new(budget)).unwrap();
    let plan = outcome.to_plan(&problem, "save-all", budget);
    assert_eq!((plan.status, plan.steps.len()), (Status::Infeasible, 0));
    assert!(check(&problem, &plan).is_empty());
    assert_eq!(Plan::from_json(&plan.to_json(), &problem).unwrap(), plan);
    let Outcome::Infeasible { lowest_peak, why } = outcome else { panic!("{outcome:?}") };
    expect!["212: no plan exists: node 2 (h) alone needs 212 B: 112 B for its operands, 0 B workspace, 100 B fixed, 0 B of other values that must be live then"].assert_eq(&format!("{}: {why}", lowest_peak.0));
}

#[test]
fn bad_plans_are_refused_with_the_place() {
    let (problem, plan) = planned();
    let text = plan.to_json();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} does not occur in {text}");
        Plan::from_json(&text.replacen(from, to, 1), &problem).expect_err("this must be refused").to_string()
    };
    expect!["the plan is for the problem `large`, not for `small`"].assert_eq(&refused("small", "large"));
    expect!["step 2 computes node 7, but the problem has only 3 nodes"]
        .assert_eq(&refused("[\"compute\",1]", "[\"compute\",7]"));
    expect!["step 1 frees value 4, but the problem has only 4 values"]
        .assert_eq(&refused("[\"free\",0]", "[\"free\",4]"));
    expect!["the plan is not valid `remat.plan/1` JSON: line 1, column 185: unknown step `release`, expected `compute` or `free`"].assert_eq(&refused("[\"free\",0]", "[\"release\",0]"));
    expect!["the plan is not valid `remat.plan/1` JSON: line 1, column 179: invalid length 1, expected a tuple of size 2"].assert_eq(&refused("[\"free\",0]", "[\"free\"]"));
    expect![[r#"the plan's `schema` is "remat.plan/9", not "remat.plan/1""#]]
        .assert_eq(&refused("remat.plan/1", "remat.plan/9"));
    expect!["the plan is not valid `remat.plan/1` JSON: line 1, column 231: EOF while parsing a list"]
        .assert_eq(&refused("]]}", "]"));
}

#[test]
fn the_checker_finds_every_fault() {
    let (problem, plan) = planned();
    let faults = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        check(&problem, &plan).iter().map(|fault| format!("{fault}\n")).collect::<String>()
    };
    assert_eq!(faults(&|_| {}), "");
    let compute = |n| Step::Compute(NodeId(n));
    let free = |v| Step::Free(ValueId(v));
    expect![[r#"
        step 0: node 1 (g) needs value 1 (a), which is not live
        step 2: node 0 (f) needs value 0 (x), which is not live
    "#]]
    .assert_eq(&faults(&|plan| plan.steps.swap(0, 2)));
    expect![[r#"
        step 4: node 2 (h) needs value 1 (a), which is not live
        step 5: value 1 (a) is freed, but not live
        the plan claims a peak of 212 bytes, but has 196
    "#]]
    .assert_eq(&faults(&|plan| plan.steps.insert(3, free(1))));
    expect![[r#"
        step 6: node 2 (h) needs value 2 (b), which is not live
        step 6: node 2 (h) needs value 1 (a), which is not live
        step 6: node 2 (h) must not run again
        step 7: there is no node 9
        step 8: there is no value 9
        output 3 (c) is not live at the end
        the plan claims the cost 6.5, but costs 9.5
        the plan claims to be optimal, but its lower bound is 6.5
    "#]]
    .assert_eq(&faults(&|plan| plan.steps.extend([compute(2), compute(9), free(9), free(3)])));
    expect![[r#"
        step 2: node 1 (g) needs 196 bytes, 16 over the budget of 180 bytes
        step 3: node 2 (h) needs 212 bytes, 32 over the budget of 180 bytes
    "#]]
    .assert_eq(&faults(&|plan| plan.budget_bytes = Bytes(180)));
    expect![[r#"
        the plan is for the problem `other`, not for `small`
        the plan claims a peak of 1 bytes, but has 212
        the plan claims the cost 1, but costs 6.5
        the plan claims the lower bound 70, which is above its own cost 6.5
        the plan claims to be optimal, but its lower bound is 70
    "#]]
    .assert_eq(&faults(&|plan| {
        plan.peak_bytes = Bytes(1);
        plan.cost = 1.0;
        plan.lower_bound = Some(70.0);
        plan.problem = "other".into();
    }));
    expect![[r#"
        the plan claims to be optimal, but its lower bound is missing
    "#]]
    .assert_eq(&faults(&|plan| plan.lower_bound = None));
    expect![[r#"
        the plan says it is infeasible, yet it has steps
    "#]]
    .assert_eq(&faults(&|plan| plan.status = Status::Infeasible));
    expect![[r#"
        output 3 (c) is not live at the end
        node 2 (h) never runs
        the plan claims a peak of 212 bytes, but has 196
        the plan claims the cost 6.5, but costs 3.5
        the plan claims the lower bound 6.5, which is above its own cost 3.5
        the plan claims to be optimal, but its lower bound is 6.5
    "#]]
    .assert_eq(&faults(&|plan| plan.steps.truncate(3)));
}

#[test]
fn early_frees_handle_recomputes_and_dead_values() {
    let problem = small();
    let show = |computes: &[u32]| {
        let computes: Vec<NodeId> = computes.iter().map(|&n| NodeId(n)).collect();
        let steps = free_early(&problem, &computes);
        let result = simulate(&problem, &steps).unwrap();
        let steps: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Compute(n) => problem.node(*n).name.clone(),
                Step::Free(v) => format!("-{}", problem.value(*v).name),
            })
            .collect();
        let curve: Vec<u64> = result.curve.iter().map(|(_, used)| used.0).collect();
        format!("{} | cost {} | {curve:?}", steps.join(" "), result.cost)
    };
    expect!["f -x g h -a -b | cost 6.5 | [176, 196, 212]"].assert_eq(&show(&[0, 1, 2]));
    expect!["f g -a f -x h -a -b | cost 8 | [176, 204, 208, 212]"].assert_eq(&show(&[0, 1, 0, 2]));
    expect!["f g h -a -b f -x -a | cost 8 | [176, 204, 220, 192]"].assert_eq(&show(&[0, 1, 2, 0]));
}

#[test]
fn the_simulator_stops_at_the_first_invalid_step() {
    let problem = small();
    let error = |steps: &[Step]| simulate(&problem, steps).unwrap_err().to_string();
    let compute = |n| Step::Compute(NodeId(n));
    let free = |v| Step::Free(ValueId(v));
    expect!["step 0: node 1 (g) needs value 1 (a), which is not live"].assert_eq(&error(&[compute(1)]));
    expect!["step 0: frees value 3 (c), which is not live"].assert_eq(&error(&[free(3)]));
    expect!["node 2 (h) never runs"].assert_eq(&error(&[compute(0), compute(1)]));
    expect!["step 3: node 2 (h) must not run again"].assert_eq(&error(&[
        compute(0),
        compute(1),
        compute(2),
        compute(2),
    ]));
    expect!["output 3 (c) is not live at the end"].assert_eq(&error(&[
        compute(0),
        compute(1),
        compute(2),
        free(3),
    ]));
    expect!["step 0 names an id that the problem does not have"].assert_eq(&error(&[compute(5)]));
}

#[test]
fn an_explanation_names_the_peak_and_the_recomputes() {
    let problem = network(4, 6);
    let all = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX))).unwrap();
    let budget = Bytes(all.plan().expect("no limit").peak_bytes.0 * 7 / 10);
    let outcome = solve(&problem, "mu-two", &Request::new(budget)).unwrap();
    let explanation = explain(&problem, outcome.plan().expect("it fits")).unwrap();
    expect![[r#"
        peak 7.77 KiB of a budget of 7.86 KiB; no plan is below 4.77 KiB
        the floor: node 25 (dx4) alone needs 4.77 KiB: 3.09 KiB for its operands, 0 B workspace, 0 B fixed, 1.68 KiB of other values that must be live then
        cost 18919.250000 us, 27.84 % above no recomputation; at most 23.53 % above the cheapest plan
        the peak is at step 30, dloss: 525 B outputs, 0 B workspace
              1.14 KiB  y3 in layers.3, waits for a later use
                1000 B  x, waits for a later use
                 929 B  a4 in layers.4, waits for a later use
                 929 B  y4 in layers.4, waits for a later use
                 882 B  y1 in layers.1, waits for a later use
                 604 B  y0 in layers.0, waits for a later use
                 525 B  a5 in layers.5, waits for a later use
                 525 B  y5 in layers.5, read there
                 244 B  w5, waits for a later use
                 228 B  w0, waits for a later use
          ... and 5 more live values
        recomputed nodes: 6
                 445 B  linear2 in layers.2, 3 extra, 1335.000000 us, 3145728.000000 us per MiB
                        dropped from step 12 to 46: kept, step 30 (dloss, 7.77 KiB) would be 352 B over the budget; instead y0 (604 B) could go for 30.200000 us and what its maker reads
              1.14 KiB  linear3 in layers.3, 1 extra, 1166.000000 us, 1048576.000000 us per MiB
                        dropped from step 17 to 51: kept, step 30 (dloss, 7.77 KiB) would be 1.05 KiB over the budget; instead y3 (1.14 KiB) could go for 58.300000 us and what its maker reads
                 882 B  linear1 in layers.1, 1 extra, 882.000000 us, 1048576.000000 us per MiB
                        dropped from step 7 to 73: kept, step 30 (dloss, 7.77 KiB) would be 789 B over the budget; instead y1 (882 B) could go for 44.100000 us and what its maker reads
                 604 B  linear0 in layers.0, 1 extra, 604.000000 us, 1048576.000000 us per MiB
                        dropped from step 2 to 81: kept, step 30 (dloss, 7.77 KiB) would be 511 B over the budget; instead y0 (604 B) could go for 30.200000 us and what its maker reads
                 445 B  gelu2 in layers.2, 2 extra, 89.000000 us, 209715.200000 us per MiB
                        dropped from step 14 to 47: kept, step 30 (dloss, 7.77 KiB) would be 352 B over the budget; instead y0 (604 B) could go for 30.200000 us and what its maker reads
                 445 B  add2 in layers.2, 2 extra, 44.500000 us, 104857.600000 us per MiB
                        dropped from step 19 to 49: kept, step 30 (dloss, 7.77 KiB) would be 352 B over the budget; instead y0 (604 B) could go for 30.200000 us and what its maker reads
    "#]].assert_eq(&explanation.to_string());
}
