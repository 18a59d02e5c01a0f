//! Verification of recomputed values: an op that is not deterministic is named with its module and step, and a run of ops
//! that are is left alone.

use remat::graph::{Builder, Graph, Init, NaiveIo, Type};
use remat::ids::ValueId;
use remat::op::mse::Mse;
use remat::op::{Cost, Example, GradArgs, Io, OpDef};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Prepared, Program, checkpoint, prepare};
use remat::profile::Machine;
use remat::train::{Session, StepResult, Synthetic, Trial, compare};
use std::sync::atomic::{AtomicU64, Ordering};

/// `y = 2 x`, but the element that the counter comes to first is wrong from a certain run on.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
struct Forgetful {
    /// The counter to use, so that tests do not disturb each other.
    counter: usize,
    /// The run that is wrong, from 0; the first run of every step is an even one.
    wrong_run: u64,
}

static RUNS: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

impl OpDef for Forgetful {
    fn name() -> &'static str {
        "forgetful"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        Ok(vec![x[0].clone()])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> remat::Result<Vec<Option<ValueId>>> {
        Ok(vec![Some(b.add(remat::op::scale::Scale { factor: 2.0 }, &[args.dy0()])?)])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn run(&self, io: &mut Io<'_>) {
        let run = RUNS[self.counter].fetch_add(1, Ordering::Relaxed);
        let (x, y) = (io.f32(0), io.out(0));
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        if run == self.wrong_run {
            // One bit of one element.
            y[7] = f32::from_bits(y[7].to_bits() ^ 1);
        }
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().map(|x| 2.0 * x).collect()]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(Forgetful { counter: 2, wrong_run: u64::MAX }, &[&[3, 5]])]
    }
}

/// A model in which `block` is dropped after forward and computed again.
fn model(op: Forgetful) -> (Prepared, Program) {
    let forward = || -> remat::Result<Graph> {
        let mut b = Builder::new("forgetful");
        let x = b.input("input", &[8, 4])?;
        let weight = b.parameter("weight", Type::f32(&[8, 4])?, Init::Normal(1.0));
        let y = b.scope("block", |b| {
            let sum = b.add(remat::op::add::Add {}, &[x, weight])?;
            let doubled = b.add(op, &[sum])?;
            // Its gradient reads its input, which is therefore made again.
            b.add(remat::op::gelu::Gelu { tanh: false }, &[doubled])
        })?;
        let target = b.input("target", &[8, 4])?;
        let loss = b.add(Mse {}, &[y, target])?;
        b.output(loss);
        Ok(b.finish())
    };
    let costs = Costs::Analytic(Machine::nominal(1));
    let optimizer = Optimizer { micro_batches: 2, ..Optimizer::adam(1e-2) };
    let prepared = prepare(&forward().expect("a model"), &optimizer, costs, |_, _| {}).expect("a step");
    let program = checkpoint(&prepared, &["block"]).expect("a block that backward needs");
    assert!(program.schedule().n_recomputes() > 0);
    (prepared, program)
}

fn verified_session(program: Program) -> Session {
    let mut session = Session::new(program, Box::new(Synthetic { seed: 1 }), 1, 1).expect("memory");
    session.verify();
    session
}

#[test]
fn what_is_not_repeated_to_the_bit_is_named() {
    // Two micro-batches with two runs each: run 7 is the second run in the second micro-batch of step 2.
    let (_, program) = model(Forgetful { counter: 0, wrong_run: 7 });
    let mut session = verified_session(program);
    let mut step = || -> remat::Result<Option<String>> {
        Ok(session.step(None)?.difference.map(|difference| difference.to_string()))
    };
    assert_eq!(step().expect("synthetic data"), None);
    let expected = "step 2: `forgetful` of module `block` gave other bits when it was computed again";
    // What was made of the wrong value differs as well; the first is told.
    assert_eq!(step().expect("synthetic data").as_deref(), Some(expected));
    // What it was used for is not trained on, unless somebody asks for it.
    let refused = step().expect_err("a wrong state").to_string();
    assert!(refused.contains(expected) && refused.contains("the last checkpoint"), "{refused}");
    session.continue_after(2);
    assert_eq!(session.step(None).expect("synthetic data").difference, None);
    let n_verified = session.n_verified().expect("it was asked for");
    assert!(n_verified >= 6, "{n_verified}");
}

#[test]
fn what_is_repeated_to_the_bit_passes() {
    let (_, program) = model(Forgetful { counter: 1, wrong_run: u64::MAX });
    let mut session = verified_session(program.clone());
    let results: Vec<StepResult> = (0..3).map(|_| session.step(None).expect("synthetic data")).collect();
    assert!(results.iter().all(|result| result.difference.is_none()));
    let n_verified = session.n_verified().expect("it was asked for");
    assert!(n_verified >= 6, "{n_verified}");
    // Verifying changes nothing.
    let mut plain = Session::new(program, Box::new(Synthetic { seed: 1 }), 1, 1).expect("memory");
    for result in results {
        assert_eq!(plain.step(None).expect("synthetic data").loss.to_bits(), result.loss.to_bits());
    }
    assert_eq!(plain.n_verified(), None);
}

#[test]
fn a_comparison_names_it_too() {
    let trial = Trial { seed: 1, n_threads: 1, n_steps: 3, verify: true };
    // The oracle has runs 0 and 1; then the sides take turns, with two and four runs in each step.
    let (prepared, program) = model(Forgetful { counter: 2, wrong_run: 5 });
    let oracle = prepared.oracle().expect("a valid step");
    let compared = compare(&prepared, &program, oracle, trial, |_| {}).expect("memory");
    let expected = "step 1: `forgetful` of module `block` gave other bits when it was computed again";
    assert_eq!(compared.difference.as_deref(), Some(expected));
    let compared =
        compare(&prepared, &program, prepared.oracle().expect("a step"), trial, |_| {}).expect("memory");
    assert_eq!(compared.difference, None);
    assert!(compared.n_verified.is_some_and(|n| n >= 12), "{compared:?}");
}
