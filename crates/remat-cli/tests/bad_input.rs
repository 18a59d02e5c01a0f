//! Everything that can be typed or handed in wrongly: a clear message that names the place, exit code 2, no panic, and
//! nothing half written.

mod common;

use common::{Folder, PROBLEM, QUICK, SMALL};

#[test]
fn an_unknown_name_is_answered_with_the_nearest_one() {
    let folder = Folder::new();
    folder.run("train resnet5", &[]).complains(&["resnet5", "resnet50"]);
    folder.run("plan mlp --budget 50% --planner mu-tow", SMALL).complains(&["mu-tow", "mu-two", "save-all"]);
    folder.run("plna", &[]).complains(&["plna", "plan"]);
    folder.run("train mlp --bacth 3", &[]).complains(&["--bacth", "--batch"]);
    folder.run("train mlp --optimizer lion", &[]).complains(&["lion", "adamw"]);
    folder.run("completions tcsh", &[]).complains(&["tcsh", "bash"]);
}

#[test]
fn options_out_of_range_are_named() {
    let folder = Folder::new();
    for (words, parts) in [
        ("train mlp --batch 0", ["mlp: option `batch`", "got `0`"]),
        ("train mlp --batch -1", ["mlp: option `batch`", "got `-1`"]),
        ("train mlp --batch many", ["mlp: option `batch`", "got `many`"]),
        ("profile mlp --batch 99999999999999", ["mlp: option `batch`", "got `99999999999999`"]),
        ("train gpt --heads 7", ["gpt: option `heads`", "must divide `dim`"]),
        ("train gpt --dropout 1", ["gpt: option `dropout`", "below 1"]),
        ("train mlp --threads 0", ["--threads", "0"]),
        ("train mlp --lr -1", ["--lr", "at least zero"]),
        ("train mlp --lr NaN", ["--lr", "at least zero"]),
        ("compare mlp --budget 50% --steps 0", ["--steps", "0"]),
        ("plan mlp --budget 50% --effort 0", ["--effort", "above zero"]),
        ("plan mlp --budget 50% --time-limit 10", ["--time-limit", "no unit"]),
    ] {
        folder.run(words, &[]).complains(&parts);
    }
    // An option of another model: the message names the options of this one.
    folder.run("train mlp --image 64", &[]).complains(&[
        "mlp: option `image` does not exist",
        "features",
        "width",
    ]);
}

#[test]
fn sizes_that_overflow_are_refused() {
    let folder = Folder::new();
    for words in [
        "plan mlp --budget 50% --batch 2147483647 --features 2147483647",
        "plan resnet50 --budget 50% --batch 2147483647 --image 2147483647",
        "profile gpt --batch 2147483647 --seq 2147483647",
    ] {
        folder.run(words, &[]).complains(&["too large"]);
    }
    // It can be planned, but not run here.
    let ran = folder.run("train mlp --batch 100000000", &[]);
    ran.complains(&["memory", "available", "--budget"]);
}

#[test]
fn a_budget_has_a_unit_and_is_positive() {
    let folder = Folder::new();
    for (budget, part) in [
        ("8", "has no unit"),
        ("8G", "unknown unit"),
        ("0%", "more than zero"),
        ("-8GiB", "more than zero"),
        ("lots", "is not a budget"),
        ("99999999999TiB", "64 bits"),
        ("", "is not a budget"),
    ] {
        folder.run("plan mlp --budget", &[budget]).complains(&[part]);
    }
    folder.run("plan mlp", &[]).complains(&["--budget"]);
    folder.run("plan --budget 50%", &[]).complains(&["MODEL", "--problem"]);
    folder.run("plan mlp --problem p.json --budget 50%", &[]).complains(&["cannot be used with"]);
}

