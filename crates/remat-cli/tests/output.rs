//! How results are printed: readers that leave, colours that nobody asked for, full disks.

mod common;

use common::{Folder, PROBLEM, QUICK, Ran, SMALL};
use std::io::Read as _;
use std::process::Stdio;

/// Runs with a reader that takes one byte and leaves.
fn run_with_leaving_reader(folder: &Folder, words: &str) -> Ran {
    let mut command = folder.command();
    command.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdout = child.stdout.take().expect("stdout is piped");
    stdout.read_exact(&mut [0]).expect("something is printed");
    drop(stdout);
    Ran::of(child.wait_with_output().expect("the binary ends"))
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let folder = Folder::new();
    for words in [
        "graph resnet50 --image 32 --batch 2",
        "completions bash",
        "train mlp --steps 100000000 --batch 2 --width 4",
    ] {
        let ran = run_with_leaving_reader(&folder, words);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words}: {ran:?}");
    }
}

#[test]
fn the_answer_and_the_files_do_not_depend_on_a_reader() {
    let folder = Folder::new();
    folder.write("p.json", PROBLEM);
    let mut command = folder.command();
    command.args("plan --problem p.json --budget 1B --out plan.json".split(' ')).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(folder.names(), ["p.json", "plan.json"]);
    let ran = run_with_leaving_reader(&folder, "train mlp --steps 50 --batch 2 --width 4 --save w");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(folder.names(), ["p.json", "plan.json", "w"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = Folder::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = folder.command().args(["completions", "bash"]).stdout(full).output().unwrap();
    Ran::of(output).complains(&["writing to stdout"]);
}

#[test]
fn nothing_is_coloured_when_it_is_not_for_a_terminal_or_not_wanted() {
    let folder = Folder::new();
    for words in [
        "models",
        "plan mlp --budget 1KiB",
        "plan mlp --budget 100%",
        "plan mlp --budget 1",
        "--help",
        "doctor",
    ] {
        let with_small = if words.contains("mlp") { QUICK } else { &[] };
        let piped = folder.run(words, with_small);
        let mut command = folder.command();
        command.env("NO_COLOR", "1").args(words.split(' ')).args(with_small);
        for ran in [piped, Ran::of(command.output().unwrap())] {
            assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{ran:?}");
        }
    }
}

#[test]
fn progress_stays_off_both_streams_without_a_terminal() {
    let folder = Folder::new();
    for words in
        ["profile mlp --json", "compare mlp --budget 100% --steps 1 --json", "train mlp --steps 1 --json"]
    {
        let size = if words.starts_with("profile") { SMALL } else { QUICK };
        let ran = folder.run(words, size).exits(0);
        assert!(ran.stderr.is_empty() && ran.stdout.starts_with('{'), "{ran:?}");
    }
}

#[test]
fn help_and_version_are_data() {
    let folder = Folder::new();
    folder.run("--version", &[]).exits(0).prints(&["remat "]);
    for command in [
        "models",
        "profile",
        "plan",
        "explain",
        "frontier",
        "train",
        "compare",
        "check",
        "doctor",
        "completions",
        "graph",
    ] {
        folder.run(command, &["--help"]).exits(0).prints(&["Usage: remat", "--json"]);
    }
    // The tables of models and planners are the help.
    folder.run("plan --help", &[]).exits(0).prints(&["mu-two", "--batch", "50%"]);
    let ran = folder.run("", &[]).exits(2);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("Usage"), "{ran:?}");
}

/// What a command shows on a terminal, made by `script` of util-linux.
#[cfg(target_os = "linux")]
fn on_a_terminal(folder: &Folder, words: &str) -> String {
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_remat"));
    let mut command = std::process::Command::new("script");
    command.current_dir(folder.path(".")).args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    // The columns of a terminal that nobody looks at.
    command.env("TERM", "xterm").env("COLUMNS", "120").env("XDG_CACHE_HOME", folder.path("cache"));
    String::from_utf8_lossy(&command.output().expect("`script` runs").stdout).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_what_takes_time() {
    let folder = Folder::new();
    // The first plan on a machine measures it; later ones do not.
    let plan = "plan gpt --dim 64 --heads 2 --layers 6 --seq 128 --vocab 512 --budget 60%";
    let first = on_a_terminal(&folder, plan);
    assert!(first.contains("measuring this machine (once)"), "{first}");
    assert!(first.contains("planning with `best`") && first.contains("best so far +"), "{first}");
    let second = on_a_terminal(&folder, plan);
    assert!(!second.contains("measuring") && second.contains("planning with `best`"), "{second}");
}

#[test]
fn nothing_is_measured_when_nothing_is_planned() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    for words in ["train mlp --steps 1", "graph mlp"] {
        let output = folder
            .command()
            .args(words.split(' '))
            .args(QUICK)
            .env("XDG_CACHE_HOME", &cache)
            .output()
            .unwrap();
        Ran::of(output).exits(0);
    }
    assert!(!cache.exists(), "speeds were measured and kept");
}
