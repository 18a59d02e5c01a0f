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

const CASES: [(&str, &[(&str, &str)]); 7] = [
    ("mlp", &[("batch", "32")]),
    ("resnet18", &[("batch", "2"), ("image", "32"), ("classes", "10")]),
    ("resnet50", &[("batch", "2"), ("image", "32"), ("classes", "10")]),
    ("unet", &[("batch", "2"), ("image", "32"), ("width", "8")]),
    ("transformer", LANGUAGE),
    ("bert", LANGUAGE),
    ("gpt", LANGUAGE),
];

fn compile(name: &str, options: &[(&str, &str)]) -> Program {
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    let forward = model::find(name).expect("a model").build(&options).expect("valid options").into_graph();
    let costs = Costs::Analytic(Machine::nominal(1));
    prepare(&forward, &Optimizer::adamw(1e-3), costs, |_, _| {}).expect("a step").keep_all
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
    words.push(format!("{:016x}", session.state_hash()));
    words.join(" ")
}

#[test]
fn bits_are_those_of_every_machine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden-bits.txt");
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let head = format!("numerics {}", remat_kernels::NUMERICS);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let mut kept = kept.lines();
    if !is_update {
        assert_eq!(kept.next(), Some(&*head), "the fixture belongs to another version of the arithmetic");
    }
    let mut page = vec![head];
    for (name, options) in CASES {
        let program = compile(name, options);
        let want = match kept.next().filter(|_| !is_update) {
            Some(line) => line.to_owned(),
            None if is_update => line(name, &program, 1),
            None => panic!("{name} is missing in the fixture"),
        };
        for isa in Isa::available() {
            isa::select(isa);
            for n_threads in [1, 2, 3, 8] {
                let got = line(name, &program, n_threads);
                assert_eq!(got, want, "{}, {n_threads} threads: bits differ", isa.name());
            }
        }
        page.push(want);
    }
    if is_update {
        std::fs::write(&path, page.join("\n") + "\n").expect("the fixture is writable");
    }
}
