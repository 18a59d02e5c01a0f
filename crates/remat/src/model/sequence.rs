//! What the models of sequences share: their options and the batch.

use super::settings::{OptionInfo, Settings};
use crate::error::Result;
use crate::nn::{Net, Tensor};

/// Defaults of the options.
pub(super) struct Defaults {
    pub(super) batch: usize,
    pub(super) seq: usize,
    pub(super) vocab: usize,
    pub(super) dim: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) dropout: f32,
}

impl Defaults {
    /// The table of options of a model whose feed-forward layer is four times as wide as a token.
    pub(super) const fn options(&self) -> [OptionInfo; 7] {
        [
            OptionInfo::extent("batch", self.batch, "sequences per step"),
            OptionInfo::extent("seq", self.seq, "tokens per sequence"),
            OptionInfo::extent("vocab", self.vocab, "different tokens"),
            OptionInfo::extent(
                "dim",
                self.dim,
                "width of a token; the feed-forward layer has four times as many",
            ),
            OptionInfo::layers("layers", self.layers, "layers of attention and feed-forward"),
            OptionInfo::extent("heads", self.heads, "attention heads"),
            OptionInfo::fraction("dropout", self.dropout, "probability of dropping an element"),
        ]
    }

    /// The table of options of a model whose feed-forward layer has a width of its own.
    pub(super) const fn options_with_ff(&self, ff: usize) -> [OptionInfo; 8] {
        let [batch, seq, vocab, _, layers, heads, dropout] = self.options();
        let dim = OptionInfo::extent("dim", self.dim, "width of a token");
        let ff = OptionInfo::extent("ff", ff, "width of the feed-forward layer");
        [batch, seq, vocab, dim, layers, heads, ff, dropout]
    }
}

/// The options' values.
pub(super) struct Sequence {
    batch: usize,
    pub(super) seq: usize,
    pub(super) vocab: usize,
    pub(super) dim: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) dropout: f32,
}

impl Sequence {
    /// Reads the settings; the heads must divide the width.
    pub(super) fn read(settings: &Settings) -> Result<Sequence> {
        let [dim, heads] = ["dim", "heads"].map(|name| settings.count(name));
        if !dim.is_multiple_of(heads) {
            let message = format!("must divide `dim`, but {dim} is not a multiple of {heads}");
            return Err(settings.error("heads", message));
        }
        Ok(Sequence {
            batch: settings.count("batch"),
            seq: settings.count("seq"),
            vocab: settings.count("vocab"),
            dim,
            layers: settings.count("layers"),
            heads,
            dropout: settings.fraction("dropout"),
        })
    }

    /// The tokens and the labels of a batch: one of each for every position.
    pub(super) fn batch<'g>(&self, g: &'g Net) -> (Tensor<'g>, Tensor<'g>) {
        let shape = [self.batch, self.seq];
        (g.tokens("input", shape, self.vocab), g.labels("labels", shape, self.vocab))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    const DEFAULTS: Defaults =
        Defaults { batch: 2, seq: 3, vocab: 5, dim: 12, layers: 2, heads: 4, dropout: 0.1 };

    #[test]
    fn heads_divide_the_width() {
        let read = |heads: usize| {
            let options = Options::new().with("heads", heads);
            Sequence::read(&Settings::check("m", &DEFAULTS.options_with_ff(7), &options)?)
        };
        assert_eq!(read(3).map(|s| s.heads).expect("12 is a multiple of 3"), 3);
        let message = read(5).err().expect("12 is no multiple of 5").to_string();
        assert_eq!(message, "m: option `heads` must divide `dim`, but 12 is not a multiple of 5");
    }

    #[test]
    fn a_feed_forward_width_is_an_option_before_the_last() {
        let names = |table: &[OptionInfo]| table.iter().map(|o| o.name).collect::<Vec<_>>();
        assert_eq!(
            names(&DEFAULTS.options()),
            ["batch", "seq", "vocab", "dim", "layers", "heads", "dropout"]
        );
        let with_ff = ["batch", "seq", "vocab", "dim", "layers", "heads", "ff", "dropout"];
        assert_eq!(names(&DEFAULTS.options_with_ff(7)), with_ff);
    }
}
