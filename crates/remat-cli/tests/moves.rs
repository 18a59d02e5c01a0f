//! What commands say about moved values: what is moved, what of the copying is hidden, and what a faster store would save.

mod common;

use common::Folder;
use serde_json::Value;

/// An `mlp` whose activations are most of its memory, within a budget that only moving them meets without recomputing.
const MOVING: &str =
    "mlp --batch 512 --features 16 --width 32 --layers 8 --threads 1 --planner swap --store host";
const BUDGET: &str = "--budget 70%";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// The facts about copies that every command gives in the same form.
fn check_moves(moves: &Value) {
    assert!((0.0..=100.0).contains(&number(&moves["hidden_percent"])), "{moves}");
    assert!(number(&moves["waiting"]) <= number(&moves["copying"]), "{moves}");
    let ways: Vec<&str> =
        moves["links"].as_array().expect("links").iter().filter_map(|link| link["way"].as_str()).collect();
    assert_eq!(ways, ["out", "in"], "{moves}");
    assert!(!moves["values"].as_array().expect("values").is_empty());
}

#[test]
fn a_plan_says_what_is_moved_and_what_a_faster_store_would_save() {
    let folder = Folder::new();
    let words = format!("plan {MOVING} {BUDGET} --out results");
    folder.run(&words, &[]).exits(0).prints(&[
        "moved",
        "out to host",
        "hidden behind nodes",
        "a faster store",
    ]);
    let json: Value = serde_json::from_str(&folder.read("results/plan.json")).expect("JSON");
    assert_eq!(json["schema"], "remat.plan/2");
    check_moves(&json["moves"]);
    let saved: Vec<f64> =
        json["moves"]["faster"].as_array().expect("a list").iter().map(|row| number(&row["saves"])).collect();
    assert!(saved.len() == 2 && saved[0] <= saved[1] && saved[0] >= 0.0, "{saved:?}");

    assert!(folder.read("results/ac_decisions.csv").contains(",MOVED,"));
    let trace = folder.read("results/trace_planned.json");
    for track in ["to host", "from host", "waits for copies"] {
        assert!(trace.contains(&format!("{{\"name\":\"{track}\"}}")), "{track}");
    }
    let timelines: Value = serde_json::from_str(&folder.read("results/timeline.json")).expect("JSON");
    let [before, after] = [0, 1].map(|program| timelines["programs"][program]["copies"].as_array());
    assert!(before.is_none() && after.is_some_and(|copies| copies.len() >= 2));
    // The step lasts as long as the plan says: runs, and waits between them.
    let program = &timelines["programs"][1];
    let sum = |list: &Value| -> f64 {
        list.as_array().into_iter().flatten().map(|row| number(&row["seconds"])).sum()
    };
    let (lasts, cost) = (sum(&program["runs"]) + sum(&program["waits"]), number(&json["cost"]));
    assert!((lasts - cost).abs() < 1e-6 * cost, "{lasts} {cost}");

    let unused = MOVING.replace("swap", "save-all");
    folder
        .run(&format!("plan {unused} --budget 100%"), &[])
        .exits(0)
        .prints(&["does not use stores", "swap"]);
}

#[test]
fn explain_says_what_the_store_is_worth() {
    let folder = Folder::new();
    let text = folder.run(&format!("explain {MOVING} {BUDGET}"), &[]).exits(0);
    text.prints(&[
        "moved to and from stores",
        "away from step",
        "what the stores are worth",
        "100 % more GB/s",
    ]);
    let json = folder.run(&format!("explain {MOVING} {BUDGET} --json"), &[]).exits(0).json("remat.explain/1");
    check_moves(&json["explanation"]["moves"]);
    assert!(json["explanation"]["is_copy_at_peak"].is_boolean());
    let prices = &json["store_prices"];
    // `swap` recomputes nothing, so without a store it has no plan.
    assert!(prices["without_costs"].is_null() && prices["without_refused"].is_string(), "{prices}");
    for row in prices["faster"].as_array().expect("rows") {
        assert!(number(&row["saves"]) >= number(&row["same_plan_saves"]), "{row}");
    }
    let plain = "explain mlp --batch 512 --width 32 --layers 4 --threads 1 --budget 95% --effort 0.01 --json";
    let json = folder.run(plain, &[]).exits(0).json("remat.explain/1");
    assert!(json["store_prices"].is_null() && json["explanation"]["moves"].is_null());
}

