//! Parameters and moments that rest in a store: checkpoints, evaluation and resuming do not see the difference, and a store
//! that fails loses nothing but the steps since the last checkpoint.

#[path = "common/swaps.rs"]
#[allow(dead_code)] // Shared with the tests of the promises.
mod swaps;

use remat::model::{self, Options};
use remat::pipeline::{Prepared, Program};
use remat::store::{Kind, Setup, Trouble};
use remat::train::{Checkpoints, Evaluation, Identity, LearningRate, Schedule, Session, Synthetic};
use remat_plan::Bytes;
use std::path::Path;

const SEED: u64 = 4;

/// A program whose state rests in a store, all of it or nearly so.
fn resting(prepared: &Prepared) -> Program {
    within(prepared, [110, 125, 150, 200])
}

/// The same within the first of these percentages of the floor that is enough: that depends on what packing wastes.
fn within(prepared: &Prepared, percentages: [u64; 4]) -> Program {
    let budgets = percentages.map(|percent| Bytes(prepared.floor.bytes.0 * percent / 100));
    let mut programs = budgets.into_iter().filter_map(|budget| swaps::fit(prepared, "swap", budget).ok());
    let program = programs.next().expect("a multiple of the floor is enough");
    assert!(program.schedule().carried.len() > 4, "hardly any state rests in a store");
    assert!(program.peak().0 < swaps::state_bytes(prepared), "the arena holds all state");
    program
}

fn session(program: &Program) -> Session {
    Session::new(program.clone(), Box::new(Synthetic { seed: SEED }), SEED, 2).expect("memory")
}

fn identity(prepared: &Prepared) -> Identity {
    let optimizer = prepared.step.roles.optimizer.expect("a training step");
    Identity::of(&prepared.step.graph, optimizer, LearningRate::constant(1e-3), SEED, "synthetic")
}

fn checkpoint(prepared: &Prepared, session: &Session, folder: &Path) -> Vec<u8> {
    let checkpoints = Checkpoints::create(folder, identity(prepared), 2).expect("a folder");
    std::fs::read(checkpoints.write(session).expect("a checkpoint")).expect("a file")
}

fn resume(prepared: &Prepared, session: &mut Session, folder: &Path) -> Option<u64> {
    let never = |warning| panic!("{warning}");
    Checkpoints::resume(folder, &identity(prepared), Schedule::Same, session, never).expect("a checkpoint")
}

fn step(session: &mut Session) -> u32 {
    session.step(None).expect("a step").loss.to_bits()
}

const MODELS: [(&str, &str); 2] = [("resnet18", "batch=2 image=32 classes=10"), ("gpt", swaps::MODELS[6].1)];

#[test]
fn checkpoints_are_the_same_files_and_resume_each_other() {
    for (name, typed) in MODELS {
        let prepared = swaps::prepared(name, typed);
        let moved = resting(&prepared);
        let folder = tempfile::tempdir().expect("a directory");
        for kind in [Kind::Host, Kind::File(folder.path().to_owned())] {
            let moved = moved.clone().with_stores(&Setup::new(kind.clone()));
            let (mut kept, mut moving) = (session(&prepared.keep_all), session(&moved));
            for _ in 0..2 {
                assert_eq!(step(&mut kept), step(&mut moving), "{name}, {kind}: the loss");
            }
            let folders = tempfile::tempdir().expect("a directory");
            let [a, b] = ["kept", "moved"].map(|name| folders.path().join(name));
            let files = [checkpoint(&prepared, &kept, &a), checkpoint(&prepared, &moving, &b)];
            assert!(files[0] == files[1], "{name}, {kind}: checkpoints differ");
            let (mut again, mut other) = (session(&moved), session(&prepared.keep_all));
            assert_eq!(resume(&prepared, &mut again, &a), Some(2));
            assert_eq!(resume(&prepared, &mut other, &b), Some(2));
            let expected = step(&mut kept);
            assert_eq!([step(&mut again), step(&mut other)], [expected; 2], "{name}, {kind}: resumed");
            let hash = |session: &Session| session.state_hash().expect("readable");
            assert_eq!([hash(&again), hash(&other)], [hash(&kept); 2], "{name}, {kind}: the state");
        }
    }
}

