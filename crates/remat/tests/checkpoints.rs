//! What checkpoints refuse, skip and keep: edited notes, files that cannot be read now, folders in use, divergence.

use remat::exec::{Engine as _, as_floats_mut};
use remat::graph::{Graph, Kind};
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, prepare};
use remat::profile::Machine;
use remat::train::{Checkpoints, Identity, LearningRate, Schedule, Session, Synthetic};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const OPTIMIZER: Optimizer = Optimizer::adam(1e-2);

fn forward() -> Graph {
    let options = [("batch", "4"), ("features", "3"), ("width", "3"), ("layers", "1")];
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    model::find("mlp").expect("a known model").build(&options).expect("valid options").into_graph()
}

fn session() -> Session {
    let costs = Costs::Analytic(Machine::nominal(1));
    let program = prepare(&forward(), &OPTIMIZER, costs, |_, _| {}).expect("a valid step").keep_all;
    Session::new(program, Box::new(Synthetic { seed: 1 }), 1, 1).expect("memory")
}

fn identity() -> Identity {
    Identity::of(&forward(), OPTIMIZER, LearningRate::constant(1e-2), 1, "synthetic")
}

fn resume(folder: &Path) -> (remat::Result<Option<u64>>, Vec<String>) {
    let (mut session, mut warnings) = (session(), Vec::new());
    let warn = |warning| warnings.push(warning);
    (Checkpoints::resume(folder, &identity(), Schedule::Same, &mut session, warn), warnings)
}

/// A folder with the checkpoints of steps 1 to 3.
fn three() -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoints = Checkpoints::create(folder.path(), identity(), 9).expect("a folder");
    let mut session = session();
    let path = |_| {
        session.step(None).expect("a step");
        checkpoints.write(&session).expect("a checkpoint")
    };
    let paths = (1..=3).map(path).collect();
    (folder, paths)
}

