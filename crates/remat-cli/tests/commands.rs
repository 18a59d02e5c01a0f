//! Every command on its good path: exit code, text and JSON.

mod common;

use common::{Folder, PROBLEM, QUICK, SMALL};

#[test]
fn models_lists_every_model_and_the_meaning_of_its_options() {
    let folder = Folder::new();
    folder.run("models", &[]).exits(0).prints(&["mlp", "resnet50", "25,557,032", "--batch"]);
    folder.run("models mlp", &[]).exits(0).prints(&["--width", "units of a hidden layer"]);
    let json = folder.run("models --json", &[]).exits(0).json("remat.models/1");
    let models = json["models"].as_array().unwrap();
    let resnet = models.iter().find(|model| model["name"] == "resnet50").unwrap();
    assert_eq!(resnet["n_parameters"], 25_557_032);
}

#[test]
fn profile_says_where_time_and_memory_go() {
    let folder = Folder::new();
    let text = folder.run("profile mlp --top 3 --threads 1", SMALL).exits(0);
    text.prints(&[
        "peak without recomputation",
        "floor of every plan",
        "activation",
        "forward",
        "slowest nodes",
        "linear",
    ]);
    let json =
        folder.run("profile mlp --json --cost analytic --top 3", SMALL).exits(0).json("remat.profile/2");
    assert_eq!(json["slowest"].as_array().unwrap().len(), 3);
    assert_eq!(json["cost"], "analytic");
    let by_kind = json["peak"]["by_kind_bytes"].as_object().unwrap();
    let sum: u64 = by_kind.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(json["peak"]["total_bytes"], sum);
    assert!(sum <= json["keep_all_peak_bytes"].as_u64().unwrap());
    assert!(json["floor_bytes"].as_u64().unwrap() <= sum);
}

#[test]
fn profile_is_held_against_real_steps() {
    let folder = Folder::new();
    let check = |cost: &str| {
        let arguments = format!("profile mlp --json --check 2 --threads 1 --cost {cost}");
        let json = folder.run(&arguments, SMALL).exits(0).json("remat.profile/2");
        let check = json["check"].clone();
        assert_eq!(check["step"]["n_runs"], 2);
        let seconds = |value: &serde_json::Value| value.as_f64().unwrap();
        let sum_of_ops: f64 =
            check["ops"].as_array().unwrap().iter().map(|op| seconds(&op["predicted"])).sum();
        assert!((sum_of_ops / seconds(&check["predicted"]) - 1.0).abs() < 1e-9, "{check}");
        // Nodes are timed inside the steps that they are compared with.
        assert!(seconds(&check["nodes"]) <= seconds(&check["step"]["median"]), "{check}");
        check["predicted_from_kept_speeds"].is_number()
    };
    assert!(check("analytic"), "speeds were measured between the steps");
    assert!(!check("measured"), "a measured profile stays as it is");
    folder.run("profile mlp --check 1 --threads 1 --cost analytic", SMALL).exits(0).prints(&[
        "sum of its nodes",
        "predicted, speeds of now",
        "predicted, speeds kept",
    ]);
}

#[test]
fn plan_writes_a_plan_that_check_accepts_and_its_first_line_answers() {
    let folder = Folder::new();
    let ran = folder.run("plan mlp --budget 70% --out plan.json --problem-out problem.json", QUICK).exits(0);
    let line = ran.first_line();
    assert!(
        line.starts_with("fits: peak ") && line.contains("the floor is ") && line.contains("set by "),
        "{line}"
    );
    assert_eq!(folder.names(), ["plan.json", "problem.json"]);
    folder.run("check problem.json plan.json", &[]).exits(0).prints(&["valid", "mlp"]);
    let json = folder.run("check problem.json plan.json --json", &[]).exits(0).json("remat.check/1");
    assert_eq!(json["valid"], true);
    // The plan's own problem file gives the same plan again, now from --problem.
    let again = folder.run("plan --problem problem.json --budget 70%", &[]).exits(0);
    assert!(again.first_line().starts_with("fits: "), "{again:?}");
}

#[test]
fn the_json_of_plan_is_itself_a_plan() {
    let folder = Folder::new();
    folder.write("problem.json", PROBLEM);
    let ran = folder.run("plan --json --problem problem.json --budget 100% --planner save-all", &[]).exits(0);
    let json = ran.json("remat.plan/1");
    assert_eq!((json["fits"].as_bool(), json["floor_bytes"].as_u64()), (Some(true), Some(1132)));
    assert_eq!((json["peak_bytes"].as_u64(), json["keep_all_peak_bytes"].as_u64()), (Some(1132), Some(1132)));
    folder.write("plan.json", &ran.stdout);
    folder.run("check problem.json plan.json", &[]).exits(0);
    folder.run("check problem.json plan.json --budget 1000B", &[]).exits(1).prints(&[
        "not valid",
        "nc",
        "over the budget",
    ]);
}