#[test]
fn broken_problem_files_are_refused_with_their_place() {
    let folder = Folder::new();
    let cases = [
        ("truncated", PROBLEM[..200].to_owned(), vec!["line 3", "EOF"]),
        ("other schema", PROBLEM.replace("remat.problem/1", "remat.problem/9"), vec!["remat.problem/9"]),
        ("not json", "hello".to_owned(), vec!["line 1"]),
        (
            "id out of range",
            PROBLEM.replace("\"inputs\": [1, 2]", "\"inputs\": [1, 99]"),
            vec!["nc", "99", "out of range"],
        ),
        ("negative id", PROBLEM.replace("\"inputs\": [1, 2]", "\"inputs\": [1, -2]"), vec!["line"]),
        (
            "cycle",
            PROBLEM.replace("\"inputs\": [0], \"outputs\": [1]", "\"inputs\": [2], \"outputs\": [1]"),
            vec!["cycle", "na", "nb"],
        ),
        ("bytes overflow", PROBLEM.replace("\"bytes\": 100", "\"bytes\": 9223372036854775807"), vec!["2^63"]),
        ("negative cost", PROBLEM.replace("\"cost\": 2.0", "\"cost\": -2.0"), vec!["nb", "cost"]),
        (
            "two producers",
            PROBLEM.replace("\"outputs\": [2]", "\"outputs\": [1]"),
            vec!["already has a producer"],
        ),
    ];
    for (name, text, mut parts) in cases {
        assert_ne!(text, PROBLEM, "{name} changed nothing");
        folder.write("p.json", &text);
        parts.push("p.json");
        folder.run("plan --problem p.json --budget 1GiB --out plan.json", &[]).complains(&parts);
        assert_eq!(folder.names(), ["p.json"], "{name} left something behind");
    }
    folder.run("plan --problem none.json --budget 1GiB", &[]).complains(&["none.json", "No such file"]);
    folder.run("plan --problem . --budget 1GiB", &[]).complains(&["reading ."]);
    std::fs::write(folder.path("bytes.json"), [0xFF, 0xFE]).unwrap();
    folder.run("plan --problem bytes.json --budget 1GiB", &[]).complains(&["bytes.json"]);
    folder.write("p.json", PROBLEM);
    folder.run("plan --problem p.json --budget 1GiB --batch 3", &[]).complains(&["--batch", "--problem"]);
    folder
        .run("plan --problem p.json --budget 1GiB --cost measured", &[])
        .complains(&["--cost", "--problem"]);
}

