//! The table of layers that random models are made of, and the layers on tensors of any rank. Images have a file of their
//! own.

use super::Growth;
use super::images;
use crate::error::Result;
use crate::graph::Init;
use crate::ids::ValueId;
use crate::op::Op;
use crate::op::accuracy::Accuracy;
use crate::op::add::Add;
use crate::op::attention::Attention;
use crate::op::concat::Concat;
use crate::op::constant::Constant;
use crate::op::dropout::Dropout;
use crate::op::embedding::Embedding;
use crate::op::gelu::Gelu;
use crate::op::layer_norm::LayerNorm;
use crate::op::linear::Linear;
use crate::op::matmul::MatMul;
use crate::op::mul::Mul;
use crate::op::pad::Pad;
use crate::op::relu::Relu;
use crate::op::reshape::Reshape;
use crate::op::rms_norm::RmsNorm;
use crate::op::scale::Scale;
use crate::op::silu::Silu;
use crate::op::slice::Slice;
use crate::op::softmax::Softmax;
use crate::op::transpose::Transpose;

/// A kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// The name of its module.
    pub name: &'static str,
    /// Adds one to the model; `None` where nothing in the pool suits it.
    pub grow: fn(&mut Growth<'_>) -> Result<Option<()>>,
}

/// All kinds of layers. A new op joins with a row here, or a test says that it never appears.
pub const LAYERS: &[Layer] = &[
    Layer { name: "relu", grow: |g| unary(g, |_| Relu {}.into()) },
    Layer { name: "gelu", grow: |g| unary(g, |g| Gelu { tanh: g.choices.below(2) == 1 }.into()) },
    Layer { name: "silu", grow: |g| unary(g, |_| Silu {}.into()) },
    Layer {
        name: "scale",
        grow: |g| unary(g, |g| Scale { factor: g.choices.one_of(&[0.5, -0.75, 1.0]) }.into()),
    },
    Layer { name: "softmax", grow: |g| unary(g, |_| Softmax {}.into()) },
    Layer { name: "dropout", grow: |g| unary(g, dropout) },
    Layer { name: "relu_dropout", grow: relu_dropout },
    Layer { name: "add", grow: add },
    Layer { name: "shift", grow: shift },
    Layer { name: "mul", grow: mul },
    Layer { name: "linear", grow: linear },
    Layer { name: "matmul", grow: matmul },
    Layer { name: "layer_norm", grow: layer_norm },
    Layer { name: "rms_norm", grow: rms_norm },
    Layer { name: "attention", grow: attention },
    Layer { name: "cross_attention", grow: cross_attention },
    Layer { name: "embedding", grow: embedding },
    Layer { name: "views", grow: views },
    Layer { name: "transpose", grow: transpose },
    Layer { name: "slice", grow: slice },
    Layer { name: "pad", grow: pad },
    Layer { name: "concat", grow: concat },
    Layer { name: "constant", grow: constant },
    Layer { name: "accuracy", grow: accuracy },
    Layer { name: "unread", grow: unread },
    Layer { name: "conv", grow: images::conv },
    Layer { name: "conv_transpose", grow: images::conv_transpose },
    Layer { name: "batch_norm", grow: images::batch_norm },
    Layer { name: "frozen_norm", grow: images::frozen_norm },
    Layer { name: "max_pool", grow: images::max_pool },
    Layer { name: "avg_pool", grow: images::avg_pool },
    Layer { name: "global_avg_pool", grow: images::global_avg_pool },
    Layer { name: "image", grow: images::to_image },
];

/// An op of one input that keeps its shape.
fn unary(g: &mut Growth<'_>, op: fn(&mut Growth<'_>) -> Op) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let op = op(g);
    Ok(g.try_add(op, &[x]).and_then(|y| g.keep(y)))
}

fn dropout(g: &mut Growth<'_>) -> Op {
    let p = g.choices.one_of(&[0.3, 0.1, 0.5, 0.0, 1.0]);
    Dropout { p, stream: g.b.random_stream() }.into()
}

/// Fusion reads the mask of such a ReLU from the output of the dropout.
fn relu_dropout(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let Some(y) = g.try_add(Relu {}, &[x]) else { return Ok(None) };
    let op = dropout(g);
    let Some(kept) = g.try_add(op, &[y]) else { return Ok(None) };
    // Something has to keep the output for backward, and sometimes the ReLU has a second reader.
    if g.choices.below(2) == 0 {
        let width = *g.shape(kept).last().expect("the pool has no scalars");
        let out = g.extent();
        let weight = g.weight(&[out, width], width)?;
        if g.choices.once_in(4) {
            g.keep(y);
        }
        return Ok(g.try_add(Linear {}, &[kept, weight]).and_then(|z| g.keep(z)));
    }
    Ok(g.keep(kept))
}