#[test]
fn a_budget_below_the_floor_is_refused_with_the_floor_and_its_op() {
    let folder = Folder::new();
    let ran = folder.run("plan mlp --budget 1KiB --out plan.json", QUICK).exits(1);
    let line = ran.first_line();
    assert!(line.starts_with("does not fit: budget 1.00 KiB is below the floor of "), "{line}");
    assert!(line.contains("set by layers."), "{line}");
    let plan: serde_json::Value = serde_json::from_str(&folder.read("plan.json")).unwrap();
    assert_eq!(
        (plan["status"].as_str(), plan["steps"].as_array().map(Vec::len)),
        (Some("infeasible"), Some(0))
    );

    folder.write("problem.json", PROBLEM);
    let ran = folder.run("plan --problem problem.json --budget 1131B --out three.json", &[]).exits(1);
    assert!(ran.first_line().contains("below the floor of 1.11 KiB, set by nc"), "{ran:?}");
    folder.run("check problem.json three.json", &[]).exits(1).prints(&["infeasible"]);
    for command in ["train", "compare", "explain"] {
        let ran = folder.run(&format!("{command} mlp --budget 1KiB"), QUICK).exits(1);
        assert!(ran.first_line().contains("is below the floor of "), "{ran:?}");
        let json = folder.run(&format!("{command} mlp --budget 1KiB --json"), QUICK).exits(1);
        let json = json.json(&format!("remat.{command}/1"));
        assert_eq!(json["fits"], false, "{json}");
        assert!(json["floor_bytes"].as_u64().unwrap() > 1024 && json["floor_node"].is_string(), "{json}");
    }
}

#[test]
fn explain_names_the_peak_the_price_and_other_budgets() {
    let folder = Folder::new();
    let words =
        &["fits: peak", "the peak is at step", "recomputed nodes", "what other budgets buy", "this budget"];
    folder.run("explain mlp --budget 70%", QUICK).exits(0).prints(words);
    let json = folder.run("explain mlp --budget 70% --json", QUICK).exits(0).json("remat.explain/1");
    let budgets = json["budgets"].as_array().unwrap();
    assert!(budgets.len() >= 3 && budgets.last().unwrap()["overhead_percent"] == 0.0, "{json}");
    assert!(!json["explanation"]["recomputed"].as_array().unwrap().is_empty());

    folder.write("problem.json", PROBLEM);
    folder.run("plan --problem problem.json --budget 100% --out plan.json", &[]).exits(0);
    folder
        .run("explain --problem problem.json --plan plan.json", &[])
        .exits(0)
        .prints(&["nothing is recomputed"]);
    folder.run("explain --problem problem.json --plan plan.json --budget 1100B", &[]).exits(1);
}