/// Replaces bytes of a file by as many others.
fn edit(path: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(path).expect("a file");
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn an_edited_note_is_damage() {
    for (from, to) in [
        (r#""step":"3""#, r#""step":"2""#),
        (r#""seed":"1""#, r#""seed":"7""#),
        (r#""finite":"yes""#, r#""finite":"no!""#),
        (r#""data":"synthetic""#, r#""data":"Synthetic""#),
        (r#""notes":"#, r#""Notes":"#),
        ("remat.checkpoint/2", "remat.checkpoint/3"),
    ] {
        let (folder, paths) = three();
        edit(&paths[2], from, to);
        let (step, warnings) = resume(folder.path());
        assert_eq!(step.expect("the one before"), Some(2), "{to}");
        assert!(warnings.len() == 1 && warnings[0].contains("step-00000003"), "{to}: {warnings:?}");
    }
}

#[test]
fn a_renamed_file_is_not_another_step() {
    let (folder, paths) = three();
    std::fs::rename(&paths[2], folder.path().join("step-00000009.safetensors")).unwrap();
    let (step, warnings) = resume(folder.path());
    assert_eq!((step.unwrap(), warnings.len()), (Some(2), 1));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (folder, paths) = three();
    for path in &paths[..2] {
        std::fs::remove_file(path).unwrap();
    }
    let whole = std::fs::read(&paths[2]).unwrap();
    let text_end = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut session = session();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        // White space after the header means nothing.
        if at < text_end && whole[at] == b' ' && bytes[at].is_ascii_whitespace() {
            continue;
        }
        std::fs::write(&paths[2], &bytes).unwrap();
        let found = Checkpoints::resume(folder.path(), &identity(), Schedule::Same, &mut session, |_| {});
        assert!(found.is_err(), "a flipped bit of byte {at} of {} was not noticed", whole.len());
    }
}

#[test]
fn a_file_cut_off_anywhere_is_no_checkpoint() {
    let (folder, paths) = three();
    let whole = std::fs::read(&paths[2]).unwrap();
    let (mut session, file) = (session(), std::fs::OpenOptions::new().write(true).open(&paths[2]).unwrap());
    for length in (0..whole.len() as u64).rev() {
        file.set_len(length).unwrap();
        let mut n_warnings = 0;
        let warn = |_| n_warnings += 1;
        let found = Checkpoints::resume(folder.path(), &identity(), Schedule::Same, &mut session, warn);
        assert_eq!(found.unwrap(), Some(2), "{length} of {} bytes", whole.len());
        assert_eq!(n_warnings, 1, "{length} of {} bytes", whole.len());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_now_stops_the_run() {
    let (folder, paths) = three();
    std::fs::remove_file(&paths[2]).unwrap();
    // A regular file that opens and cannot be read, as on a failing disk, whoever the user is: nothing is at address 0.
    std::os::unix::fs::symlink("/proc/self/mem", &paths[2]).unwrap();
    let (step, warnings) = resume(folder.path());
    let message = step.expect_err("an older checkpoint must not be taken").to_string();
    assert!(message.contains("step-00000003") && warnings.is_empty(), "{message} {warnings:?}");
}

#[test]
fn what_is_no_file_is_damage() {
    let (folder, paths) = three();
    std::fs::remove_file(&paths[2]).unwrap();
    std::fs::create_dir(&paths[2]).unwrap();
    let (step, warnings) = resume(folder.path());
    assert_eq!(step.expect("the one before"), Some(2));
    assert!(warnings.len() == 1 && warnings[0].contains("step-00000003"), "{warnings:?}");
}

#[test]
fn a_new_run_gets_a_folder_of_its_own() {
    let (folder, _) = three();
    let message = Checkpoints::create(folder.path(), identity(), 2).unwrap_err().to_string();
    assert!(message.contains("up to step 3") && message.contains("--resume"), "{message}");
    Checkpoints::open(folder.path(), identity(), 2).expect("a resumed run writes to the same folder");
    let inside = folder.path().join("a/b");
    Checkpoints::create(&inside, identity(), 2).expect("missing folders are made");
}

#[test]
fn the_newest_finite_checkpoint_is_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::create(folder.path(), identity(), 1).unwrap();
    let mut session = session();
    let mut write = |poison: bool| {
        session.step(None).unwrap();
        if poison {
            let executor = session.executor_mut();
            let graph = executor.graph();
            let is_parameter = |s: &&remat::graph::Source| graph.values[s.value].kind == Kind::Parameter;
            let value = graph.sources.iter().find(is_parameter).unwrap().value;
            as_floats_mut(executor.bytes_mut(value))[0] = f32::NAN;
        }
        checkpoints.write(&session).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("step-"))
            .collect();
        names.sort();
        names.iter().map(|name| name[5..13].parse().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!(write(false), [1]);
    assert_eq!(write(false), [2]);
    assert_eq!(write(true), [2, 3]);
    assert_eq!(write(true), [2, 4]);
}

/// The warning about another version is tested with a file of one, in the tests of the command.
#[test]
fn the_version_of_the_arithmetic_is_noted() {
    let (folder, paths) = three();
    let (step, warnings) = resume(folder.path());
    assert!(step.expect("a checkpoint") == Some(3) && warnings.is_empty(), "{warnings:?}");
    let note = format!("\"numerics\":\"{}\"", remat_kernels::NUMERICS);
    let text = std::fs::read(&paths[2]).expect("a file");
    assert!(text.windows(note.len()).any(|window| window == note.as_bytes()), "no {note}");
}

#[test]
fn weights_that_changed_on_the_disk_are_not_used() {
    let (folder, paths) = three();
    assert_eq!(Checkpoints::newest(folder.path()).expect("a checkpoint").path, paths[2]);
    let mut bytes = std::fs::read(&paths[2]).expect("a file");
    *bytes.last_mut().expect("a byte") ^= 1;
    std::fs::write(&paths[2], bytes).expect("a file");
    let newest = Checkpoints::newest(folder.path()).expect("the one before");
    assert_eq!(newest.path, paths[1]);
    assert!(newest.damaged.len() == 1 && newest.damaged[0].contains("step-00000003"), "{:?}", newest.damaged);
}
