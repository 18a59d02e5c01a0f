//! Names come from files that anyone may have written. Whatever a command prints or writes, none of them takes a terminal
//! over, reorders a line or pretends to be a line of its own.

mod common;

use common::{Folder, PROBLEM, Ran};
use remat_plan::is_unprintable;
use std::path::Path;

/// Clears the screen, rings, goes back, deletes, colours with one character, and turns the direction around.
const EVIL: &str = "\u{1b}[2J\u{7}\r\u{8}\u{7f}\u{9b}31m\u{202e}gpj\u{2066}\u{85}\u{1b}]0;title\u{7}";

/// The same for places where line breaks may be.
fn evil_lines() -> String {
    format!("{EVIL}\nfits: everything\t")
}

fn is_clean(text: &str) -> bool {
    !text.contains(|c: char| is_unprintable(c) && c != '\n' && c != '\t')
}

/// Fails unless all that was printed can be shown.
fn clean(ran: Ran) -> Ran {
    assert!(is_clean(&ran.stdout) && is_clean(&ran.stderr), "{ran:?}");
    ran
}

/// Fails unless all files of a folder that we write can be shown, by their names and their contents.
fn clean_files(folder: &Path) -> usize {
    let mut n_files = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(is_clean(&name), "{name:?}");
        if let Ok(text) = std::fs::read_to_string(&path) {
            assert!(is_clean(&text), "{name}: {text:?}");
            n_files += 1;
        }
    }
    n_files
}

/// A problem whose every name is made to hurt.
fn evil_problem() -> serde_json::Value {
    let mut problem: serde_json::Value = serde_json::from_str(PROBLEM).expect("JSON");
    let evil = |name: &str| serde_json::Value::from(format!("{name}{}", evil_lines()));
    problem["name"] = evil("problem");
    problem["cost_unit"] = evil("J");
    for list in ["values", "nodes"] {
        for item in problem[list].as_array_mut().expect("a list") {
            item["name"] = evil(item["name"].as_str().expect("a name"));
            if list == "nodes" {
                (item["op"], item["module"]) = (evil("op"), evil("module"));
            }
        }
    }
    problem
}

#[test]
fn names_of_problems_and_plans_are_only_seen() {
    let folder = Folder::new();
    folder.write("p.json", &evil_problem().to_string());
    let commands = [
        "graph --problem p.json",
        "plan --problem p.json --budget 1145B --out plan.json",
        "plan --problem p.json --budget 1145B --out plan.txt --problem-out again.txt",
        "plan --problem p.json --budget 1145B --out results",
        "plan --problem p.json --budget 1B",
        "explain --problem p.json --budget 1145B",
        "frontier --problem p.json --points 3 --out curve --csv curve.csv --plot curve.svg",
        "check p.json plan.json",
        "check p.json plan.json --budget 1B",
        "check again.txt plan.txt",
        "report results plan.json --out report.html",
    ];
    for command in commands {
        for more in [&[][..], &["--json"]] {
            let ran = clean(folder.run(command, more));
            assert!(ran.code < 2, "{command}: {ran:?}");
            assert!(!ran.stdout.lines().any(|line| line.starts_with("fits: everything")), "{ran:?}");
        }
    }
    std::fs::remove_file(folder.path("p.json")).expect("a file");
    assert!(clean_files(&folder.path(".")) >= 6);
    assert!(clean_files(&folder.path("results")) >= 3 && clean_files(&folder.path("curve")) >= 1);

    // Faults and words that are no words of the format.
    let mut problem = evil_problem();
    problem["nodes"][1]["inputs"] = serde_json::json!([1, 1, 77]);
    folder.write("faulty.json", &problem.to_string());
    clean(folder.run("graph --problem faulty.json", &[])).complains(&["listed twice"]);
    problem["nodes"][0]["phase"] = EVIL.into();
    folder.write("faulty.json", &problem.to_string());
    clean(folder.run("graph --problem faulty.json", &[])).complains(&["unknown variant"]);
    folder.write("faulty.txt", &format!("remat.problem/1\n{EVIL} 1\n"));
    clean(folder.run("graph --problem faulty.txt", &[])).complains(&["faulty.txt"]);
    let plan = folder.read("plan.json").replace("\"best\"", &serde_json::to_string(EVIL).expect("JSON"));
    folder.write("p.json", &evil_problem().to_string());
    folder.write("other.json", &plan);
    clean(folder.run("check p.json other.json", &[])).exits(0);
    clean(folder.run("check p.json", &[EVIL])).complains(&["reading"]);
}

fn png(path: &Path, colour: u8) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).expect("a file"), 4, 4);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().expect("a header").write_image_data(&[colour; 48]).expect("pixels");
}

