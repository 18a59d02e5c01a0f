//! What each kind of op reaches on this machine, measured on a few ordinary sizes.
//!
//! Ops that are limited by arithmetic get a rate over shapes from the models of the registry; the others two rates,
//! for a working set in the caches and for one far beyond them. Takes a few seconds, which is why the result is kept.

use super::Speed;
use super::machine::fastest;
use crate::error::{Error, Result};
use crate::graph::{DType, Type};
use crate::op::adam::Adam;
use crate::op::add::Add;
use crate::op::attention::{Attention, AttentionGrad};
use crate::op::batch_norm::BatchNormGrad;
use crate::op::batch_norm_split::{BatchNormApply, BatchNormReluGrad, BatchStats};
use crate::op::conv2d::{Conv2d, Conv2dGradInput, Conv2dGradWeight};
use crate::op::dropout::Dropout;
use crate::op::gelu::{Gelu, GeluGrad};
use crate::op::layer_norm::{LayerNorm, LayerNormGrad};
use crate::op::linear::{Linear, LinearGradInput, LinearGradWeight};
use crate::op::linear_cross_entropy::{
    LinearCrossEntropy, LinearCrossEntropyGrad, LinearCrossEntropyWithGrad,
};
use crate::op::mul::Mul;
use crate::op::relu::{Relu, ReluGrad};
use crate::op::rms_norm::{RmsNorm, RmsNormGrad};
use crate::op::scale::Scale;
use crate::op::sgd::Sgd;
use crate::op::silu::{Silu, SiluGrad};
use crate::op::softmax::{Softmax, SoftmaxGrad};
use crate::op::sum_rows::SumRows;
use crate::op::{Alone, MicroBatch, Op, Run};
use std::collections::BTreeMap;

/// An op with the shapes of its inputs; integer inputs are marked.
struct Case {
    op: Op,
    shapes: Vec<Vec<usize>>,
    labels: Option<usize>,
}

impl Case {
    fn new(op: impl Into<Op>, shapes: &[&[usize]]) -> Case {
        Case { op: op.into(), shapes: shapes.iter().map(|s| s.to_vec()).collect(), labels: None }
    }

    fn types(&self) -> Result<Vec<Type>> {
        let ty = |(i, shape): (usize, &Vec<usize>)| match self.labels {
            Some(labels) if labels == i => Type::i32(shape),
            _ => Type::f32(shape),
        };
        self.shapes.iter().enumerate().map(ty).collect()
    }

    /// Flops, bytes and seconds of one run.
    fn measure(&self) -> Result<[f64; 3]> {
        let types = self.types()?;
        let bug = |message| Error::Bug { stage: "calibration", faults: vec![message] };
        let mut alone = Alone::new(&self.op, &types).map_err(bug)?;
        for (i, _) in types.iter().enumerate().filter(|(_, ty)| ty.dtype() == DType::F32) {
            alone.fill_ordinary(i);
        }
        let x: Vec<&Type> = types.iter().collect();
        let cost = self.op.def().cost(&x, &alone.output_types().iter().collect::<Vec<_>>());
        let run = Run { seed: 0, step: 1, learning_rate: 1e-3, micro: MicroBatch::ONLY };
        let seconds = fastest(3, || alone.run(&run)).as_secs_f64();
        Ok([cost.flops as f64, cost.bytes as f64, seconds])
    }
}

/// The names of the ops that are measured.
pub(super) fn ops() -> Vec<&'static str> {
    let products = products();
    let first = products.iter().filter_map(|cases| cases.first());
    first.chain(&streams(1, 1)).map(|case| case.op.name()).collect()
}

/// The speeds of all ops that matter, in the current thread pool.
pub(super) fn speeds() -> Result<BTreeMap<String, Speed>> {
    let mut speeds = BTreeMap::new();
    for cases in products() {
        let mut total = [0.0; 3];
        for case in &cases {
            let measured = case.measure()?;
            total.iter_mut().zip(measured).for_each(|(total, part)| *total += part);
        }
        let name = cases.first().map_or("", |case| case.op.name());
        speeds.insert(name.to_owned(), Speed::Flops(total[0] / total[2]));
    }
    let (near, far) = (streams(128, 512), streams(16 << 10, 512));
    for (near, far) in near.iter().zip(&far) {
        let rate = |case: &Case| case.measure().map(|[_, bytes, seconds]| bytes / seconds);
        let speed = Speed::Bytes { near: rate(near)?, far: rate(far)? };
        speeds.insert(near.op.name().to_owned(), speed);
    }
    Ok(speeds)
}

