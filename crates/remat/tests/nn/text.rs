//! A network of handles is the same graph as one built by hand.

use remat::Result;
use remat::graph::{Builder, FileLayout, Graph, Init, Kind, Type};
use remat::ids::ValueId;
use remat::nn::{Conv, Loss, Model, Net};
use remat::op::batch_norm::BatchNorm;
use remat::op::conv2d::Conv2d;
use remat::op::cross_entropy::CrossEntropy;
use remat::op::dropout::Dropout;
use remat::op::global_avg_pool::GlobalAvgPool;
use remat::op::linear::Linear;
use remat::op::max_pool::MaxPool;
use remat::op::relu::Relu;
use remat::op::running_update::RunningUpdate;

const BATCH: usize = 4;

fn cnn(g: &Net) -> Loss<'_> {
    let labels = g.labels("labels", [BATCH], 10);
    let mut h = g.input("input", [BATCH, 32, 32, 3]);
    for (i, width) in [8, 16].into_iter().enumerate() {
        h = g.scope(format!("block.{i}"), || {
            h.conv2d("conv", Conv::same(width, 3)).batch_norm("bn").relu().max_pool(2)
        });
    }
    h.global_avg_pool().dropout(0.2).linear("fc", 10).cross_entropy(labels)
}

/// The same with the graph's own builder.
fn by_hand() -> Result<Graph> {
    let mut b = Builder::new("cnn");
    let labels = b.labels("labels", &[BATCH], 10)?;
    let mut x = b.input("input", &[BATCH, 32, 32, 3])?;
    for (i, (inputs, width)) in [(3, 8), (8, 16)].into_iter().enumerate() {
        x = b.scope(format!("block.{i}"), |b| block(b, x, inputs, width))?;
    }
    x = b.add(GlobalAvgPool {}, &[x])?;
    let stream = b.random_stream();
    x = b.add(Dropout { p: 0.2, stream }, &[x])?;
    let logits = b.scope("fc", |b| {
        let weight = b.parameter("weight", Type::f32(&[10, 16])?, Init::Uniform(0.25));
        let bias = b.parameter("bias", Type::f32(&[10])?, Init::Uniform(0.25));
        b.add(Linear {}, &[x, weight, bias])
    })?;
    let loss = b.add(CrossEntropy {}, &[logits, labels])?;
    b.output(loss);
    Ok(b.finish())
}

fn block(b: &mut Builder, x: ValueId, inputs: usize, width: usize) -> Result<ValueId> {
    let rows = b.ty(x).rows() as f64;
    let x = b.scope("conv", |b| {
        let init = Init::Uniform((1.0 / (9.0 * inputs as f64).sqrt()) as f32);
        let ty = Type::f32(&[width, 3, 3, inputs])?;
        let weight = b.source("weight", Kind::Parameter, ty, init, FileLayout::ConvWeight);
        let bias = b.parameter("bias", Type::f32(&[width])?, init);
        let (stride, padding, dilation) = ([1; 2], [1; 2], [1; 2]);
        b.add(Conv2d { stride, padding, dilation, groups: 1, winograd: false }, &[x, weight, bias])
    })?;
    let x = b.scope("bn", |b| {
        let ty = Type::f32(&[width])?;
        let weight = b.parameter("weight", ty.clone(), Init::Constant(1.0));
        let bias = b.parameter("bias", ty.clone(), Init::Constant(0.0));
        let running_mean = b.buffer("running_mean", ty.clone(), Init::Constant(0.0));
        let running_var = b.buffer("running_var", ty, Init::Constant(1.0));
        let made = b.add_all(BatchNorm { eps: 1e-5 }, &[x, weight, bias])?;
        b.add(RunningUpdate { momentum: 0.1, correction: 1.0 }, &[running_mean, made[1]])?;
        let correction = (rows / (rows - 1.0)) as f32;
        b.add(RunningUpdate { momentum: 0.1, correction }, &[running_var, made[2]])?;
        Ok::<_, remat::Error>(made[0])
    })?;
    let x = b.add(Relu {}, &[x])?;
    b.add(MaxPool { kernel: [2; 2], stride: [2; 2], padding: [0; 2] }, &[x])
}

#[test]
fn a_cnn_of_handles_is_the_graph_built_by_hand() {
    let model = Model::build("cnn", cnn).unwrap();
    assert_eq!(model.graph().to_text(), by_hand().unwrap().to_text());
    assert_eq!(model.graph().verify(), Vec::new());
}