#[test]
fn a_frontier_has_a_curve_with_and_one_without_the_store() {
    let folder = Folder::new();
    let words = format!("frontier {MOVING} --points 4 --csv curve.csv --plot curve.png --json");
    let json = folder.run(&words, &[]).exits(0).json("remat.frontier/1");
    let without = &json["without_stores"];
    assert!(number(&json["floor_bytes"]) < number(&without["floor_bytes"]), "state can leave: {json}");
    let cheapest = |curve: &Value| {
        let rows = curve["points"].as_array().expect("points");
        rows.iter().filter(|row| !row["cost"].is_null()).count()
    };
    assert!(cheapest(&json) > cheapest(without), "more budgets have a plan: {json}");
    let table = folder.read("curve.csv");
    assert!(table.starts_with("stores,budget_bytes"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("true,")).count(), 4);
    assert_eq!(table.lines().filter(|line| line.starts_with("false,")).count(), 4);
    assert!(folder.path("curve.png").is_file());
    let text = folder.run(&format!("frontier {MOVING} --points 3"), &[]).exits(0);
    text.prints(&["moved out", "waits", "the same without stores"]);
}

#[test]
fn a_profile_has_the_times_of_copies_only_with_a_store() {
    let folder = Folder::new();
    let model = "profile mlp --batch 64 --width 32 --layers 4 --threads 1 --cost analytic";
    folder.run(&format!("{model} --store host --out with"), &[]).exits(0).prints(&["idle for longer"]);
    folder.run(&format!("{model} --out without"), &[]).exits(0);
    let head = |path: &str| folder.read(path).lines().next().unwrap_or_default().to_owned();
    let (activations, nodes) = ("profiler_stats_activation_stats.csv", "profiler_stats_node_stats.csv");
    assert!(head(&format!("with/{activations}")).ends_with("recompute_ratio,swap_out_s,swap_in_s"));
    assert!(head(&format!("with/{nodes}")).ends_with("device,to_offload,to_prefetch"));
    assert!(head(&format!("without/{activations}")).ends_with("recompute_ratio"));
    assert!(head(&format!("without/{nodes}")).ends_with("device"));
    // Every activation leaves once and returns once.
    let n_rows = folder.read(&format!("with/{activations}")).lines().count() - 1;
    let rows = folder.read(&format!("with/{nodes}"));
    for column in [1, 2] {
        let names =
            rows.lines().skip(1).filter_map(|line| line.rsplit(',').nth(column - 1)).map(str::to_owned);
        let n_names: usize =
            names.map(|names| names.split(';').filter(|name| !name.is_empty()).count()).sum();
        assert_eq!(n_names, n_rows);
    }
}

#[test]
fn measured_copies_are_beside_the_planned_ones() {
    let folder = Folder::new();
    let json = folder
        .run(&format!("compare {MOVING} {BUDGET} --steps 2 --json"), &[])
        .exits(0)
        .json("remat.compare/1");
    let moved = &json["result"]["moved"];
    check_moves(&moved["planned"]);
    let copies = moved["copies"].as_array().expect("copies");
    assert_eq!(copies.len() as f64, number(&moved["out"]["n_copies"]) + number(&moved["in"]["n_copies"]));
    for copy in copies {
        for times in [&copy["planned"], &copy["measured"]] {
            assert!(number(&times[0]) <= number(&times[1]), "{copy}");
        }
    }
    assert!((0.0..=100.0).contains(&number(&moved["hidden_percent"])));
    let text = folder.run(&format!("compare {MOVING} {BUDGET} --steps 2"), &[]).exits(0);
    text.prints(&["moved: ", "hidden (planned", "a faster store"]);
}

#[test]
fn sweeps_and_the_largest_batch_tell_what_is_moved() {
    let folder = Folder::new();
    let words = format!("sweep {MOVING} {BUDGET} --rounds 1 --steps 1 --out sweep");
    folder.run(&words, &[]).exits(0).prints(&["moved in a step", "% hidden"]);
    let rows: Value = serde_json::from_str(&folder.read("sweep/sweep.json")).expect("JSON");
    let row = &rows["rows"][1];
    assert!(number(&row["copied"]["out_bytes"]) > 0.0 && number(&row["n_moved"]) > 0.0, "{row}");
    assert_eq!((number(&row["n_recomputed"]), number(&row["recomputation_seconds"])), (0.0, 0.0), "{row}");
    let summary = folder.read("sweep/mlp_activation_checkpointing_summary.csv");
    assert!(summary.lines().next().is_some_and(|head| head.contains("moved_activations_percent")));
    // Another store is another experiment.
    let resumed = words.replace("--store host", "") + " --resume";
    folder.run(&resumed, &[]).complains(&["other settings", "stores"]);

    let words = MOVING.replace("--batch 512", "");
    let json = folder
        .run(&format!("max-batch {words} --budget 1MiB --effort 0.01 --json"), &[])
        .exits(0)
        .json("remat.max_batch/1");
    assert!(number(&json["batch"]) > number(&json["keep_all_batch"]), "{json}");
    check_moves(&json["moves"]);
    assert_eq!(json["predicted_peak_bytes"], json["measured_peak_bytes"]);
}