fn add(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let other = g.alike(x);
    let Some(sum) = g.try_add(Add {}, &[x, other]) else { return Ok(None) };
    // A sum of sums would grow without limit.
    Ok(g.try_add(Scale { factor: 0.6 }, &[sum]).and_then(|y| g.keep(y)))
}

/// Adds a parameter with the last dimensions only.
fn shift(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let shape = g.shape(x);
    let kept = g.few(shape.len());
    let by = g.parameter("shift", &shape[shape.len() - kept..], Init::Normal(0.3))?;
    Ok(g.try_add(Add {}, &[x, by]).and_then(|y| g.keep(y)))
}

/// A product, kept small by a softmax.
fn mul(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let other = if g.choices.once_in(3) { x } else { g.alike(x) };
    let Some(product) = g.try_add(Mul {}, &[x, other]) else { return Ok(None) };
    Ok(g.try_add(Softmax {}, &[product]).and_then(|y| g.keep(y)))
}

fn linear(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    Ok(project(g, x, None)?.and_then(|y| g.keep(y)))
}

/// A linear layer with this many outputs, or any number.
fn project(g: &mut Growth<'_>, x: ValueId, outputs: Option<usize>) -> Result<Option<ValueId>> {
    let inputs = *g.shape(x).last().expect("the pool has no scalars");
    let outputs = outputs.unwrap_or_else(|| g.extent());
    let weight = g.weight(&[outputs, inputs], inputs)?;
    let bias = g.perhaps_bias(outputs)?;
    let operands: Vec<ValueId> = [x, weight].into_iter().chain(bias).collect();
    Ok(g.try_add(Linear {}, &operands))
}

fn matmul(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(a) = g.pick(|ty| ty.rank() >= 2) else { return Ok(None) };
    let shape = g.shape(a);
    let (lead, terms) = (&shape[..shape.len() - 2], shape[shape.len() - 1]);
    let product = match g.choices.below(3) {
        // A value with itself, as scores are made.
        0 => g.try_add(MatMul { transpose_a: false, transpose_b: true }, &[a, a]),
        1 => {
            let b = [lead, &[terms, g.extent()]].concat();
            let b = g.weight(&b, terms)?;
            g.try_add(MatMul { transpose_a: false, transpose_b: false }, &[a, b])
        }
        _ => {
            let b = [lead, &[g.extent(), shape[shape.len() - 2]]].concat();
            let b = g.weight(&b, shape[shape.len() - 2])?;
            g.try_add(MatMul { transpose_a: true, transpose_b: true }, &[a, b])
        }
    };
    let Some(product) = product else { return Ok(None) };
    Ok(g.try_add(Softmax {}, &[product]).and_then(|y| g.keep(y)))
}

fn layer_norm(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.last() > 1) else { return Ok(None) };
    let width = [*g.shape(x).last().expect("the pool has no scalars")];
    let weight = g.parameter("weight", &width, Init::Constant(1.0))?;
    let bias = g.parameter("bias", &width, Init::Constant(0.1))?;
    Ok(g.try_add(LayerNorm { eps: 1e-3 }, &[x, weight, bias]).and_then(|y| g.keep(y)))
}

fn rms_norm(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.last() > 1) else { return Ok(None) };
    let width = [*g.shape(x).last().expect("the pool has no scalars")];
    let weight = g.parameter("weight", &width, Init::Constant(1.0))?;
    Ok(g.try_add(RmsNorm { eps: 1e-3 }, &[x, weight]).and_then(|y| g.keep(y)))
}

fn heads(g: &mut Growth<'_>) -> (Attention, usize) {
    let (heads, width) = (g.few(3), g.few(5));
    let (causal, dropout) = (g.choices.below(2) == 1, g.choices.one_of(&[0.0, 0.25]));
    (Attention { heads, causal, dropout, stream: g.b.random_stream() + 1 }, heads * width)
}

/// Attention over one sequence, from packed queries, keys and values.
fn attention(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.rank() == 3) else { return Ok(None) };
    let (attention, width) = heads(g);
    let Some(packed) = project(g, x, Some(3 * width))? else { return Ok(None) };
    Ok(g.try_add(attention, &[packed]).and_then(|y| g.keep(y)))
}

