//! Decoder language model: RMS norm before every sub-layer, normalised queries and keys, GELU, learned positions, no
//! biases, and the token table as the head's matrix.
//!
//! Labels are an input of their own: the host shifts the text by one. Initialisation follows GPT-2: deviation 0.02,
//! divided by `sqrt(2 * layers)` where a branch joins the residual stream, so that its variance stays near one.
//! The logits never exist as a whole, see `transformer.rs`.

use super::layers::{add_positions, dropout, embed, linear, rms_norm, table};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::graph::{Builder, Graph, Init};
use crate::ids::ValueId;
use crate::op::add::Add;
use crate::op::attention::Attention;
use crate::op::gelu::Gelu;
use crate::op::linear_cross_entropy::LinearCrossEntropy;
use crate::op::reshape::Reshape;

pub(super) const OPTIONS: &[OptionInfo] = &[
    OptionInfo::extent("batch", 1, "sequences per step"),
    OptionInfo::extent("seq", 2048, "tokens per sequence"),
    OptionInfo::extent("vocab", 50_257, "different tokens"),
    OptionInfo::extent("dim", 1024, "width of a token; the feed-forward layer has four times as many"),
    OptionInfo::layers("layers", 12, "decoder layers"),
    OptionInfo::extent("heads", 8, "attention heads"),
    OptionInfo::fraction(
        "dropout",
        0.0,
        "probability of dropping an element of a branch or of the embedding",
    ),
];

const DEVIATION: f32 = 0.02;
const WEIGHT: Init = Init::Normal(DEVIATION);

pub(super) fn build(settings: &Settings) -> Result<Graph> {
    settings.check_heads()?;
    let (batch, seq, vocab) = (settings.count("batch"), settings.count("seq"), settings.count("vocab"));
    let (dim, p) = (settings.count("dim"), settings.fraction("dropout"));
    let mut b = Builder::new(settings.model());
    let input = b.indices("input", &[batch, seq], vocab)?;
    let labels = b.labels("labels", &[batch, seq], vocab)?;

    let words = table(&mut b, "wte", vocab, dim, WEIGHT)?;
    let positions = table(&mut b, "wpe", seq, dim, WEIGHT)?;
    let mut x = embed(&mut b, "wte", input, words)?;
    x = add_positions(&mut b, "wpe", x, positions)?;
    x = dropout(&mut b, "dropout", x, p)?;
    for i in 0..settings.count("layers") {
        x = b.scope(format!("h.{i}"), |b| layer(b, settings, x))?;
    }
    x = rms_norm(&mut b, "ln_f", x)?;
    let loss = b.scope("head", |b| b.add(LinearCrossEntropy {}, &[x, words, labels]))?;
    b.output(loss);
    Ok(b.finish())
}

fn layer(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let (dim, p) = (settings.count("dim"), settings.fraction("dropout"));
    let joining = Init::Normal(DEVIATION / (2.0 * settings.count("layers") as f32).sqrt());
    let y = rms_norm(b, "ln_1", x)?;
    let y = b.scope("attn", |b| {
        let y = self_attention(b, settings, y)?;
        linear(b, "o_proj", y, dim, joining, None)
    })?;
    let y = dropout(b, "dropout", y, p)?;
    let x = b.add(Add {}, &[x, y])?;

    let y = rms_norm(b, "ln_2", x)?;
    let y = b.scope("mlp", |b| {
        let y = linear(b, "c_fc", y, 4 * dim, WEIGHT, None)?;
        let y = b.add(Gelu { tanh: false }, &[y])?;
        linear(b, "c_proj", y, dim, joining, None)
    })?;
    let y = dropout(b, "dropout", y, p)?;
    b.add(Add {}, &[x, y])
}

/// Causal attention with RMS norm over each head's queries and keys.
fn self_attention(b: &mut Builder, settings: &Settings, x: ValueId) -> Result<ValueId> {
    let (dim, heads) = (settings.count("dim"), settings.count("heads"));
    let packed = b.ty(x).shape().to_vec();
    let per_head = [&packed[..2], &[heads, dim / heads]].concat();
    let normalised = |b: &mut Builder, projection: &str, norm: &str| -> Result<ValueId> {
        let y = linear(b, projection, x, dim, WEIGHT, None)?;
        let y = b.scope(norm, |b| b.add(Reshape { shape: per_head.clone() }, &[y]))?;
        let y = rms_norm(b, norm, y)?;
        b.scope(norm, |b| b.add(Reshape { shape: packed.clone() }, &[y]))
    };
    let query = normalised(b, "q_proj", "q_norm")?;
    let key = normalised(b, "k_proj", "k_norm")?;
    let value = linear(b, "v_proj", x, dim, WEIGHT, None)?;
    let attention = Attention { heads, causal: true, dropout: 0.0, stream: b.random_stream() };
    b.add(attention, &[query, key, value])
}