#[test]
fn broken_plan_files_are_refused_with_their_place() {
    let folder = Folder::new();
    folder.write("p.json", PROBLEM);
    folder.run("plan --problem p.json --budget 1GiB --out plan.json", &[]).exits(0);
    let plan = folder.read("plan.json");
    let refused = [
        (plan.replace("\"three\"", "\"four\""), vec!["`four`", "`three`"]),
        (plan.replace("[\"compute\",2]", "[\"compute\",77]"), vec!["node 77", "3 nodes"]),
        (plan.replace("[\"compute\",2]", "[\"jump\",2]"), vec!["`jump`"]),
        (plan[..plan.len() - 2].to_owned(), vec!["line 1"]),
        (plan.replace("remat.plan/1", "remat.problem/1"), vec!["remat.problem/1"]),
    ];
    for (text, mut parts) in refused {
        assert_ne!(text, plan, "the case changed nothing");
        folder.write("bad.json", &text);
        parts.push("bad.json");
        folder.run("check p.json bad.json", &[]).complains(&parts);
        folder.run("explain --problem p.json --plan bad.json", &[]).complains(&parts);
    }
    // Readable, and wrong: that is an answer, not an error.
    folder.write("bad.json", &plan.replace("[\"compute\",0],", ""));
    folder.run("check p.json bad.json", &[]).exits(1).prints(&["not valid", "na", "never runs"]);
    let json = folder.run("check p.json bad.json --json", &[]).exits(1).json("remat.check/1");
    assert!(json["faults"].as_array().unwrap().len() >= 2, "{json}");
    folder.run("explain --problem p.json --plan bad.json", &[]).complains(&["bad.json", "not valid"]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_work_and_nothing_is_left() {
    let folder = Folder::new();
    folder.write("p.json", PROBLEM);
    std::fs::create_dir(folder.path("taken")).unwrap();
    std::fs::create_dir(folder.path("taken.json")).unwrap();
    for path in ["none/plan.json", "taken.json", "p.json/plan.json"] {
        folder.run("plan --problem p.json --budget 1GiB --out", &[path]).complains(&["writing", path]);
        folder.run("train mlp --steps 1 --save", &[path]).complains(&["writing", path]);
    }
    folder.run("train mlp --steps 1 --save", &["taken"]).complains(&["writing", "taken"]);
    // A name without an ending is a folder of results.
    folder.write("file", "");
    folder
        .run("plan --problem p.json --budget 1GiB --out", &["file"])
        .complains(&["making the folder", "file"]);
    folder.run("profile mlp --out", &["file/inside"]).complains(&["making the folder", "file/inside"]);
    assert_eq!(folder.names(), ["file", "p.json", "taken", "taken.json"]);
    assert_eq!(folder.read("p.json"), PROBLEM);
}

#[test]
fn weights_of_another_model_are_refused() {
    let folder = Folder::new();
    folder.write("weights", "not weights at all");
    folder.run("train mlp --steps 1 --weights weights", SMALL).complains(&["weights", "safetensors"]);
    folder.run("train mlp --steps 1 --weights none", SMALL).complains(&["none"]);
    folder.run("train mlp --steps 0 --save w --width 8", &[]).exits(0);
    folder.run("train mlp --steps 1 --weights w --width 16", &[]).complains(&["layers.0.weight", "shape"]);
}

#[test]
fn threads_are_those_of_the_machine() {
    let folder = Folder::new();
    let cores = std::thread::available_parallelism().unwrap().get();
    folder.run("train mlp --threads 0", &[]).complains(&["--threads", &format!("from 1 to {cores}")]);
    let ran = folder.run("train mlp --steps 1 --threads 1000 --json", QUICK).exits(0);
    assert_eq!(ran.stderr.matches("warning:").count(), 1, "{ran:?}");
    assert!(
        ran.stderr.contains("--threads 1000") && ran.stderr.contains(&format!("{cores} thread")),
        "{ran:?}"
    );
    assert_eq!(ran.json("remat.train/1")["threads"], cores);
}

#[test]
fn a_cause_is_printed_once() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("imgs")).unwrap();
    for (words, cause) in [
        ("train gpt --data nosuch.txt", "No such file"),
        ("train mlp --data nosuch", "No such file"),
        ("train mlp --steps 1 --checkpoint /proc/foo", "os error"),
        ("train mlp --steps 1 --weights nosuch", "No such file"),
        ("sweep mlp --checkpoint nosuch --batch 4 --width 8 --features 8 --out d", "nosuch"),
        ("plan --problem nosuch.json --budget 1GiB", "No such file"),
    ] {
        let ran = folder.run(words, &[]).complains(&[cause]);
        assert_eq!(ran.stderr.matches(cause).count(), 1, "{words}: {ran:?}");
    }
    folder.run("train gpt --data imgs", &[]).complains(&["imgs: is a folder", "text file"]);
    folder.write("words.txt", "some words");
    folder
        .run("train mlp --data words.txt", &[])
        .complains(&["words.txt", "one subfolder of images per class"]);
}

#[test]
fn every_failure_is_a_document_when_json_is_wanted() {
    let folder = Folder::new();
    folder.write("p.json", PROBLEM);
    for (words, part) in [
        ("plan --problem none.json --budget 1GiB", "none.json"),
        ("plan mlp --budget lots", "lots"),
        ("train mlp --bacth 3", "--bacth"),
        ("train mlp --data nowhere", "nowhere"),
        ("nonsense", "nonsense"),
        ("report nowhere --out r.html", "nowhere"),
        ("check p.json p.json", "p.json"),
    ] {
        let ran = folder.run(&format!("{words} --json"), &[]).exits(2);
        let json = ran.json("remat.error/1");
        let error = json["error"].as_str().expect("a message");
        assert!(error.contains(part) && !error.contains("Usage"), "{words}: {json}");
        assert_eq!(json["exit_code"], 2);
        assert!(ran.stderr.contains("error:"), "people are told too: {ran:?}");
    }
    let ran = folder.run("graph mlp --budget 1KiB --json", QUICK).exits(1);
    assert!(ran.json("remat.error/1")["error"].as_str().unwrap().contains("does not fit"), "{ran:?}");
    // Help is no failure.
    let ran = folder.run("train --help --json", &[]).exits(0);
    assert!(ran.stdout.contains("Usage:"), "{ran:?}");
}