/// Attention to another sequence, whose keys are its values, too.
fn cross_attention(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.rank() == 3) else { return Ok(None) };
    let batch = g.shape(x)[0];
    let Some(other) = g.pick(|ty| ty.rank() == 3 && ty.shape()[0] == batch) else { return Ok(None) };
    let (attention, width) = heads(g);
    let (Some(q), Some(k)) = (project(g, x, Some(width))?, project(g, other, Some(width))?) else {
        return Ok(None);
    };
    Ok(g.try_add(attention, &[q, k, k]).and_then(|y| g.keep(y)))
}

/// Rows of a table, by ids that may have passed through a view.
fn embedding(g: &mut Growth<'_>) -> Result<Option<()>> {
    let (batch, length, rows, width) = (g.few(4), g.few(7), 1 + g.extent(), g.extent());
    let mut ids = g.b.indices("ids", &[batch, length], rows)?;
    if g.choices.once_in(3) {
        ids = g.b.add(Reshape { shape: vec![length, batch] }, &[ids])?;
    }
    let table = g.parameter("table", &[rows, width], Init::Normal(1.0))?;
    Ok(g.try_add(Embedding {}, &[ids, table]).and_then(|y| g.keep(y)))
}

/// A chain of views, read by an op that needs storage or by whatever comes next.
fn views(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let shape = g.shape(x);
    let flat = g.b.add(Reshape { shape: vec![shape.iter().product()] }, &[x])?;
    let split = match shape[..] {
        [a, b, ref rest @ ..] => [&[a * b], rest].concat(),
        [a] if a % 2 == 0 => vec![2, a / 2],
        _ => vec![1, shape.iter().product()],
    };
    let other = g.b.add(Reshape { shape: split }, &[flat])?;
    if g.choices.once_in(3) {
        return Ok(g.try_add(Relu {}, &[other]).and_then(|y| g.keep(y)));
    }
    g.keep(other);
    Ok(if g.choices.once_in(4) { g.keep(flat) } else { Some(()) })
}

fn transpose(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.pick(|ty| ty.rank() >= 2) else { return Ok(None) };
    let mut perm: Vec<usize> = (0..g.shape(x).len()).collect();
    let last = perm.len() - 1;
    let with = g.choices.below(last);
    perm.swap(with, last);
    Ok(g.try_add(Transpose { perm }, &[x]).and_then(|y| g.keep(y)))
}

fn slice(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let shape = g.shape(x);
    let axis = g.choices.below(shape.len());
    let start = g.choices.below(shape[axis]);
    let end = start + g.few(shape[axis] - start);
    Ok(g.try_add(Slice { axis, start, end }, &[x]).and_then(|y| g.keep(y)))
}

fn pad(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let axis = g.choices.below(g.b.ty(x).rank());
    let (before, after) = (g.choices.below(3), g.choices.below(3));
    Ok(g.try_add(Pad { axis, before, after }, &[x]).and_then(|y| g.keep(y)))
}

/// Values that differ along one axis at most, the same one twice among them.
fn concat(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let axis = g.choices.below(g.b.ty(x).rank());
    let shape = g.shape(x);
    let alike = |ty: &crate::graph::Type| {
        let same = ty.shape().iter().zip(&shape).enumerate().all(|(i, (a, b))| i == axis || a == b);
        ty.rank() == shape.len() && same
    };
    let Some(other) = g.pick(alike) else { return Ok(None) };
    Ok(g.try_add(Concat { axis }, &[x, other]).and_then(|y| g.keep(y)))
}

fn constant(g: &mut Growth<'_>) -> Result<Option<()>> {
    let Some(x) = g.any() else { return Ok(None) };
    let constant = g.b.add(Constant { value: 0.25, shape: g.shape(x) }, &[])?;
    Ok(g.try_add(Add {}, &[x, constant]).and_then(|y| g.keep(y)))
}

/// A dead end: it runs, and nothing reads what it makes.
fn accuracy(g: &mut Growth<'_>) -> Result<Option<()>> {
    let (rows, classes) = (g.extent(), 1 + g.extent());
    let scores = g.b.input("scores", &[rows, classes])?;
    let labels = g.b.labels("labels", &[rows], classes)?;
    g.b.add(Accuracy {}, &[scores, labels])?;
    Ok(Some(()))
}

/// Sources that no node reads.
fn unread(g: &mut Growth<'_>) -> Result<Option<()>> {
    let extent = g.extent();
    match g.choices.below(3) {
        0 => g.b.input("unread", &[extent])?,
        1 => g.b.parameter("unread", crate::graph::Type::f32(&[extent])?, Init::Normal(1.0)),
        _ => g.b.buffer("unread", crate::graph::Type::f32(&[extent])?, Init::Constant(1.0)),
    };
    Ok(Some(()))
}
