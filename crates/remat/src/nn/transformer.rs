//! Layers of transformers: the encoder layer of PyTorch and a decoder layer in today's style.

use super::net::refusal;
use super::{Attention, Init, Linear, Tensor};

/// Options of [`Tensor::encoder_layer`], as in `nn.TransformerEncoderLayer`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EncoderLayer {
    heads: usize,
    feed_forward: usize,
    dropout: f32,
    causal: bool,
}

impl EncoderLayer {
    /// This many attention heads and this width of the feed-forward layer; nothing is dropped.
    pub fn new(heads: usize, feed_forward: usize) -> EncoderLayer {
        EncoderLayer { heads, feed_forward, dropout: 0.0, causal: false }
    }

    /// Drops with this probability in attention, in the feed-forward layer and where a branch ends.
    pub fn dropout(self, p: f32) -> EncoderLayer {
        EncoderLayer { dropout: p, ..self }
    }

    /// A position sees only itself and those before it.
    pub fn causal(self) -> EncoderLayer {
        EncoderLayer { causal: true, ..self }
    }
}

/// Options of [`Tensor::decoder_layer`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DecoderLayer {
    heads: usize,
    feed_forward: usize,
    dropout: f32,
    depth: usize,
}

/// Standard deviation of GPT-2's weights.
const DEVIATION: f32 = 0.02;

impl DecoderLayer {
    /// This many attention heads and this width of the feed-forward layer; nothing is dropped.
    pub fn new(heads: usize, feed_forward: usize) -> DecoderLayer {
        DecoderLayer { heads, feed_forward, dropout: 0.0, depth: 1 }
    }

    /// Drops elements of both branches with this probability.
    pub fn dropout(self, p: f32) -> DecoderLayer {
        DecoderLayer { dropout: p, ..self }
    }

    /// How many such layers the model has: weights that join the residual stream start smaller by `sqrt(2 * depth)`, so
    /// that its variance stays near one.
    pub fn depth(self, depth: usize) -> DecoderLayer {
        DecoderLayer { depth, ..self }
    }
}

impl<'g> Tensor<'g> {
    /// Self-attention and a feed-forward layer with ReLU, each after a layer norm and added to its input:
    /// `nn.TransformerEncoderLayer(norm_first=True, batch_first=True)`, with its names and initialisation.
    #[track_caller]
    pub fn encoder_layer(self, name: impl AsRef<str>, layer: EncoderLayer) -> Tensor<'g> {
        let (p, width) = (layer.dropout, self.width());
        let options = Attention::heads(layer.heads).dropout(p);
        let options = if layer.causal { options.causal() } else { options };
        self.block(name, |x| {
            let y = x.layer_norm("norm1").self_attention("self_attn", options);
            let x = x + y.scope("dropout1", |y| y.dropout(p));
            let y =
                x.layer_norm("norm2").linear("linear1", layer.feed_forward).scope("linear1", Tensor::relu);
            let y = y.scope("dropout", |y| y.dropout(p)).linear("linear2", width);
            x + y.scope("dropout2", |y| y.dropout(p))
        })
    }

    /// Causal self-attention and a feed-forward layer with GELU, each after an RMS norm and added to its input. Queries
    /// and keys are normalised per head; there are no biases. Initialisation follows GPT-2.
    #[track_caller]
    pub fn decoder_layer(self, name: impl AsRef<str>, layer: DecoderLayer) -> Tensor<'g> {
        let (p, width) = (layer.dropout, self.width());
        let joining = Init::Normal(DEVIATION / (2.0 * layer.depth as f32).sqrt());
        let into_stream = Linear::new(width).no_bias().init(joining);
        self.block(name, |x| {
            let y = x
                .rms_norm("ln_1")
                .scope("attn", |y| y.normalised_attention(layer.heads).linear("o_proj", into_stream));
            let x = x + y.scope("dropout", |y| y.dropout(p));
            let y = x.rms_norm("ln_2").scope("mlp", |y| {
                y.linear("c_fc", projection(layer.feed_forward)).gelu().linear("c_proj", into_stream)
            });
            x + y.scope("dropout", |y| y.dropout(p))
        })
    }

    /// Causal attention with RMS norm over each head's queries and keys.
    fn normalised_attention(self, heads: usize) -> Tensor<'g> {
        let packed @ [batch, time, width] = self.dims();
        if !width.is_multiple_of(heads) {
            let message = format!("the width {width} does not divide into {heads} heads");
            return self.layer("", |b, _| Err(refusal(b, "attention", message)));
        }
        let per_head = [batch, time, heads, width / heads];
        let normalised = |name: &str, norm: &str| {
            let y = self.linear(name, projection(width)).scope(norm, |y| y.reshape(per_head));
            y.rms_norm(norm).scope(norm, |y| y.reshape(packed))
        };
        let query = normalised("q_proj", "q_norm");
        let key = normalised("k_proj", "k_norm");
        let value = self.linear("v_proj", projection(width));
        query.attention(key, value, Attention::heads(heads).causal())
    }
}

/// A linear layer without bias, with GPT-2's initialisation.
fn projection(outputs: usize) -> Linear {
    Linear::new(outputs).no_bias().init(Init::Normal(DEVIATION))
}
