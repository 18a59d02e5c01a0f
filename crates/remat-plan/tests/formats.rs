//! Reading and writing problems and plans: round trips, and a clear message with its place for every bad input.

mod common;

use common::{Random, network, random_problem};
use expect_test::{Expect, expect};
use remat_plan::{
    Bytes, NodeId, Outcome, Plan, Problem, Request, Status, Step, check, explain, free_early, memory_floor,
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
fn problems_and_plans_survive_a_round_trip_through_text() {
    for seed in 0..1000 {
        let problem = odd_names(random_problem(seed, 12), seed);
        let text = problem.to_text();
        let again = Problem::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(again, problem, "seed {seed}\n{text}");
        assert_eq!(again.to_text(), text);
        assert_eq!(Problem::from_json(&problem.to_json()).unwrap(), problem, "seed {seed}");
        let request = Request::new(memory_floor(&problem).bytes).effort(0.001);
        for planner in ["save-all", "eviction"] {
            let outcome = solve(&problem, planner, &request).unwrap();
            let plan = outcome.to_plan(&problem, planner, request.budget);
            let text = plan.to_text(&problem);
            let again =
                Plan::parse(&text, &problem).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            assert_eq!(again, plan, "seed {seed}\n{text}");
            assert_eq!(Plan::from_json(&plan.to_json(), &problem).unwrap(), plan, "seed {seed}");
        }
    }
    let problem = network(1, 5);
    assert_eq!(Problem::from_text(&problem.to_text()).unwrap(), problem);
}

/// The problem with names, units and numbers that are hard to write down.
fn odd_names(problem: Problem, seed: u64) -> Problem {
    const PIECES: [&str; 14] =
        ["a", " ", "#", "%", "\"", "\\", "\n", "\r", "\t", "\u{1b}[2J", "\u{85}", "\u{2028}", "é", "---"];
    let mut random = Random(seed);
    let mut name = || {
        let n = random.below(5);
        (0..n).map(|_| PIECES[random.below(PIECES.len())]).collect::<String>()
    };
    let mut spec = problem.spec().clone();
    (spec.name, spec.cost_unit) = (name(), name());
    spec.values.iter_mut().for_each(|value| value.name = name());
    for node in &mut spec.nodes {
        (node.name, node.op) = (name(), name());
        node.module = Some(name()).filter(|name| !name.is_empty());
    }
    for (i, node) in spec.nodes.iter_mut().enumerate() {
        node.cost += [0.1, 1e-300, 1e300, 5e-324, 1.0 / 3.0, 0.0, 1e-32][(i + seed as usize) % 7];
    }
    Problem::new(spec).expect("names and small costs do no harm")
}

#[test]
fn files_are_read_in_either_form_and_written_by_their_name() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (problem, plan) = planned();
    for ending in ["txt", "json"] {
        let path = folder.join(format!("small.{ending}"));
        problem.write(&path).unwrap();
        assert_eq!(Problem::read(&path).unwrap(), problem);
        let path = folder.join(format!("small-plan.{ending}"));
        plan.write(&path, &problem).unwrap();
        assert_eq!(Plan::read(&path, &problem).unwrap(), plan);
        assert_eq!(std::fs::read_to_string(&path).unwrap().starts_with("remat.plan/1"), ending == "txt");
    }
    // The content counts, not the name.
    let misnamed = folder.join("misnamed.json");
    std::fs::write(&misnamed, problem.to_text()).unwrap();
    assert_eq!(Problem::read(&misnamed).unwrap(), problem);
    std::fs::write(&misnamed, "nonsense").unwrap();
    let error = Problem::read(&misnamed).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "misnamed.json: the problem is not valid `remat.problem` JSON: line 1, column 2: expected ident"
        ),
        "{error}"
    );
    let error = Problem::read(folder.join("absent.txt")).unwrap_err().to_string();
    assert!(error.contains("absent.txt: "), "{error}");
}

