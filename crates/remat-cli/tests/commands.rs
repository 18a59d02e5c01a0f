//! Every command on its good path: exit code, text and JSON.

mod common;

use common::{Folder, PROBLEM, QUICK, Ran, SMALL};

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
        "predicted, from speeds measured now",
        "predicted, from kept speeds",
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
fn problems_and_plans_are_written_and_read_as_text() {
    let folder = Folder::new();
    folder.run("plan mlp --budget 80% --out plan.txt --problem-out problem.txt", QUICK).exits(0);
    assert_eq!(folder.names(), ["plan.txt", "problem.txt"]);
    assert!(folder.read("plan.txt").starts_with("remat.plan/1\nproblem mlp"), "{}", folder.read("plan.txt"));
    folder.run("check problem.txt plan.txt", &[]).exits(0).prints(&["valid"]);
    let printed = folder.run("graph --problem problem.txt", &[]).exits(0);
    assert_eq!(printed.stdout, folder.read("problem.txt"));
    folder.run("graph mlp --problem", QUICK).exits(0).prints(&["remat.problem/1", "value %0 "]);
    // The same problem as JSON gives the same plan, byte for byte.
    folder
        .run("plan --problem problem.txt --budget 80% --out a.json --problem-out problem.json", &[])
        .exits(0);
    folder.run("plan --problem problem.json --budget 80% --out b.json", &[]).exits(0);
    assert_eq!(folder.read("a.json"), folder.read("b.json"));
    folder.write("bad.txt", &folder.read("problem.txt").replacen("inputs", "input", 1));
    folder
        .run("plan --problem bad.txt --budget 80%", &[])
        .complains(&["bad.txt", "line ", "`input`", "inputs"]);
    folder.run("graph mlp --problem problem.txt", &[]).complains(&["not both"]);
}

/// A problem with a store and a plan that uses it, from a case of the planner's corpus.
#[test]
fn plans_with_copies_are_checked_and_explained() {
    let folder = Folder::new();
    let case = include_str!("../../remat-plan/tests/corpus/trace_copies.txt");
    let section = |name: &str| {
        let (_, rest) = case.split_once(&format!("--- {name}\n")).expect("the section");
        rest.split_once("--- ").expect("another section").0
    };
    folder.write("moved.txt", section("problem"));
    folder.write("plan.txt", section("plan"));
    let ran = folder.run("check moved.txt plan.txt", &[]).exits(0);
    assert!(ran.stdout.contains("4 copies move 144 B"), "{ran:?}");
    assert!(ran.stdout.contains("5.75 s are spent waiting"), "{ran:?}");
    let ran = folder.run("explain --problem moved.txt --plan plan.txt", &[]).exits(0);
    assert!(ran.stdout.contains("peak 146"), "{ran:?}");
    folder.write("early.txt", &section("plan").replace("in %2 0\n", ""));
    let ran = folder.run("check moved.txt early.txt", &[]).exits(1);
    assert!(ran.stdout.contains("needs value 2 (a), which is not live"), "{ran:?}");
    for planner in ["best", "swap", "mu-two"] {
        let plan = format!(
            "plan --problem moved.txt --budget 106B --planner {planner} --time-limit 1s --out {planner}.json"
        );
        folder.run(&plan, &[]).exits(0);
        folder.run(&format!("check moved.txt {planner}.json"), &[]).exits(0);
    }
}

#[test]
fn check_tells_a_proof_from_a_claim() {
    let folder = Folder::new();
    folder.write("problem.json", PROBLEM);
    folder.run("plan --problem problem.json --budget 100% --planner save-all --out plan.txt", &[]).exits(0);
    folder.run("check problem.json plan.txt", &[]).exits(0).prints(&["it is optimal: every node runs once"]);
    // One node runs twice: the file may call that optimal, but nothing shows it.
    folder.write(
        "claim.txt",
        "remat.plan/1\nproblem three\nplanner hand\nstatus optimal\nbudget_bytes 2000\npeak_bytes 1210\ncost 7\n\
         lower_bound 7\ncompute 0\ncompute 0\nfree %0\ncompute 1\ncompute 2\nfree %1\nfree %2\n",
    );
    folder
        .run("check problem.json claim.txt", &[])
        .exits(0)
        .prints(&["claims to be optimal, which is not proved here"]);
    let json = folder.run("check problem.json claim.txt --json", &[]).exits(0).json("remat.check/1");
    assert_eq!(
        (json["status"].as_str(), json["optimality_is_proved"].as_bool()),
        (Some("optimal"), Some(false))
    );
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
    assert!(json["instruction_set"].is_string(), "{json}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        folder.run(&format!("completions {shell}"), &[]).exits(0).prints(&["remat", "compare"]);
    }
    folder.run("completions bash --json", &[]).exits(0).json("remat.completions/1");
}