#[test]
fn evaluation_loads_what_it_needs_and_changes_nothing() {
    for (name, typed) in MODELS {
        let prepared = swaps::prepared(name, typed);
        // Evaluation lies around the state that stays in memory, wherever training has put it.
        let moved = within(&prepared, [200, 220, 250, 300]);
        let pairs = typed.split(' ').map(|pair| pair.split_once('=').expect("NAME=VALUE"));
        let options = pairs.fold(Options::new(), |options, (name, value)| options.with(name, value));
        let forward = model::find(name).expect("a model").build(&options).expect("options").into_graph();
        let scores = [&prepared.keep_all, &moved].map(|program| {
            let evaluation = Evaluation::fit(&forward, program).expect("no internal error");
            let evaluation = evaluation.unwrap_or_else(|| panic!("{name}: evaluation does not fit"));
            let mut session = session(program);
            step(&mut session);
            let before = session.state_hash().expect("readable");
            let mut data = Synthetic { seed: SEED };
            let score = evaluation.run(&mut session, &mut data, 2).expect("a score");
            assert_eq!(
                session.state_hash().expect("readable"),
                before,
                "{name}: evaluation changed the state"
            );
            (score.loss.to_bits(), score.accuracy.map(f32::to_bits))
        });
        assert_eq!(scores[0], scores[1], "{name}");
    }
}

#[test]
fn a_failing_store_ends_the_run_and_the_last_checkpoint_resumes_it() {
    let (name, typed) = MODELS[1];
    let prepared = swaps::prepared(name, typed);
    let moved = resting(&prepared);
    let folder = tempfile::tempdir().expect("a directory");
    let copies = moved.schedule().n_copies() as u64;
    for kind in [Kind::Host, Kind::File(folder.path().to_owned())] {
        let checkpoints = tempfile::tempdir().expect("a directory");
        // In the second step, somewhere.
        let trouble = Trouble { failing: Some(copies * 3 / 4), ..Trouble::default() };
        let mut failing = session(&moved.clone().with_stores(&Setup { kind, trouble }));
        step(&mut failing);
        checkpoint(&prepared, &failing, checkpoints.path());
        let message = failing.step(None).expect_err("the store fails").to_string();
        assert!(message.contains("store") && message.contains("injected failure"), "{message}");
        assert!(failing.step(None).is_err(), "a store that failed does not recover");
        drop(failing);

        let (mut kept, mut resumed) = (session(&prepared.keep_all), session(&moved));
        step(&mut kept);
        assert_eq!(resume(&prepared, &mut resumed, checkpoints.path()), Some(1));
        assert_eq!(step(&mut resumed), step(&mut kept));
    }
}

#[test]
fn a_directory_without_space_or_direct_writes_is_told_about() {
    let (name, typed) = MODELS[1];
    let moved = resting(&swaps::prepared(name, typed));
    let missing = Setup::new(Kind::File("/no/such/directory".into()));
    let open = |setup: &Setup| {
        let program = moved.clone().with_stores(setup);
        Session::new(program, Box::new(Synthetic { seed: SEED }), SEED, 1)
    };
    let message = open(&missing).expect_err("there is no such directory").to_string();
    assert!(message.contains("/no/such/directory"), "{message}");
    let folder = tempfile::tempdir().expect("a directory");
    let kind = Kind::File(folder.path().to_owned());
    let trouble = Trouble { no_direct_io: true, ..Trouble::default() };
    let mut session = open(&Setup { kind, trouble }).expect("a slower store");
    let warnings = session.executor().warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("the budget does not count"), "{warnings:?}");
    step(&mut session);
}