#[test]
fn the_examples_of_the_documentation_are_read_and_true() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let Ok(text) = std::fs::read_to_string(page) else {
        eprintln!("skipped: the documentation is not beside the crate");
        return;
    };
    let blocks = |kind: &str| -> Vec<String> {
        let begin = format!("```{kind}\n");
        text.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_string).collect()
    };
    let (json, text) = (blocks("json"), blocks("text"));
    assert_eq!((json.len(), text.len()), (4, 2), "a problem and a plan of both versions, and in text");
    for example in json.chunks(2).chain(text.chunks(2)) {
        let [problem, plan] = example else { panic!("pairs of a problem and a plan") };
        let problem = Problem::parse(problem).unwrap();
        let plan = Plan::parse(plan, &problem).unwrap();
        assert_eq!(check(&problem, &plan), []);
        assert_eq!(Problem::parse(&problem.to_text()).unwrap(), problem);
    }
}

#[test]
fn the_first_mistake_in_a_built_problem_names_its_line() {
    let mut step = Problem::builder("wrong");
    let x = step.input("x", Bytes(8));
    let line = line!() + 1;
    let a = step.forward("f", 1.0).reads([x, x]).makes("a", Bytes(8));
    step.forward("g", f64::NAN).reads([a]).makes("b", Bytes(8));
    let error = step.clone().build().unwrap_err();
    assert_eq!(error.place.map(|place| place.line()), Some(line));
    assert!(error.to_string().ends_with(": node 0 (f): input 0 is listed twice"), "{error}");
    assert!(error.to_string().starts_with(&format!("{}:{line}: ", file!())), "{error}");
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
        expect!["the problem is not valid `remat.problem` JSON: line 4, column 10: expected `,` or `]`"],
    );
    check_bad(
        "\"bytes\": 64",
        "\"bytes\": -64",
        expect![
            "the problem is not valid `remat.problem` JSON: line 2, column 67: invalid value: integer `-64`, expected u64"
        ],
    );
    check_bad(
        "\"cost\": 1.5",
        "\"cost\": 1e999",
        expect!["the problem is not valid `remat.problem` JSON: line 5, column 62: number out of range"],
    );
    check_bad(
        "\"cost\": 1.5",
        "\"cost\": NaN",
        expect!["the problem is not valid `remat.problem` JSON: line 5, column 58: expected value"],
    );
    check_bad(
        "\"phase\": \"forward\"",
        "\"phase\": \"fw\"",
        expect![
            "the problem is not valid `remat.problem` JSON: line 5, column 42: unknown variant `fw`, expected one of `forward`, `backward`, `optimizer`"
        ],
    );
    check_bad(
        "\"op\": \"f\", ",
        "",
        expect!["the problem is not valid `remat.problem` JSON: line 5, column 122: missing field `op`"],
    );
    check_bad(
        "remat.problem/1",
        "remat.problem/3",
        expect![[
            r#"the problem's `schema` is "remat.problem/3", not "remat.problem/1" or "remat.problem/2""#
        ]],
    );
    check_bad(
        "\"schema\": \"remat.problem/1\",",
        "",
        expect![[r#"the problem's `schema` is missing, not "remat.problem/1" or "remat.problem/2""#]],
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
    expect!["step 1 names value 4, but the problem has only 4 values"]
        .assert_eq(&refused("[\"free\",0]", "[\"free\",4]"));
    expect!["the plan is not valid `remat.plan` JSON: line 1, column 182: unknown step `release`, expected `compute`, `free`, `out`, `in` or `discard`"].assert_eq(&refused("[\"free\",0]", "[\"release\",0]"));
    expect![[r#"the plan is not valid `remat.plan` JSON: line 1, column 179: invalid length 1, expected a step such as ["compute", 0]"#]].assert_eq(&refused("[\"free\",0]", "[\"free\"]"));
    expect![[r#"the plan's `schema` is "remat.plan/9", not "remat.plan/1" or "remat.plan/2""#]]
        .assert_eq(&refused("remat.plan/1", "remat.plan/9"));
    expect!["the plan is not valid `remat.plan` JSON: line 1, column 231: EOF while parsing a list"]
        .assert_eq(&refused("]]}", "]"));
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
                other => panic!("{other:?} in a plan without stores"),
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