/// Ops limited by arithmetic, each on one shape or several.
fn products() -> Vec<Vec<Case>> {
    let [rows, narrow, wide, classes] = [512, 512, 2048, 8192];
    let linear = |op: fn() -> Op, shapes: fn(usize, usize, usize) -> [[usize; 2]; 2]| {
        let case = |inputs, outputs| {
            let [a, b] = shapes(rows, inputs, outputs);
            Case::new(op(), &[&a, &b])
        };
        vec![case(narrow, wide), case(wide, narrow)]
    };
    let heads = Attention { heads: 8, causal: false, dropout: 0.0, stream: 0 };
    let (qkv, o, lse) = ([2, 256, 3 * narrow], [2, 256, narrow], [2, 8, 256]);
    let labelled = |op: Op, shapes: &[&[usize]]| Case { labels: Some(2), ..Case::new(op, shapes) };
    let [features, table] = [[rows, narrow], [classes, narrow]];
    vec![
        convolutions(|conv, x, weight, _| Case::new(conv, &[&x, &weight])),
        convolutions(|conv, x, weight, y| {
            Case::new(Conv2dGradInput { conv, size: [x[1], x[2]] }, &[&y, &weight])
        }),
        convolutions(|conv, x, weight, y| {
            Case::new(Conv2dGradWeight { conv, kernel: [weight[1], weight[2]] }, &[&y, &x])
        }),
        linear(|| Linear {}.into(), |rows, inputs, outputs| [[rows, inputs], [outputs, inputs]]),
        linear(|| LinearGradInput {}.into(), |rows, inputs, outputs| [[rows, outputs], [outputs, inputs]]),
        linear(|| LinearGradWeight {}.into(), |rows, inputs, outputs| [[rows, outputs], [rows, inputs]]),
        vec![Case::new(heads, &[&qkv])],
        vec![Case::new(AttentionGrad { forward: heads }, &[&qkv, &o, &lse, &o])],
        vec![labelled(LinearCrossEntropy {}.into(), &[&features, &table, &[rows]])],
        vec![labelled(LinearCrossEntropyGrad {}.into(), &[&features, &table, &[rows], &[rows], &[]])],
        vec![labelled(LinearCrossEntropyWithGrad {}.into(), &[&features, &table, &[rows], &[]])],
    ]
}

/// An op on the convolutions where most of a ResNet's work is, given the convolution, its input, weight and output.
fn convolutions(case: fn(Conv2d, [usize; 4], [usize; 4], [usize; 4]) -> Case) -> Vec<Case> {
    let sizes = [(28, 128, 128, 3), (14, 1024, 256, 1), (14, 256, 256, 3), (14, 256, 1024, 1)];
    let sized = |(image, inputs, outputs, kernel)| {
        let conv = Conv2d { stride: [1; 2], padding: [kernel / 2; 2], dilation: [1; 2], groups: 1 };
        let image = |channels| [2, image, image, channels];
        case(conv, image(inputs), [outputs, kernel, kernel, inputs], image(outputs))
    };
    sizes.into_iter().map(sized).collect()
}

/// Ops whose time grows with the tensor, on `[rows, cols]`.
fn streams(rows: usize, cols: usize) -> Vec<Case> {
    let (full, row, column): (&[usize], &[usize], &[usize]) = (&[rows, cols], &[cols], &[rows]);
    let (one, two) = ([full], [full, full]);
    let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    let eps = 1e-5;
    vec![
        Case::new(Relu {}, &one),
        Case::new(ReluGrad {}, &two),
        Case::new(Gelu { tanh: false }, &one),
        Case::new(GeluGrad { tanh: false }, &two),
        Case::new(Silu {}, &one),
        Case::new(SiluGrad {}, &two),
        Case::new(Add {}, &two),
        Case::new(Mul {}, &two),
        Case::new(Scale { factor: 0.5 }, &one),
        Case::new(Dropout { p: 0.1, stream: 0 }, &one),
        Case::new(Softmax {}, &one),
        Case::new(SoftmaxGrad {}, &two),
        Case::new(BatchStats {}, &one),
        Case::new(BatchNormApply { eps }, &[full, row, row, row, row]),
        Case::new(BatchNormGrad { eps }, &[full, full, row, row, row]),
        Case::new(BatchNormReluGrad { eps }, &[full, full, row, row, row, row]),
        Case::new(LayerNorm { eps }, &[full, row, row]),
        Case::new(LayerNormGrad {}, &[full, full, row, column, column]),
        Case::new(RmsNorm { eps }, &[full, row]),
        Case::new(RmsNormGrad {}, &[full, full, row, column]),
        Case::new(SumRows { keep: 1 }, &one),
        Case::new(Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: false }, &[full, full, full]),
        Case::new(adam, &[full, full, full, full]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case whose shapes do not fit its op would stop every program that plans.
    #[test]
    fn every_case_is_well_typed_and_all_sizes_of_an_op_stand_together() {
        let streams = [streams(4, 8), streams(16, 8)];
        for (near, far) in streams[0].iter().zip(&streams[1]) {
            assert_eq!(near.op.name(), far.op.name());
        }
        let products = products();
        for cases in &products {
            assert!(cases.iter().all(|case| case.op.name() == cases[0].op.name()));
        }
        for case in products.iter().flatten().chain(streams.iter().flatten()) {
            let types = case.types().expect("shapes that can be addressed");
            let y = case.op.def().infer(&types.iter().collect::<Vec<_>>());
            assert!(y.is_ok(), "{}: {y:?}", case.op.name());
        }
    }
}
