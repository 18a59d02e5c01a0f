//! Random models against the oracle: whatever graph and whatever plan, the bits and the peak are as promised.

mod common;

use common::{MACHINE, check_run, reference};
use remat::graph::{Builder, Graph, Init, Type};
use remat::ids::ValueId;
use remat::op::add::Add;
use remat::op::concat::Concat;
use remat::op::dropout::Dropout;
use remat::op::gelu::Gelu;
use remat::op::layer_norm::LayerNorm;
use remat::op::linear::Linear;
use remat::op::mse::Mse;
use remat::op::mul::Mul;
use remat::op::relu::Relu;
use remat::op::reshape::Reshape;
use remat::op::scale::Scale;
use remat::op::slice::Slice;
use remat::op::softmax::Softmax;
use remat::op::transpose::Transpose;
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, compile, prepare};
use remat_plan::{Bytes, PLANNERS, Request};

const ROWS: usize = 6;
const WIDTH: usize = 16;

/// A small deterministic generator; the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Adds one random layer on values of shape `[ROWS, WIDTH]`.
fn layer(b: &mut Builder, random: &mut Random, pool: &[ValueId]) -> remat::Result<ValueId> {
    let x = pool[random.below(pool.len())];
    let other = pool[random.below(pool.len())];
    match random.below(12) {
        0 => b.add(Relu {}, &[x]),
        1 => b.add(Gelu { tanh: false }, &[x]),
        2 => b.add(Add {}, &[x, other]),
        3 => {
            // Products of products grow beyond any float; a softmax keeps them small.
            let product = b.add(Mul {}, &[x, other])?;
            b.add(Softmax {}, &[product])
        }
        4 => b.add(Scale { factor: 0.5 }, &[x]),
        5 => b.add(Softmax {}, &[x]),
        6 => {
            let stream = b.random_stream();
            b.add(Dropout { p: 0.3, stream }, &[x])
        }
        7 => {
            let weight = b.parameter("weight", Type::f32(&[WIDTH, WIDTH])?, Init::Uniform(0.4));
            b.add(Linear {}, &[x, weight])
        }
        8 => {
            let weight = b.parameter("weight", Type::f32(&[WIDTH])?, Init::Constant(1.0));
            let bias = b.parameter("bias", Type::f32(&[WIDTH])?, Init::Constant(0.1));
            b.add(LayerNorm { eps: 1e-5 }, &[x, weight, bias])
        }
        9 => {
            // A chain of views between two ops that need storage.
            let flat = b.add(Reshape { shape: vec![ROWS * WIDTH] }, &[x])?;
            let tall = b.add(Reshape { shape: vec![WIDTH, ROWS] }, &[flat])?;
            let turned = b.add(Transpose { perm: vec![1, 0] }, &[tall])?;
            b.add(Relu {}, &[turned])
        }
        10 => {
            let left = b.add(Slice { axis: 1, start: 0, end: WIDTH / 2 }, &[x])?;
            let right = b.add(Slice { axis: 1, start: WIDTH / 2, end: WIDTH }, &[other])?;
            b.add(Concat { axis: 1 }, &[left, right])
        }
        _ => {
            // The same value twice in one node.
            let square = b.add(Mul {}, &[x, x])?;
            b.add(Softmax {}, &[square])
        }
    }
}

fn random_model(seed: u64) -> remat::Result<Graph> {
    let mut random = Random(seed);
    let mut b = Builder::new(format!("random {seed}"));
    let input = b.input("input", &[ROWS, WIDTH])?;
    let target = b.input("target", &[ROWS, WIDTH])?;
    let table = b.parameter("table", Type::f32(&[ROWS, WIDTH])?, Init::Normal(1.0));
    let mut pool = vec![input, table, b.add(Add {}, &[input, table])?];
    for i in 0..4 + random.below(14) {
        // Mostly recent values, so that the graph is deep, with some long skips.
        let from = if random.below(3) == 0 { 0 } else { pool.len().saturating_sub(3) };
        let made = b.scope(format!("blocks.{}.op{i}", i / 3), |b| layer(b, &mut random, &pool[from..]))?;
        pool.push(made);
    }
    let last = pool[pool.len() - 1];
    let joined = b.add(Add {}, &[last, table])?;
    let loss = b.add(Mse {}, &[joined, target])?;
    b.output(loss);
    Ok(b.finish())
}

#[test]
fn every_plan_of_every_random_model_keeps_the_promises() {
    let mut n_recomputing = 0;
    for seed in 0..120 {
        let forward = random_model(seed).expect("a valid model");
        let optimizer = if seed % 2 == 0 { Optimizer::sgd(1e-2) } else { Optimizer::adamw(1e-2) };
        let prepared =
            prepare(&forward, &optimizer, Costs::Analytic(MACHINE), |_, _| {}).expect("a valid step");
        let text = prepared.step.graph.to_text();
        assert_eq!(Graph::from_text(&text).expect("printed text parses"), prepared.step.graph);
        let oracle = reference(&prepared.step, 1);
        let (floor, keep_all) = (prepared.floor.bytes.0, prepared.keep_all.peak().0);
        for planner in PLANNERS {
            for share in [0, 1, 3, 6, 10] {
                let budget = Bytes(floor + (keep_all - floor) * share / 10);
                let request = Request { effort: Some(0.005), ..Request::new(budget) };
                let context = format!("seed {seed}, {}, budget {}", planner.name, budget.0);
                if let Fit::Fits(program) =
                    compile(&prepared, planner.name, &request).expect("no internal error")
                {
                    assert!(program.peak() <= budget, "{context}");
                    n_recomputing += usize::from(program.schedule().n_recomputes() > 0);
                    check_run(&prepared.step, &oracle, &program, 1, &context);
                }
            }
        }
    }
    assert!(n_recomputing > 150, "only {n_recomputing} plans recomputed anything");
}
