//! The frontier, prices and proofs, as the command line shows them.

mod common;

use common::{Folder, PROBLEM, QUICK};

/// x -> a -> b -> c -> d, where d reads a and c: within 105 bytes a is made again, and no plan needs less than 100.
const BYPASS: &str = r#"{"schema": "remat.problem/1", "name": "bypass", "cost_unit": "s", "fixed_bytes": 0,
  "values": [{"name": "x", "bytes": 10}, {"name": "a", "bytes": 40}, {"name": "b", "bytes": 30},
             {"name": "c", "bytes": 50}, {"name": "d", "bytes": 1}],
  "inputs": [0],
  "nodes": [
    {"name": "na", "op": "f", "phase": "forward", "cost": 2.0, "workspace_bytes": 0, "inputs": [0], "outputs": [1],
     "recompute": true},
    {"name": "nb", "op": "f", "phase": "forward", "cost": 3.0, "workspace_bytes": 0, "inputs": [1], "outputs": [2],
     "recompute": true},
    {"name": "nc", "op": "f", "phase": "forward", "cost": 5.0, "workspace_bytes": 0, "inputs": [2], "outputs": [3],
     "recompute": true},
    {"name": "nd", "op": "f", "phase": "backward", "cost": 7.0, "workspace_bytes": 0, "inputs": [1, 3],
     "outputs": [4], "recompute": true}],
  "outputs": [4]}"#;

#[test]
fn frontier_shows_the_whole_curve_in_every_form() {
    let folder = Folder::new();
    folder.write("p.json", BYPASS);
    let files = "--csv curve.csv --plot curve.svg --out plans";
    let ran = folder.run(&format!("frontier --problem p.json --points 5 {files}"), &[]).exits(0);
    let ran = ran.prints(&["what memory costs for bypass", "floor of every plan", "impossible", "optimal"]);
    assert!(ran.stdout.contains("no plan at "), "{ran:?}");
    assert_eq!(folder.names(), ["curve.csv", "curve.svg", "p.json", "plans"]);
    assert!(folder.read("curve.svg").contains("lower bound"));
    let csv = folder.read("curve.csv");
    assert_eq!(csv.lines().count(), 6);
    assert!(
        csv.starts_with("stores,budget_bytes,status,peak_bytes,") && csv.contains("\nfalse,91,infeasible,"),
        "{csv}"
    );
    assert!(csv.contains("\nfalse,120,optimal,120,,17.0,0.0,17.0,0.0,0,0,0.0,,false\n"), "{csv}");

    let json = folder.run("frontier --problem p.json --points 5 --json", &[]).exits(0);
    let json = json.json("remat.frontier/1");
    let points = json["points"].as_array().unwrap();
    assert_eq!((points.len(), &json["keep_all_peak_bytes"]), (5, &120.into()));
    let costs: Vec<f64> = points.iter().filter_map(|point| point["cost"].as_f64()).collect();
    assert_eq!((costs.first(), costs.last()), (Some(&19.0), Some(&17.0)));
    assert!(costs.windows(2).all(|pair| pair[1] <= pair[0]), "{json}");
    assert_eq!((&points[0]["is_proof"], &points[0]["cost"]), (&true.into(), &serde_json::Value::Null));

    // Every plan of the folder is a plan for its budget.
    let names: Vec<String> = std::fs::read_dir(folder.path("plans"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), costs.len());
    for name in names {
        folder.run(&format!("check p.json plans/{name}"), &[]).exits(0);
    }
}

#[test]
fn frontier_of_a_model_has_addresses_and_a_picture() {
    let folder = Folder::new();
    let ran = folder.run("frontier mlp --points 3 --planner mu-two --plot curve.png", QUICK).exits(0);
    ran.prints(&["with addresses", "+0.0 %", "mu-two"]);
    assert_eq!(std::fs::read(folder.path("curve.png")).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
}

#[test]
fn frontier_refuses_what_it_cannot_do_before_the_work() {
    let folder = Folder::new();
    folder.write("p.json", PROBLEM);
    let command = "frontier --problem p.json";
    folder.run(&format!("{command} --points 1"), &[]).complains(&["--points", "from 2 to"]);
    folder.run(&format!("{command} --plot curve.pdf"), &[]).complains(&["curve.pdf", ".svg or .png"]);
    folder.run(&format!("{command} --csv none/curve.csv"), &[]).complains(&["writing", "none/curve.csv"]);
    folder.run(&format!("{command} --out p.json"), &[]).complains(&["p.json"]);
    folder.run("frontier", &[]).complains(&["MODEL", "--problem"]);
    assert_eq!(folder.names(), ["p.json"]);
}

#[test]
fn a_proof_that_no_plan_exists_is_printed() {
    let folder = Folder::new();
    folder.write("p.json", BYPASS);
    let ran = folder.run("plan --problem p.json --budget 95B", &[]).exits(1);
    ran.prints(&["too small for every plan", "no plan exists: "]);
    let json = folder.run("plan --problem p.json --budget 95B --json", &[]).exits(1).json("remat.plan/1");
    assert_eq!(json["is_proof"], true, "{json}");
    folder.run("explain --problem p.json --budget 95B", &[]).exits(1).prints(&["no plan exists: "]);
    let ran = folder.run("plan --problem p.json --budget 80B", &[]).exits(1);
    ran.prints(&["is below the floor of 91 B", "no plan exists: node 3 (nd) alone needs 91 B"]);
    // A planner that gave up proves nothing.
    let words = "plan --problem p.json --budget 105B --planner save-all";
    let json = folder.run(&format!("{words} --json"), &[]).exits(1).json("remat.plan/1");
    assert_eq!(json["is_proof"], false, "{json}");
    folder.run(words, &[]).exits(1).prints(&["another may"]);
}

#[test]
fn explain_prices_memory_and_says_why_a_node_runs_again() {
    let folder = Folder::new();
    folder.write("p.json", BYPASS);
    let ran = folder.run("explain --problem p.json --budget 105B", &[]).exits(0);
    let ran = ran.prints(&[
        "na, 1 extra",
        "kept, step 3 (nc, 90 B) would be 25 B over the budget",
        "the price of memory here, by planning again with `best`",
        "1.00 MiB less",
        "1.00 MiB more",
        "saved per MiB",
    ]);
    assert!(ran.stdout.contains("saves 2.00 s"), "{ran:?}");
    let json = folder.run("explain --problem p.json --budget 105B --json", &[]).exits(0);
    let json = json.json("remat.explain/1");
    assert_eq!(json["prices"]["more_saves"], 2.0, "{json}");
    assert_eq!(json["explanation"]["recomputed"][0]["reason"]["excess_if_kept_bytes"], 25, "{json}");
}

#[test]
fn the_planner_of_a_plan_file_plans_the_other_budgets() {
    let folder = Folder::new();
    folder.write("p.json", BYPASS);
    folder.run("plan --problem p.json --budget 105B --planner mu-two --out plan.json", &[]).exits(0);
    let ran = folder.run("explain --problem p.json --plan plan.json", &[]).exits(0);
    ran.prints(&["what other budgets buy, at a glance, by `mu-two`"]);
    folder.write("plan.json", &folder.read("plan.json").replace("\"mu-two\"", "\"elsewhere\""));
    let ran = folder.run("explain --problem p.json --plan plan.json", &[]).exits(0);
    ran.prints(&["what other budgets buy, at a glance, by `best`"]);
}
