//! `--store`: what is planned with stores is run with them, with the same bits, and what cannot be used is told about.

mod common;

use common::{Folder, QUICK};

/// A language model whose state is most of its memory.
const GPT: &str =
    "gpt --batch 1 --seq 32 --dim 128 --heads 4 --layers 3 --vocab 300 --threads 1 --planner swap";

#[test]
fn a_step_moves_to_a_directory_and_to_memory_with_equal_bits() {
    let folder = Folder::new();
    for store in ["host", "."] {
        let words = format!("compare {GPT} --budget 40% --steps 2 --store {store} --json");
        let json = folder.run(&words, &[]).exits(0).json("remat.compare/1");
        let result = &json["result"];
        assert_eq!(result["bits_equal"], true, "{store}: {json}");
        let side = &result["budgeted"];
        assert_eq!(side["predicted_peak_bytes"], side["measured_peak_bytes"], "{store}: {json}");
        assert!(folder.names().iter().all(|name| !name.contains("store")), "{:?}", folder.names());
    }
}

#[test]
fn a_sweep_runs_each_planner_without_the_store_and_with_it() {
    let folder = Folder::new();
    let gpt = GPT.trim_end_matches("--planner swap");
    let words = format!(
        "sweep {gpt} --planner best,swap,sqrt --budget 40% --store host --effort 0.001 --rounds 1 --steps 1 \
         --out sweep --json"
    );
    let json = folder.run(&words, &[]).exits(0).json("remat.sweep/1");
    let rows = json["rows"].as_array().expect("rows");
    let programs: Vec<&str> = rows.iter().filter_map(|row| row["program"].as_str()).collect();
    assert_eq!(programs, ["keep all", "best 40%", "best 40% + store", "swap 40% + store", "sqrt 40%"]);
    // The state alone is larger than the budget: nothing but a store helps.
    for row in &rows[1..] {
        let moves = row["program"].as_str().is_some_and(|name| name.ends_with("store"));
        assert_eq!(row["bits_equal"] == true, moves, "{row}");
        assert_eq!(row["note"].is_string(), !moves, "{row}");
    }
}

#[test]
fn a_plan_with_copies_is_a_document_of_the_second_version_that_check_reads() {
    let folder = Folder::new();
    let files = "--out plan.json --problem-out problem.json";
    let words = format!("plan {GPT} --budget 40% --store host {files} --json");
    let json = folder.run(&words, &[]).exits(0).json("remat.plan/2");
    assert!(json["stored"].as_array().is_some_and(|list| !list.is_empty()), "state rests in the store");
    folder.run("check problem.json plan.json", &[]).exits(0);
}

#[test]
fn a_run_is_saved_and_resumed_with_its_state_in_a_store() {
    let folder = Folder::new();
    let budget = "--budget 40% --store .";
    let run = |steps: u32, rest: &str| {
        let words = format!("train {GPT} --steps {steps} {rest} --json");
        folder.run(&words, &[]).exits(0).json("remat.train/1")
    };
    let whole = run(4, "");
    run(2, &format!("{budget} --checkpoint run --eval-every 1"));
    let resumed = run(4, &format!("{budget} --resume run --save weights.safetensors"));
    let loss = |json: &serde_json::Value| {
        json["steps"].as_array().expect("steps").last().expect("one")["loss"].clone()
    };
    assert_eq!(loss(&whole), loss(&resumed));
    assert!(whole["copied"].is_null(), "{whole}");
    assert!(resumed["copied"]["resting_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{resumed}");
    let again = run(1, &format!("{budget} --weights weights.safetensors"));
    assert_eq!(again["fits"], true);
}

#[test]
fn stores_are_measured_and_mistakes_are_told() {
    let folder = Folder::new();
    let ran = folder.run("doctor --threads 1 --store host --store .", &[]).exits(0);
    assert!(ran.stdout.contains("store host") && ran.stdout.contains("GB/s and"), "{ran:?}");
    let ran = folder.run(&format!("train {GPT} --budget 40% --store missing"), &[]).exits(2);
    assert!(ran.stderr.contains("missing") && ran.stderr.contains("directory"), "{ran:?}");
    folder.write("problem.json", common::PROBLEM);
    let ran = folder.run("plan --problem problem.json --budget 2kB --store host", &[]).exits(2);
    assert!(ran.stderr.contains("--store is an option of models"), "{ran:?}");
    let words = ["plan", "mlp", "--budget", "90%", "--store", "host"];
    folder.run("", &[&words[..], QUICK].concat()).exits(0);
}
