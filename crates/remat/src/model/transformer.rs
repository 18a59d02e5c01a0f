//! Encoder that predicts one token per position: `nn.TransformerEncoder` with pre-norm layers and ReLU, learned
//! positions, and a head of its own.
//!
//! The loss is taken by a linear layer fused with the cross-entropy, so the logits (`B * T * vocab` floats, by far
//! the largest tensor otherwise) never exist as a whole.

use super::layers::{
    add_positions, default_init, default_linear, dropout, embed, layer_norm, linear, relu, table,
};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph, Init, Type};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::attention::Attention;
use crate::op::linear::Linear;
use crate::op::linear_cross_entropy::LinearCrossEntropy;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 8, "sequences per step"),
    OptionInfo::extent("seq", 128, "tokens per sequence"),
    OptionInfo::extent("vocab", 30_000, "different tokens"),
    OptionInfo::extent("dim", 512, "width of a token"),
    OptionInfo::layers("layers", 6, "encoder layers"),
    OptionInfo::extent("heads", 8, "attention heads"),
    OptionInfo::extent("ff", 2048, "width of the feed-forward layer"),
    OptionInfo::fraction("dropout", 0.1, "probability of dropping an element"),
];

/// `nn.LayerNorm`'s default.
const EPS: f32 = 1e-5;

pub(super) fn build(settings: &Settings) -> Result<Graph> {
    settings.check_heads()?;
    let (batch, seq, vocab) = (settings.count("batch"), settings.count("seq"), settings.count("vocab"));
    let (dim, p) = (settings.count("dim"), settings.fraction("dropout"));
    let mut b = Builder::new(settings.model());
    let input = b.indices("input", &[batch, seq], vocab)?;
    let labels = b.labels("labels", &[batch, seq], vocab)?;

    let words = table(&mut b, "embedding", vocab, dim, Init::Normal(1.0))?;
    let positions = table(&mut b, "position", seq, dim, Init::Normal(1.0))?;
    let mut x = embed(&mut b, "embedding", input, words)?;
    x = add_positions(&mut b, "position", x, positions)?;
    x = dropout(&mut b, "dropout", x, p)?;
    for i in 0..settings.count("layers") {
        x = b.scope(format!("encoder.layers.{i}"), |b| layer(b, settings, x))?;
    }
    x = layer_norm(&mut b, "encoder.norm", x, EPS)?;
    let loss = b.scope("head", |b| {
        let weight = b.parameter("weight", Type::f32(&[vocab, dim])?, default_init(dim));
        let bias = b.parameter("bias", Type::f32(&[vocab])?, default_init(dim));
        b.add(LinearCrossEntropy {}, &[x, weight, labels, bias])
    })?;
    b.output(loss);
    Ok(b.finish())
}

fn layer(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let p = settings.fraction("dropout");
    let y = layer_norm(b, "norm1", x, EPS)?;
    let y = b.scope("self_attn", |b| self_attention(b, settings, y))?;
    let y = dropout(b, "dropout1", y, p)?;
    let x = b.add(Add {}, &[x, y])?;

    let y = layer_norm(b, "norm2", x, EPS)?;
    let y = default_linear(b, "linear1", y, settings.count("ff"))?;
    let y = relu(b, "linear1", y)?;
    let y = dropout(b, "dropout", y, p)?;
    let y = default_linear(b, "linear2", y, settings.count("dim"))?;
    let y = dropout(b, "dropout2", y, p)?;
    b.add(Add {}, &[x, y])
}

/// `nn.MultiheadAttention`: one projection for queries, keys and values, Glorot-uniform; biases start at zero.
fn self_attention(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let dim = settings.count("dim");
    let glorot = Init::Uniform((6.0 / (4 * dim) as f64).sqrt() as f32);
    let weight = b.parameter("in_proj_weight", Type::f32(&[3 * dim, dim])?, glorot);
    let bias = b.parameter("in_proj_bias", Type::f32(&[3 * dim])?, Init::Constant(0.0));
    let qkv = b.add(Linear {}, &[x, weight, bias])?;
    let attention = Attention {
        heads: settings.count("heads"),
        causal: false,
        dropout: settings.fraction("dropout"),
        stream: b.random_stream(),
    };
    let y = b.add(attention, &[qkv])?;
    linear(b, "out_proj", y, dim, default_init(dim), Some(Init::Constant(0.0)))
}
