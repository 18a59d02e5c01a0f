//! BERT with the masked-language-model head: Devlin et al., 2018. Names are those of Hugging Face's
//! `BertForMaskedLM`; the head's matrix is the word embedding.
//!
//! Every token is of segment 0 and none is padding. The loss runs over all positions: which of them are masked is a
//! matter of the data, not of the cost. The logits never exist as a whole, see `transformer.rs`.

use super::layers::{add_positions, dropout, embed, layer_norm, linear, table};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph, Init, Type};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::attention::Attention;
use crate::op::gelu::Gelu;
use crate::op::linear_cross_entropy::LinearCrossEntropy;
use crate::op::reshape::Reshape;
use crate::op::slice::Slice;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 8, "sequences per step"),
    OptionInfo::extent("seq", 128, "tokens per sequence"),
    OptionInfo::extent("vocab", 30_522, "different tokens"),
    OptionInfo::extent("dim", 768, "width of a token"),
    OptionInfo::layers("layers", 12, "encoder layers"),
    OptionInfo::extent("heads", 12, "attention heads"),
    OptionInfo::extent("ff", 3072, "width of the feed-forward layer"),
    OptionInfo::fraction("dropout", 0.1, "probability of dropping an element"),
];

const EPS: f32 = 1e-12;
const WEIGHT: Init = Init::Normal(0.02);
const BIAS: Option<Init> = Some(Init::Constant(0.0));

/// Published checkpoints have this many positions; shorter sequences use the first of them.
const MIN_POSITIONS: usize = 512;

pub(super) fn build(settings: &Settings) -> Result<Graph> {
    settings.check_heads()?;
    let (batch, seq, vocab) = (settings.count("batch"), settings.count("seq"), settings.count("vocab"));
    let (dim, p) = (settings.count("dim"), settings.fraction("dropout"));
    let mut b = Builder::new(settings.model());
    let input = b.indices("input", &[batch, seq], vocab)?;
    let labels = b.labels("labels", &[batch, seq], vocab)?;

    let (words, mut x) = b.scope("bert.embeddings", |b| -> Result<(ValueId, ValueId)> {
        let words = table(b, "word_embeddings", vocab, dim, WEIGHT)?;
        let positions = table(b, "position_embeddings", seq.max(MIN_POSITIONS), dim, WEIGHT)?;
        let segments = table(b, "token_type_embeddings", 2, dim, WEIGHT)?;
        let x = embed(b, "word_embeddings", input, words)?;
        let x = add_positions(b, "position_embeddings", x, positions)?;
        let x = b.scope("token_type_embeddings", |b| {
            let first = b.add(Slice { axis: 0, start: 0, end: 1 }, &[segments])?;
            let first = b.add(Reshape { shape: vec![dim] }, &[first])?;
            b.add(Add {}, &[x, first])
        })?;
        let x = layer_norm(b, "LayerNorm", x, EPS)?;
        Ok((words, dropout(b, "dropout", x, p)?))
    })?;
    for i in 0..settings.count("layers") {
        x = b.scope(format!("bert.encoder.layer.{i}"), |b| layer(b, settings, x))?;
    }
    let loss = b.scope("cls.predictions", |b| {
        let bias = b.parameter("bias", Type::f32(&[vocab])?, Init::Constant(0.0));
        let x = b.scope("transform", |b| {
            let y = dense(b, x, dim)?;
            let y = b.add(Gelu { tanh: false }, &[y])?;
            layer_norm(b, "LayerNorm", y, EPS)
        })?;
        b.add(LinearCrossEntropy {}, &[x, words, labels, bias])
    })?;
    b.output(loss);
    Ok(b.finish())
}

fn layer(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let (dim, p) = (settings.count("dim"), settings.fraction("dropout"));
    let x = b.scope("attention", |b| {
        let y = b.scope("self", |b| self_attention(b, settings, x))?;
        b.scope("output", |b| residual(b, y, x, dim, p))
    })?;
    let y = b.scope("intermediate", |b| {
        let y = dense(b, x, settings.count("ff"))?;
        b.add(Gelu { tanh: false }, &[y])
    })?;
    b.scope("output", |b| residual(b, y, x, dim, p))
}

fn self_attention(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let dim = settings.count("dim");
    let query = linear(b, "query", x, dim, WEIGHT, BIAS)?;
    let key = linear(b, "key", x, dim, WEIGHT, BIAS)?;
    let value = linear(b, "value", x, dim, WEIGHT, BIAS)?;
    let attention = Attention {
        heads: settings.count("heads"),
        causal: false,
        dropout: settings.fraction("dropout"),
        stream: b.random_stream(),
    };
    b.add(attention, &[query, key, value])
}

/// `LayerNorm(x + dropout(dense(y)))`, the end of both sub-layers.
fn residual(b: &mut Builder, y: ValueId, x: ValueId, dim: usize, p: f32) -> Result<ValueId> {
    let y = dense(b, y, dim)?;
    let y = dropout(b, "dropout", y, p)?;
    let sum = b.add(Add {}, &[x, y])?;
    layer_norm(b, "LayerNorm", sum, EPS)
}

fn dense(b: &mut Builder, x: ValueId, outputs: usize) -> Result<ValueId> {
    linear(b, "dense", x, outputs, WEIGHT, BIAS)
}