#[cfg(unix)]
#[test]
fn names_of_data_are_only_seen() {
    let folder = Folder::new();
    let [first, second, run] = ["a", "b", "run"].map(|name| format!("{name}{EVIL}"));
    for (class, colour) in [(&first, 20), (&second, 200)] {
        std::fs::create_dir_all(folder.path(&format!("imgs/{class}"))).expect("a folder");
        (0..12).for_each(|i| png(&folder.path(&format!("imgs/{class}/{i}{EVIL}\n.png")), colour));
    }
    let bad = format!("imgs/{first}/bad{EVIL}.png");
    folder.write(&bad, "no picture");
    let mlp = "train mlp --features 16 --width 4 --layers 1 --batch 8 --steps 9 --threads 1 --data imgs";
    clean(folder.run(mlp, &[])).complains(&["cannot be decoded"]);
    for more in [&[][..], &["--json"]] {
        let out = format!("{run}{}", more.len());
        let ran =
            clean(folder.run(&format!("{mlp} --skip-bad-images"), &[&["--checkpoint", &out], more].concat()));
        assert!(ran.exits(0).stderr.contains("warning: skipped"));
        let image = format!("imgs/{second}/3{EVIL}\n.png");
        let ran = clean(folder.run("predict", &[&[out.as_str(), &image], more].concat())).exits(0);
        if more.is_empty() {
            assert_eq!(ran.stdout.lines().count(), 2, "a header and a row: {ran:?}");
        } else {
            let json = ran.json("remat.predict/1");
            assert_eq!(json["images"][0]["image"], image);
            let class = json["images"][0]["classes"][0]["class"].as_str().expect("a class");
            assert!([&first, &second].contains(&&class.to_owned()), "{class:?}");
        }
        clean(folder.run("predict", &[&out, &bad])).complains(&["cannot be decoded"]);
    }

    let [text, log] = ["text", "log"].map(|name| format!("{name}{EVIL}.csv"));
    folder.write(&text, &"some words and more words, again and again. ".repeat(60));
    let gpt = "train gpt --batch 2 --seq 16 --dim 8 --heads 2 --layers 1 --steps 2 --threads 1 --cache cache --tokenizer";
    std::fs::create_dir(folder.path("cache")).expect("a folder");
    for (tokenizer, out) in [("bpe:270", "pairs"), ("bytes", "bytes")] {
        let more = ["--data", &text, "--log", &log, "--checkpoint", out];
        clean(folder.run(&format!("{gpt} {tokenizer}"), &more)).exits(0);
    }
    assert_eq!(clean_files(&folder.path("cache")), 1, "the tokenizer, beside tokens that are no text");
    clean(folder.run("losses --plot losses.svg", &[&log, &log])).exits(0);
    assert!(is_clean(&folder.read("losses.svg")));
    // A model that has learned nothing writes any byte there is.
    for seed in 0..3 {
        let words = format!("generate bytes --tokens 200 --temperature 9 --seed {seed}");
        let ran = clean(folder.run(&words, &["--prompt", EVIL])).exits(0);
        assert!(ran.stdout.contains(r"\u{1b}"), "{ran:?}");
        let json = clean(folder.run(&words, &["--prompt", EVIL, "--json"])).exits(0).json("remat.generate/1");
        assert!(json["text"].as_str().expect("a text").starts_with(EVIL), "{json}");
    }
    clean(folder.run("generate", &[EVIL])).complains(&["is not a folder of a run"]);
    clean(folder.run("report", &[&log])).complains(&["is not JSON"]);
}

#[test]
fn names_in_weights_and_results_are_only_seen() {
    let folder = Folder::new();
    let key = serde_json::to_string(&evil_lines()).expect("JSON");
    let header = format!(r#"{{{key}:{{"dtype":"F32","shape":[],"data_offsets":[0,4]}}}}"#);
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    std::fs::write(folder.path("evil.st"), file).expect("a file");
    let mlp = "mlp --features 4 --width 4 --layers 1 --batch 4 --threads 1";
    let ran = clean(folder.run(&format!("train {mlp} --weights evil.st"), &[])).complains(&["is unknown"]);
    assert!(!ran.stderr.lines().any(|line| line.starts_with("fits")), "{ran:?}");

    // A sweep that somebody else has begun.
    let sweep =
        format!("sweep {mlp} --budget 100% --rounds 1 --warm-up 0 --steps 1 --effort 0.001 --out results");
    clean(folder.run(&sweep, &[])).exits(0);
    let mut table: serde_json::Value =
        serde_json::from_str(&folder.read("results/sweep.json")).expect("JSON");
    for name in ["case", "program", "note"] {
        let mut row = table["rows"][1].clone();
        row[name] = evil_lines().into();
        table["rows"].as_array_mut().expect("rows").push(row);
    }
    folder.write("results/sweep.json", &table.to_string());
    let ran = clean(folder.run(&format!("{sweep} --resume"), &[]));
    assert!(ran.code < 2, "{ran:?}");
    assert!(!ran.stdout.lines().any(|line| line.starts_with("fits: everything")), "{ran:?}");
    clean(folder.run("report results --out report.html", &[])).exits(0);
    assert!(is_clean(&folder.read("report.html")));
    std::fs::remove_file(folder.path("results/sweep.json")).expect("a file");
    assert!(clean_files(&folder.path("results")) >= 4);
}
