//! Fusion of real models: neither bits nor memory suffer. What becomes one node and what must not are text cases in
//! tests/corpus/; that its checker sees every wrong turn is shown in tests/mutations.rs.

use remat::fuse::{self, fuse};
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Prepared, prepare_step};
use remat::profile::Machine;
use remat::step::{TrainingStep, training_step};
use remat::testing::Oracle;

const N_STEPS: u64 = 3;
const MACHINE: Machine = Machine::nominal(2);

type Sizes = &'static [(&'static str, usize)];

const LANGUAGE: Sizes =
    &[("batch", 2), ("seq", 24), ("vocab", 101), ("dim", 32), ("layers", 2), ("heads", 4)];
const MODELS: [(&str, Sizes); 6] = [
    ("resnet18", &[("batch", 2), ("image", 32), ("classes", 10)]),
    ("resnet50", &[("batch", 2), ("image", 64), ("classes", 10)]),
    ("unet", &[("batch", 2), ("image", 32), ("width", 8)]),
    ("transformer", LANGUAGE),
    ("bert", LANGUAGE),
    ("gpt", LANGUAGE),
];

/// The training step of a model before and after fusion.
fn before_and_after(name: &str, sizes: Sizes) -> [TrainingStep; 2] {
    let options = sizes.iter().fold(Options::new(), |options, &(name, value)| options.with(name, value));
    let forward =
        model::find(name).expect("a known model").build(&options).expect("valid options").into_graph();
    let step = training_step(&forward, &Optimizer::adam(1e-3)).expect("a valid step");
    let fused = fuse(&step);
    assert_eq!(fused.graph.verify(), Vec::new(), "{name}");
    assert_eq!(fuse::check(&step, &fused), Vec::new(), "{name}");
    [step, fused]
}

#[test]
fn losses_gradients_and_state_keep_every_bit() {
    for (name, sizes) in MODELS {
        let steps = before_and_after(name, sizes);
        let [apart, fused] = steps.each_ref().map(|step| Oracle::of(step, N_STEPS, 2).expect("threads"));
        assert!(apart.is_finite(), "{name}: the losses are {:?}", apart.losses());
        assert_eq!(apart.difference(&fused), None, "{name}");
        let prepared =
            prepare_step(steps[1].clone(), Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step");
        apart.check(&prepared.keep_all, 1).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
}

#[test]
fn no_model_needs_more_memory_or_more_time() {
    for (name, sizes) in MODELS {
        let [apart, fused] = before_and_after(name, sizes)
            .map(|step| prepare_step(step, Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step"));
        let facts = |p: &Prepared| (p.keep_all.peak(), p.floor.bytes, p.problem.problem.base_cost());
        let (before, after) = (facts(&apart), facts(&fused));
        assert!(after.0 <= before.0, "{name}: the keep-all peak grew from {} to {}", before.0, after.0);
        assert!(after.1 <= before.1, "{name}: the floor grew from {} to {}", before.1, after.1);
        assert!(after.2 <= before.2, "{name}: the step takes {} s instead of {}", after.2, before.2);
    }
}
