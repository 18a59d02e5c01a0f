//! The promises with stores: whatever a planner moves, to a file or to memory, and however late its copies are, the bits are
//! those of the step before fusion and the peak is the predicted one.

use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, Prepared, Program, compile, prepare};
use remat::profile::{Machine, StoreSpeed};
use remat::store::{Kind, Setup, Trouble};
use remat::testing::Oracle;
use remat_plan::{Bytes, Request};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Enough for optimizer state and running statistics to matter, and for what a step leaves behind in a store.
const N_STEPS: u64 = 3;

/// Planners that use stores, or will.
pub(crate) const PLANNERS: [&str; 3] = ["mu-two", "swap", "best"];

/// The seven models, small, as one would type their options.
pub(crate) const MODELS: [(&str, &str); 7] = [
    ("mlp", "batch=32"),
    ("resnet18", "batch=2 image=32 classes=10"),
    ("resnet50", "batch=2 image=64 classes=10"),
    ("unet", "batch=2 image=32 width=8"),
    ("transformer", "batch=3 seq=24 dim=32 layers=3 vocab=101 heads=4 ff=64"),
    ("bert", "batch=3 seq=24 dim=32 layers=3 vocab=101 heads=4 ff=64"),
    ("gpt", "batch=3 seq=24 dim=32 layers=3 vocab=101 heads=4 dropout=0.1"),
];

/// How much is tried.
#[derive(Clone, Copy)]
pub(crate) struct Trial {
    /// Budgets from the lowest that a planner reaches to what the step needs when everything is kept.
    pub(crate) n_budgets: u64,
    /// The most that a copy is late.
    pub(crate) delay: Duration,
    /// Every store with every number of threads, or each with one.
    pub(crate) all: bool,
}

/// What was run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) n_programs: usize,
    pub(crate) n_moving: usize,
    /// Programs whose whole arena is smaller than the state.
    pub(crate) n_below_state: usize,
}

pub(crate) fn prepared(name: &str, typed: &str) -> Prepared {
    let info = model::find(name).expect("a known model");
    let pairs = typed.split(' ').map(|pair| pair.split_once('=').expect("NAME=VALUE"));
    let options = pairs.fold(Options::new(), |options, (name, value)| options.with(name, value));
    let forward = info.build(&options).expect("valid options").into_graph();
    let costs = Costs::Analytic(Machine::nominal(2));
    let prepared = prepare(&forward, &Optimizer::adam(1e-3), costs, |_, _| {}).expect("a valid step");
    prepared.with_stores(&[(Setup::new(Kind::Host), StoreSpeed::nominal())]).expect("a valid problem")
}

/// Bytes of parameters, statistics and optimizer state.
pub(crate) fn state_bytes(prepared: &Prepared) -> u64 {
    let graph = &prepared.step.graph;
    let states = graph.sources.iter().map(|source| &graph.values[source.value]);
    states.filter(|value| value.kind.is_state()).map(|value| value.ty.buffer_bytes().0).sum()
}

pub(crate) fn fit(prepared: &Prepared, planner: &str, budget: Bytes) -> Result<Program, Bytes> {
    let request = Request { effort: Some(0.02), ..Request::new(budget) };
    match compile(prepared, planner, &request).expect("no internal error") {
        Fit::Fits(program) => Ok(*program),
        Fit::Refused(refusal) => Err(refusal.lowest_peak),
    }
}

/// Checks a model with every planner; returns what was run.
pub(crate) fn check_model(name: &str, typed: &str, directory: &Path, trial: Trial) -> Seen {
    let prepared = prepared(name, typed);
    let oracle =
        Oracle::of(prepared.before_fusion.as_ref().expect("a model is fused"), N_STEPS, 1).expect("threads");
    assert!(oracle.is_finite(), "{name}: the losses are {:?}", oracle.losses());
    let state = state_bytes(&prepared);
    let mut seen = Seen::default();
    let mut done = HashSet::new();
    for planner in PLANNERS {
        let lowest = fit(&prepared, planner, prepared.floor.bytes).map_or_else(|lowest| lowest, |p| p.peak());
        // Addresses may need a little more than bytes.
        let lowest = Bytes(lowest.0 + lowest.0 / 20);
        let highest = prepared.keep_all.peak().max(lowest);
        for i in 0..trial.n_budgets {
            let budget = Bytes(lowest.0 + (highest.0 - lowest.0) * i / (trial.n_budgets - 1).max(1));
            let context = format!("{name}, {planner}, budget {}", budget.0);
            let program = match fit(&prepared, planner, budget) {
                Ok(program) => program,
                Err(lowest) => {
                    assert!(lowest > budget, "{context}: refused although {} bytes do", lowest.0);
                    continue;
                }
            };
            assert!(program.peak() <= budget, "{context}: predicted peak over the budget");
            let plan = program.plan();
            if !done.insert(format!("{:?} {:?}", plan.stored, plan.steps)) {
                continue;
            }
            seen.n_programs += 1;
            seen.n_moving += usize::from(program.schedule().n_copies() > 0);
            seen.n_below_state += usize::from(program.peak().0 < state);
            for (kind, n_threads) in [
                (Kind::Host, 2),
                (Kind::File(directory.to_owned()), 1),
                (Kind::Host, 1),
                (Kind::File(directory.to_owned()), 2),
            ]
            .into_iter()
            .take(if trial.all { 4 } else { 2 })
            {
                let trouble = Trouble { delay: trial.delay, seed: i, ..Trouble::default() };
                let program = program.clone().with_stores(&Setup { kind: kind.clone(), trouble });
                let checked = oracle.check(&program, n_threads);
                checked.unwrap_or_else(|fault| panic!("{context}, store {kind}: {fault}"));
            }
        }
    }
    seen
}
