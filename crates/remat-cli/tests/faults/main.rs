//! A run on a disk that fails, fills up or loses its power, and in memory that runs out, at every single operation. Nothing
//! is lost but the steps after the last checkpoint, nothing is torn, and a resumed run ends with the bits of one that was
//! left alone. The faults come from a library between the real program and the system (`disk.rs`).
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod power;

use common::training::{results, tensors};
use common::{Folder, Ran};
use power::{Disk, Found, Kept, Operation};
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUN: &str = "train mlp --batch 4 --features 6 --width 5 --layers 2 --classes 3 --threads 1 --steps 5 --keep 1 \
                   --checkpoint-every 2 --log loss.csv --json";
const LAST: &str = "step-00000005.safetensors";

/// The library, compiled once for the tests of this file; `None` where that cannot be done.
fn library() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/disk.rs"),
        folder.join(format!("libdisk-{}.so", std::process::id())),
    );
    static ONCE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let is_there = ONCE.get_or_init(|| {
        let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        let flags = ["--edition", "2024", "--crate-type", "cdylib", "-C", "panic=abort", "-O", "-o"];
        Command::new(rustc)
            .args(flags)
            .arg(&library)
            .arg(source)
            .status()
            .is_ok_and(|status| status.success())
    });
    is_there.then_some(library)
}

/// The name of a test that did not run, past the harness, which hides what passing tests print.
fn skipped(test: &str) {
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "SKIPPED {test}: rustc cannot make the library of faults")
        .expect("stdout");
}

fn run(folder: &Folder, library: &Path, words: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = folder.command();
    command.args(words.split_whitespace()).env("LD_PRELOAD", library).envs(settings.iter().copied());
    command.output().expect("the binary runs")
}

/// A run that nothing happens to, and its operations.
fn whole(library: &Path) -> (Folder, Vec<Operation>) {
    let folder = Folder::new();
    let journal = folder.path("journal");
    let settings = [("REMAT_JOURNAL", journal.to_str().expect("a path"))];
    Ran::of(run(&folder, library, &format!("{RUN} --checkpoint c"), &settings)).exits(0);
    let operations = Operation::read(&std::fs::read(journal).expect("a journal"));
    (folder, operations)
}

/// Resumes what is left and demands that it ends as the whole run did. Returns the step from which it went on.
fn resumed(folder: &Folder, whole: &Folder, what: &str) -> u64 {
    std::fs::create_dir_all(folder.path("c")).expect("a folder");
    let json = folder.run(&format!("{RUN} --resume c"), &[]).exits(0).json("remat.train/1");
    assert_eq!(results(folder, "loss.csv"), results(whole, "loss.csv"), "{what}: the logs differ");
    let last = |folder: &Folder| tensors(&folder.path("c").join(LAST));
    assert!(last(folder) == last(whole), "{what}: the last checkpoints differ");
    let partial = std::fs::read_dir(folder.path("c")).expect("a folder").filter(|entry| {
        entry.as_ref().expect("an entry").file_name().to_string_lossy().contains("step-00000002")
    });
    assert_eq!(partial.count(), 0, "{what}: something was left");
    json["resumed_from_step"].as_u64().expect("a step")
}

#[test]
fn every_operation_of_a_run_may_fail_or_be_the_last() {
    let Some(library) = library() else { return skipped("every_operation_of_a_run_may_fail_or_be_the_last") };
    let (whole, operations) = whole(&library);
    let n = operations.iter().filter(|operation| operation.is_counted()).count();
    assert!(n > 20, "only {n} operations were seen: {operations:?}");
    let mut n_failed = 0;
    for at in 1..=n {
        for fault in ["fail", "full", "kill"] {
            let (folder, what) = (Folder::new(), format!("{fault}:{at}"));
            let output = run(&folder, &library, &format!("{RUN} --checkpoint c"), &[("REMAT_DISK", &what)]);
            if fault == "kill" {
                assert_eq!(output.status.signal(), Some(9), "{what}: {output:?}");
            } else {
                let ran = Ran::of(output);
                // What is only tidied up may fail without a word.
                assert!([0, 2].contains(&ran.code), "{what}: {ran:?}");
                let reason = if fault == "fail" { "Input/output error" } else { "No space left" };
                assert!(ran.code == 0 || ran.stderr.contains(reason), "{what}: {ran:?}");
                n_failed += usize::from(ran.code == 2);
            }
            resumed(&folder, &whole, &what);
        }
    }
    assert!(n_failed > n, "only {n_failed} of {} failures were noticed", 2 * n);
    println!("{} faults at {n} operations: every resumed run ends with the same bits", 3 * n);
}

#[test]
fn a_loss_of_power_costs_nothing_that_was_saved() {
    let Some(library) = library() else { return skipped("a_loss_of_power_costs_nothing_that_was_saved") };
    let (whole, operations) = whole(&library);
    let (mut disk, mut seen) = (Disk::new(), HashSet::<Found>::new());
    // The step whose file has its name, and the one whose name is safe as well.
    let (mut named, mut safe) = (0, 0);
    for at in 0..=operations.len() {
        for kept in Kept::EACH {
            let found = disk.after_loss(kept);
            if !seen.insert(found.clone()) {
                continue;
            }
            let folder = Folder::new();
            for (path, contents) in found {
                match contents {
                    None => std::fs::create_dir_all(folder.path(&path)).expect("a folder"),
                    Some(bytes) => std::fs::write(folder.path(&path), bytes).expect("a file"),
                }
            }
            let what = format!("{kept:?} after {at} operations");
            let from = resumed(&folder, &whole, &what);
            assert!(from >= safe, "{what}: step {safe} was saved, step {from} was found");
        }
        let Some(operation) = operations.get(at) else { break };
        disk.apply(operation);
        let step =
            operation.target.strip_prefix("c/step-").and_then(|rest| rest.strip_suffix(".safetensors"));
        match operation.kind {
            b'R' => named = step.map_or(named, |step| step.parse().expect("a step")),
            // The folder of the checkpoints is synced after a rename, or nothing is.
            b'S' if disk.is_safe(&format!("c/step-{named:08}.safetensors")) => safe = named,
            _ => {}
        }
    }
    assert!(safe == 5 && seen.len() > 20, "{safe} {}", seen.len());
    println!("{} folders after a loss of power: every resumed run ends with the same bits", seen.len());
}

#[test]
fn an_allocation_that_is_refused_is_a_failure_like_others() {
    let Some(library) = library() else {
        return skipped("an_allocation_that_is_refused_is_a_failure_like_others");
    };
    let (whole, _) = whole(&library);
    let (mut n_refused, mut at) = (0, 0);
    // Several allocations may be refused in vain; a hundred in a row mean that there are no more.
    let mut n_quiet = 0;
    while n_quiet < 12 && at < 300 {
        at += 1;
        let (folder, what) = (Folder::new(), format!("{at}:8192"));
        let output = run(&folder, &library, &format!("{RUN} --checkpoint c"), &[("REMAT_MEMORY", &what)]);
        let code = output.status.code().unwrap_or_else(|| panic!("{what}: {output:?}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(code == 0 || code == 2 && stderr.contains("memory"), "{what}: {output:?}");
        n_quiet = if code == 0 { n_quiet + 1 } else { 0 };
        n_refused += usize::from(code == 2);
        resumed(&folder, &whole, &what);
    }
    assert!(n_refused > 5, "only {n_refused} of {at} refusals were noticed");
    println!("{at} allocations were refused; {n_refused} runs ended with exit code 2, none with a signal");
}
