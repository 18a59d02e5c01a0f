//! Encoder that predicts one token per position: `nn.TransformerEncoder` with pre-norm layers and ReLU, learned
//! positions, and a head of its own.
//!
//! The loss is taken by a linear layer fused with the cross-entropy, so the logits (`B * T * vocab` floats, by far
//! the largest tensor otherwise) never exist as a whole.

use super::sequence::{Defaults, Sequence};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{EncoderLayer, Loss, Net};

const DEFAULTS: Defaults =
    Defaults { batch: 8, seq: 128, vocab: 30_000, dim: 512, layers: 6, heads: 8, dropout: 0.1 };
pub(super) const OPTIONS: &[OptionInfo] = &DEFAULTS.options_with_ff(2048);

pub(super) fn build<'g>(settings: &Settings, g: &'g Net) -> Result<Loss<'g>> {
    let s = Sequence::read(settings)?;
    let (input, labels) = s.batch(g);
    let words = g.embedding("embedding", [s.vocab, s.dim]);
    let positions = g.embedding("position", [s.seq, s.dim]);

    let mut x = words.lookup(input).add_positions(positions);
    x = x.scope("dropout", |x| x.dropout(s.dropout));
    let layer = EncoderLayer::new(s.heads, settings.count("ff")).dropout(s.dropout);
    for i in 0..s.layers {
        x = x.encoder_layer(format!("encoder.layers.{i}"), layer);
    }
    Ok(x.layer_norm("encoder.norm").linear_cross_entropy("head", s.vocab, labels))
}
