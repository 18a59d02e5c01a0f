//! Decoder language model: RMS norm before every sub-layer, normalised queries and keys, GELU, learned positions, no
//! biases, and the token table as the head's matrix. The feed-forward layer has four times the width.
//!
//! Labels are an input of their own: the host shifts the text by one. Initialisation follows GPT-2.
//! The logits never exist as a whole, see `transformer.rs`.

use super::sequence::{Defaults, Sequence};
use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{DecoderLayer, Init, Loss, Net, Table};

const DEFAULTS: Defaults =
    Defaults { batch: 1, seq: 2048, vocab: 50_257, dim: 1024, layers: 12, heads: 8, dropout: 0.0 };
pub(super) const OPTIONS: &[OptionInfo] = &DEFAULTS.options();

pub(super) fn build<'g>(settings: &Settings, g: &'g Net) -> Result<Loss<'g>> {
    let s = Sequence::read(settings)?;
    let (input, labels) = s.batch(g);
    let table = |rows| Table::new(rows, s.dim).init(Init::Normal(0.02));
    let words = g.embedding("wte", table(s.vocab));
    let positions = g.embedding("wpe", table(s.seq));

    let mut x = words.lookup(input).add_positions(positions);
    x = x.scope("dropout", |x| x.dropout(s.dropout));
    let layer = DecoderLayer::new(s.heads, 4 * s.dim).dropout(s.dropout).depth(s.layers);
    for i in 0..s.layers {
        x = x.decoder_layer(format!("h.{i}"), layer);
    }
    Ok(x.rms_norm("ln_f").linear_cross_entropy("head", words, labels))
}
