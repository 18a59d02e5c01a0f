//! BERT with the masked-language-model head: Devlin et al., 2018. Names are as in Hugging Face's
//! `BertForMaskedLM`; the head's matrix is the word embedding.
//!
//! Every token is of segment 0 and none is padding. The loss runs over all positions: which of them are masked is a
//! matter of the data, not of the cost. The logits never exist as a whole, see `transformer.rs`.

use super::sequence::{Defaults, Sequence};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{Attention, Embedding, Init, Linear, Loss, Net, Table, Tensor};

const DEFAULTS: Defaults =
    Defaults { batch: 8, seq: 128, vocab: 30_522, dim: 768, layers: 12, heads: 12, dropout: 0.1 };
pub(super) const OPTIONS: &[OptionInfo] = &DEFAULTS.options_with_ff(3072);

const EPS: f32 = 1e-12;
const WEIGHT: Init = Init::Normal(0.02);

/// Published checkpoints have this many positions; shorter sequences use the first of them.
const MIN_POSITIONS: usize = 512;

pub(super) fn build<'g>(settings: &Settings, g: &'g Net) -> Result<Loss<'g>> {
    let s = Sequence::read(settings)?;
    let (input, labels) = s.batch(g);
    let (words, mut x) = g.scope("bert.embeddings", || embeddings(&s, input));
    for i in 0..s.layers {
        x = x.scope(format!("bert.encoder.layer.{i}"), |x| layer(x, &s, settings.count("ff")));
    }
    Ok(g.scope("cls.predictions", || {
        let bias = g.parameter("bias", [s.vocab], Init::Constant(0.0));
        let x = x.scope("transform", |x| dense(x, "dense", s.dim).gelu().layer_norm_eps("LayerNorm", EPS));
        x.linear_cross_entropy("", (words, bias), labels)
    }))
}

/// The table of words, and the sum of words, positions and the first segment for `input`.
fn embeddings<'g>(s: &Sequence, input: Tensor<'g>) -> (Embedding<'g>, Tensor<'g>) {
    let table = |name: &str, rows| input.net().embedding(name, Table::new(rows, s.dim).init(WEIGHT));
    let words = table("word_embeddings", s.vocab);
    let positions = table("position_embeddings", s.seq.max(MIN_POSITIONS));
    let segments = table("token_type_embeddings", 2);
    let x = words.lookup(input).add_positions(positions);
    let x = x.scope("token_type_embeddings", |x| x + segments.weight().slice(0, 0..1).reshape([s.dim]));
    let x = x.layer_norm_eps("LayerNorm", EPS);
    (words, x.scope("dropout", |x| x.dropout(s.dropout)))
}

fn layer<'g>(x: Tensor<'g>, s: &Sequence, ff: usize) -> Tensor<'g> {
    let x = x.scope("attention", |x| {
        let y = x.scope("self", |x| {
            let [query, key, value] = ["query", "key", "value"].map(|name| dense(x, name, s.dim));
            query.attention(key, value, Attention::heads(s.heads).dropout(s.dropout))
        });
        y.scope("output", |y| join(y, x, s))
    });
    let y = x.scope("intermediate", |x| dense(x, "dense", ff).gelu());
    y.scope("output", |y| join(y, x, s))
}

/// `LayerNorm(x + dropout(dense(y)))`, the end of both sub-layers.
fn join<'g>(y: Tensor<'g>, x: Tensor<'g>, s: &Sequence) -> Tensor<'g> {
    let y = dense(y, "dense", s.dim).scope("dropout", |y| y.dropout(s.dropout));
    (x + y).layer_norm_eps("LayerNorm", EPS)
}

fn dense<'g>(x: Tensor<'g>, name: &str, outputs: usize) -> Tensor<'g> {
    x.linear(name, Linear::new(outputs).init(WEIGHT).init_bias(Init::Constant(0.0)))
}
