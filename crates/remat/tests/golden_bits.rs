//! Three steps of every kind of model have the bits that are kept in `fixtures/golden-bits.txt`: with every instruction
//! set that this processor has, and for 1, 2, 3 and 8 threads. So a machine of another kind proves or breaks the promise
//! by running this test.
//!
//! `UPDATE_EXPECT=1 cargo test --release -p remat --test golden_bits` writes the file. Whoever changes bits raises
//! `remat_kernels::NUMERICS` with it, because checkpoints tell versions apart by that number.

use remat::isa::{self, Isa};
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Program, prepare};
use remat::profile::Machine;
use remat::train::{Session, Synthetic};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const STEPS: usize = 3;

const LANGUAGE: &[(&str, &str)] = &[
    ("batch", "2"),
    ("seq", "24"),
    ("dim", "32"),
    ("layers", "2"),
    ("vocab", "101"),
    ("heads", "4"),
    ("dropout", "0.1"),
];

fn compile(name: &str, options: &[(&str, &str)]) -> Program {
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    let forward = model::find(name).expect("a model").build(&options).expect("valid options").into_graph();
    let costs = Costs::Analytic(Machine::nominal(1));
    prepare(&forward, &Optimizer::adamw(1e-2), costs, |_, _| {}).expect("a step").keep_all
}

/// The losses and a hash of all state after the last step, as a line of the file.
fn line(name: &str, program: &Program, n_threads: usize) -> String {
    let batches = Box::new(Synthetic { seed: 1 });
    let mut session = Session::new(program.clone(), batches, 1, n_threads).expect("memory and threads");
    let mut words = vec![name.to_owned()];
    for _ in 0..STEPS {
        let loss = session.step(None).expect("a step").loss;
        assert!(loss.is_finite(), "{name}: the loss is {loss}");
        words.push(format!("{:08x}", loss.to_bits()));
    }
    words.push(format!("{:016x}", session.state_hash().expect("no store is involved")));
    words.join(" ")
}

/// Only one test at a time chooses the instruction set and writes the file.
static CHOICE: Mutex<()> = Mutex::new(());

/// The fixture, without the lines of a model.
fn kept(path: &Path, name: &str) -> (Vec<String>, Option<String>) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let (own, others): (Vec<_>, Vec<_>) =
        text.lines().map(str::to_owned).partition(|line| line.split(' ').next() == Some(name));
    (others, own.into_iter().next())
}

fn check(name: &str, options: &[(&str, &str)]) {
    let _choice = CHOICE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden-bits.txt");
    let program = compile(name, options);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let version = format!("numerics {}", remat_kernels::NUMERICS);
        let mut lines = kept(&path, name).0;
        lines.retain(|line| !line.starts_with("numerics"));
        lines.push(line(name, &program, 1));
        lines.sort();
        let text = [vec![version], lines].concat().join("\n") + "\n";
        std::fs::write(&path, text).expect("the fixture is writable");
    }
    let (others, want) = kept(&path, name);
    let version = format!("numerics {}", remat_kernels::NUMERICS);
    assert_eq!(others.first(), Some(&version), "the fixture belongs to another version of the arithmetic");
    let want = want.unwrap_or_else(|| panic!("{name} is missing in {}", path.display()));
    for isa in Isa::available() {
        isa::select(isa);
        for n_threads in [1, 2, 3, 8] {
            let got = line(name, &program, n_threads);
            assert_eq!(got, want, "{}, {n_threads} threads: bits differ", isa.name());
        }
    }
}

#[test]
fn mlp() {
    check("mlp", &[("batch", "32")]);
}

#[test]
fn resnet18() {
    check("resnet18", &[("batch", "2"), ("image", "32"), ("classes", "10")]);
}

#[test]
fn resnet50() {
    check("resnet50", &[("batch", "2"), ("image", "32"), ("classes", "10")]);
}

#[test]
fn unet() {
    check("unet", &[("batch", "2"), ("image", "32"), ("width", "8")]);
}

#[test]
fn transformer() {
    check("transformer", LANGUAGE);
}

#[test]
fn bert() {
    check("bert", LANGUAGE);
}

#[test]
fn gpt() {
    check("gpt", LANGUAGE);
}