#[test]
fn train_prints_a_line_per_step_and_the_same_losses_under_a_budget() {
    let folder = Folder::new();
    let ran = folder.run("train mlp --steps 3 --lr 0.01", QUICK).exits(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("step ")).count(), 3, "{ran:?}");
    assert!(ran.stderr.is_empty(), "{ran:?}");
    let losses = |words: &str| {
        let json = folder.run(words, QUICK).exits(0).json("remat.train/1");
        let steps = json["steps"].as_array().unwrap().clone();
        assert_eq!(json["predicted_peak_bytes"], json["measured_peak_bytes"]);
        assert!(json["budget_bytes"].is_null() || json["n_recomputes"].as_u64() > Some(0), "{json}");
        steps.iter().map(|step| step["loss"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let kept = losses("train mlp --json --steps 3 --lr 0.01 --optimizer adamw --threads 2");
    let budgeted = losses("train mlp --json --steps 3 --lr 0.01 --optimizer adamw --threads 1 --budget 70%");
    assert_eq!(kept.len(), 3);
    assert_eq!(kept, budgeted);
    assert_ne!(kept, losses("train mlp --json --steps 3 --lr 0.01 --optimizer adamw --seed 7"));
}

#[test]
fn training_goes_on_from_saved_weights() {
    let folder = Folder::new();
    let first_loss = |words: &str| {
        let json = folder.run(words, QUICK).exits(0).json("remat.train/1");
        json["steps"][0]["loss"].as_f64().unwrap()
    };
    // Two steps without learning save what a third run then begins with; seed 3 alone would begin elsewhere.
    let loss = first_loss("train mlp --json --steps 1 --lr 0 --optimizer sgd --save weights.safetensors");
    assert_eq!(folder.names(), ["weights.safetensors"]);
    assert_eq!(loss, first_loss("train mlp --json --steps 1 --weights weights.safetensors --budget 70%"));
    let other_seed = first_loss("train mlp --json --steps 1 --seed 3");
    let other_weights = first_loss("train mlp --json --steps 1 --seed 3 --weights weights.safetensors");
    assert_ne!(other_seed, other_weights);
}

#[test]
fn compare_finds_equal_bits_within_the_budget() {
    let folder = Folder::new();
    let words = &[
        "fits: mlp runs within",
        "keep all",
        "bits equal: yes",
        "predicted peak",
        "overhead",
        "peak of the process",
    ];
    folder.run("compare mlp --budget 70% --steps 2", QUICK).exits(0).prints(words);
    for planner in ["mu-two", "sqrt", "per-block", "save-all"] {
        let budget = if planner == "save-all" { "100%" } else { "80%" };
        let ran =
            folder.run(&format!("compare mlp --json --steps 2 --planner {planner} --budget {budget}"), QUICK);
        // A weak planner may not reach the budget; what it runs must be equal.
        let json = ran.json("remat.compare/1");
        assert_eq!(ran.code == 0, json["fits"] == true, "{json}");
        let Some(result) = json["result"].as_object() else { continue };
        assert_eq!((&result["bits_equal"], &result["within_budget"]), (&true.into(), &true.into()), "{json}");
        assert_eq!(result["budgeted"]["predicted_peak_bytes"], result["budgeted"]["measured_peak_bytes"]);
        assert_eq!(result["keep_all"]["losses"], result["budgeted"]["losses"]);
    }
}

#[test]
fn graph_prints_the_step_before_and_after_planning() {
    let folder = Folder::new();
    let before = folder.run("graph mlp", QUICK).exits(0);
    assert!(
        before.stdout.starts_with("graph \"mlp(batch=512,") && !before.stdout.contains("\nfree "),
        "{before:?}"
    );
    folder.run("graph mlp --budget 70%", QUICK).exits(0).prints(&["\nfree %", " of n"]);
    folder.run("graph mlp --format dot", QUICK).exits(0).prints(&["digraph"]);
    folder.run("graph mlp --format dot --budget 70%", QUICK).exits(0).prints(&["digraph", "recomputes"]);
    let json = folder.run("graph mlp --json", QUICK).exits(0).json("remat.graph/1");
    assert_eq!(json["graph"].as_str().unwrap(), before.stdout);
    folder.run("graph mlp --budget 1KiB", QUICK).exits(1);
}

#[test]
fn doctor_and_completions() {
    let folder = Folder::new();
    folder.run("doctor --threads 1", &[]).exits(0).prints(&["GFLOP/s", "GB/s", "memory"]);
    let json = folder.run("doctor --json", &[]).exits(0).json("remat.doctor/1");
    assert!(json["machine"]["flops"].as_f64() > Some(0.0), "{json}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        folder.run(&format!("completions {shell}"), &[]).exits(0).prints(&["remat", "compare"]);
    }
    folder.run("completions bash --json", &[]).exits(0).json("remat.completions/1");
}

#[test]
fn limits_of_planning_are_read() {
    let folder = Folder::new();
    folder.write("problem.json", PROBLEM);
    let words = "plan --problem problem.json --budget 100% --time-limit 1.5s --effort 0.5 --seed 3";
    folder.run(words, &[]).exits(0);
}

/// Nothing of step size lives outside the arena.
#[test]
#[cfg(target_os = "linux")]
fn the_process_is_hardly_larger_than_its_arena() {
    const SLACK: u64 = 64 << 20;
    let folder = Folder::new();
    let model = ["--batch", "8", "--image", "160", "--effort", "0.001"];
    for budget in ["100%", "85%"] {
        let words = format!("train resnet18 --steps 2 --json --budget {budget}");
        let json = folder.run(&words, &model).exits(0).json("remat.train/1");
        let number = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {json}"));
        let binary = std::fs::metadata(env!("CARGO_BIN_EXE_remat")).expect("the binary is there").len();
        let (resident, arena) = (number("peak_resident_bytes"), number("predicted_peak_bytes"));
        assert!(arena > 128 << 20, "too small to show anything: {arena}");
        assert!(resident <= arena + binary + SLACK, "{resident} bytes resident for an arena of {arena}");
    }
}

#[test]
fn a_sweep_goes_on_where_it_stopped_and_orders_its_cases() {
    let folder = Folder::new();
    let sweep = |batches: &str| {
        let words =
            "sweep mlp --budget 90% --planner mu-two --rounds 1 --steps 1 --warm-up 0 --resume --out s";
        folder.run(words, &["--batch", batches]).exits(0);
        let table: serde_json::Value = serde_json::from_str(&folder.read("s/sweep.json")).unwrap();
        table["rows"].as_array().unwrap().clone()
    };
    let first = sweep("8");
    let both = sweep("4,8");
    let cases: Vec<&str> = both.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["batch 4", "batch 4", "batch 8", "batch 8"]);
    // What was measured before is taken over, times included.
    assert_eq!(first, both[2..]);
    let ran = folder.run("sweep mlp --budget 90% --batch 4 --out s", &[]);
    ran.complains(&["sweep.json exists", "--resume"]);
}