/// A wrong one is refused before anything runs. That the right ones change no bit is tested with the engine.
#[test]
fn the_instruction_set_is_one_that_exists() {
    let folder = Folder::new();
    let with = |isa: &str, words: &str| {
        let mut command = folder.command();
        Ran::of(command.env("REMAT_ISA", isa).args(words.split(' ')).output().expect("it runs"))
    };
    with("portable", "models").exits(0);
    for wrong in ["", "neon", "AVX2"] {
        with(wrong, "models").complains(&["REMAT_ISA", "none of portable, emulated512, avx2, avx512"]);
    }
    let refused = with("sse9", "models --json").exits(2);
    assert!(refused.stdout.contains("REMAT_ISA"), "{refused:?}");
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
        let words = "sweep mlp --budget 90% --planner mu-two --rounds 1 --steps 1 --warm-up 0 --resume --out s --width 16 --features 16";
        folder.run(words, &["--batch", batches]).exits(0);
        let table: serde_json::Value = serde_json::from_str(&folder.read("s/sweep.json")).unwrap();
        table["rows"].as_array().unwrap().clone()
    };
    let first = sweep("1024");
    let both = sweep("512,1024");
    let cases: Vec<&str> = both.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(
        cases,
        ["512", "512", "1024", "1024"].map(|batch| format!("batch {batch}, features 16, width 16"))
    );
    // What was measured before is taken over, times included.
    assert_eq!(first, both[2..]);
    let ran = folder.run("sweep mlp --budget 90% --batch 4 --out s", &[]);
    ran.complains(&["sweep.json exists", "--resume"]);
}

#[test]
fn a_sweep_whose_budgets_are_all_refused_answers_no() {
    let folder = Folder::new();
    let words = "sweep mlp --batch 64 --width 16 --rounds 1 --steps 1 --warm-up 0 --effort 0.001";
    folder.run(&format!("{words} --budget 10% --out d"), &[]).exits(1).prints(&["below the floor"]);
    // One that fits is an answer.
    folder.run(&format!("{words} --budget 10%,100% --out e"), &[]).exits(0);
}

#[test]
fn a_budget_with_room_to_spare_needs_no_more_than_keeping_everything() {
    let folder = Folder::new();
    for budget in ["100%", "150%", "8GiB"] {
        let words = format!("plan resnet18 --batch 4 --image 64 --budget {budget} --json --effort 0.01");
        let json = folder.run(&words, &[]).exits(0).json("remat.plan/1");
        let bytes = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {json}"));
        assert!(bytes("arena_bytes") <= bytes("keep_all_peak_bytes"), "{budget}");
        assert_eq!((&json["n_recomputes"], &json["planner"]), (&0.into(), &"best".into()));
    }
}

#[test]
fn advice_fits_what_sets_the_floor() {
    let folder = Folder::new();
    let refused = |words: &str| folder.run(words, &[]).exits(1).first_line().to_owned();
    // Parameters and optimizer alone are larger: no batch is small enough.
    let line = refused("plan resnet18 --batch 4 --budget 100MiB");
    assert!(
        line.contains("142.81 MiB") && line.contains("neither recomputation nor a smaller batch"),
        "{line}"
    );
    assert!(line.contains("optimizer with less state") && !line.contains("make the batch smaller"), "{line}");
    // Between that and the floor of this batch, a smaller one could fit.
    let line = refused("plan resnet18 --batch 4 --budget 150MiB");
    assert!(line.contains("make the batch smaller") && !line.contains("neither"), "{line}");
    // Activations are most of it.
    let line = refused("plan mlp --batch 4096 --width 16 --features 16 --budget 10%");
    assert!(line.contains("make the batch smaller") && !line.contains("neither"), "{line}");
}

#[test]
fn differences_within_the_spread_are_marked() {
    let folder = Folder::new();
    // Two steps time one, which says nothing about spread.
    folder.run("compare mlp --budget 70% --steps 2", QUICK).exits(0).prints(&["% (noise)", "more steps"]);
    let json =
        folder.run("compare mlp --budget 70% --steps 2 --json", QUICK).exits(0).json("remat.compare/1");
    assert_eq!(json["result"]["overhead_is_within_spread"], true);
}

#[test]
fn profile_tables_have_the_ratio_that_selects_what_to_recompute() {
    let folder = Folder::new();
    folder.run("profile mlp --out p --threads 1", SMALL).exits(0);
    let table = folder.read("p/profiler_stats_activation_stats.csv");
    let mut lines = table.lines();
    let column =
        |name: &str| table.lines().next().unwrap().split(',').position(|column| column == name).expect(name);
    let (size, time) = (column("median_mem_size_bytes"), column("recomp_time_s"));
    let ratio = column("recompute_ratio");
    lines.next();
    let mut n_rows = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse::<f64>().unwrap();
        assert!((number(ratio) * number(time) / number(size) - 1.0).abs() < 1e-6, "{line}");
        n_rows += 1;
    }
    assert!(n_rows > 3, "{table}");
}
