//! The promises, on every model, with every planner, at eleven budgets from the floor to keep-all:
//! the budget holds, the measured peak is the predicted one, and every bit is that of the step before fusion, for one and
//! two threads.

use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, Prepared, compile, prepare};
use remat::profile::Machine;
use remat::testing::Oracle;
use remat_plan::{Bytes, PLANNERS, Request};
use std::collections::HashSet;

/// Steps that are compared: enough for optimizer state and running statistics to matter.
const N_STEPS: u64 = 3;

/// Round speeds, so that plans do not depend on the machine that runs the tests.
const MACHINE: Machine = Machine::nominal(2);

/// Dropout stays on where the model has it.
fn check_model(name: &str, options: Options) {
    let info = model::find(name).expect("a known model");
    let forward = info.build(&options).expect("valid options").into_graph();
    let optimizer = Optimizer::adam(1e-3);
    let prepared = prepare(&forward, &optimizer, Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step");
    let before = prepared.before_fusion.as_ref().expect("a model is fused");
    let [oracle, other] = [1, 2].map(|n| Oracle::of(before, N_STEPS, n).expect("threads"));
    assert!(oracle.is_finite(), "{name}: the losses are {:?}", oracle.losses());
    assert_eq!(oracle.difference(&other), None, "{name}: the oracle depends on the number of threads");
    // Plans that differ only in their budget are run once.
    let mut done = HashSet::new();
    for planner in PLANNERS {
        let lowest = lowest_budget(&prepared, planner.name);
        let highest = prepared.keep_all.peak().max(lowest);
        let mut n_fits = 0;
        for i in 0..=10u64 {
            let budget = Bytes(lowest.0 + (highest.0 - lowest.0) * i / 10);
            let context = format!("{name}, {}, budget {}", planner.name, budget.0);
            let program = match compile(&prepared, planner.name, &request(budget)).expect("no internal error")
            {
                Fit::Fits(program) => program,
                Fit::Refused(refusal) => {
                    assert!(refusal.lowest_peak > budget, "{context}: refused although {refusal:?}");
                    continue;
                }
            };
            n_fits += 1;
            assert!(program.peak() <= budget, "{context}: predicted peak over the budget");
            if !done.insert(format!("{:?}", program.plan().steps)) {
                continue;
            }
            for n_threads in [1, 2] {
                let checked = oracle.check(&program, n_threads);
                checked.unwrap_or_else(|fault| panic!("{context}: {fault}"));
            }
        }
        assert!(n_fits > 0, "{name}: {} never fits, not even keep-all", planner.name);
    }
    refuses_below_the_floor(&prepared);
}

fn request(budget: Bytes) -> Request {
    Request { effort: Some(0.02), ..Request::new(budget) }
}

/// The smallest budget that the planner says it can meet.
fn lowest_budget(prepared: &Prepared, planner: &str) -> Bytes {
    match compile(prepared, planner, &request(prepared.floor.bytes)).expect("no internal error") {
        Fit::Fits(program) => program.peak(),
        Fit::Refused(refusal) => refusal.lowest_peak,
    }
}

fn refuses_below_the_floor(prepared: &Prepared) {
    for planner in PLANNERS {
        let budget = Bytes(prepared.floor.bytes.0 - 1);
        match compile(prepared, planner.name, &request(budget)).expect("no internal error") {
            Fit::Fits(_) => panic!("{} fits below the floor", planner.name),
            Fit::Refused(refusal) => {
                assert_eq!(refusal.floor, prepared.floor.bytes);
                let message = refusal.to_string();
                assert!(message.contains("floor") && message.contains(&refusal.floor_node), "{message}");
            }
        }
    }
}

#[test]
fn mlp() {
    check_model("mlp", Options::new().with("batch", 32));
}

#[test]
fn resnet18() {
    check_model("resnet18", Options::new().with("batch", 2).with("image", 32).with("classes", 10));
}

#[test]
fn resnet50() {
    check_model("resnet50", Options::new().with("batch", 2).with("image", 64).with("classes", 10));
}

#[test]
fn unet() {
    check_model("unet", Options::new().with("batch", 2).with("image", 32).with("width", 8));
}

const SMALL: [(&str, usize); 5] = [("batch", 3), ("seq", 24), ("dim", 32), ("layers", 3), ("vocab", 101)];

fn small_language_model() -> Options {
    SMALL.iter().fold(Options::new(), |options, &(name, value)| options.with(name, value))
}

#[test]
fn transformer() {
    check_model("transformer", small_language_model().with("heads", 4).with("ff", 64));
}

#[test]
fn bert() {
    check_model("bert", small_language_model().with("heads", 4).with("ff", 64));
}

#[test]
fn gpt() {
    check_model("gpt", small_language_model().with("heads", 4).with("dropout", 0.1));
}
