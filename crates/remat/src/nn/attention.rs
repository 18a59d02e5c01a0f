//! Multi-head attention.

use super::init::{fan_in_uniform, glorot_uniform};
use super::{Linear, Tensor};
use crate::graph::{Init, Type};
use crate::op::attention::Attention as AttentionOp;
use crate::op::linear::Linear as LinearOp;

/// Options of attention.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attention {
    heads: usize,
    causal: bool,
    dropout: f32,
}

impl Attention {
    /// This many heads, which share the width evenly. Every position sees every other, and nothing is dropped.
    pub fn heads(heads: usize) -> Attention {
        Attention { heads, causal: false, dropout: 0.0 }
    }

    /// A position sees only itself and those before it: `is_causal=True`.
    pub fn causal(self) -> Attention {
        Attention { causal: true, ..self }
    }

    /// Drops attention probabilities with this probability: `dropout_p`.
    pub fn dropout(self, p: f32) -> Attention {
        Attention { dropout: p, ..self }
    }

    fn op(self, stream: u64) -> AttentionOp {
        AttentionOp { heads: self.heads, causal: self.causal, dropout: self.dropout, stream }
    }
}

impl<'g> Tensor<'g> {
    /// Attention of queries `self: [batch, time, width]` to keys and values `[batch, time of keys, width]`:
    /// `functional.scaled_dot_product_attention` for all heads. The matrix of scores never exists as a whole.
    #[track_caller]
    pub fn attention(self, keys: Tensor<'g>, values: Tensor<'g>, options: Attention) -> Tensor<'g> {
        self.net().node("", &[self, keys, values], |b, x| b.add(options.op(b.random_stream()), x))
    }

    /// Attention of queries, keys and values that lie side by side in one tensor `[batch, time, 3 * width]`.
    #[track_caller]
    pub fn packed_attention(self, options: Attention) -> Tensor<'g> {
        self.layer("", |b, x| b.add(options.op(b.random_stream()), &[x]))
    }

    /// Self-attention with projections: `nn.MultiheadAttention(batch_first=True)` of `x, x, x`, with its names and
    /// initialisation.
    #[track_caller]
    pub fn self_attention(self, name: impl AsRef<str>, options: Attention) -> Tensor<'g> {
        let width = self.width();
        self.block(name, |x| {
            let qkv = x.layer("", |b, x| {
                let rows = width.saturating_mul(3);
                let ty = Type::f32(&[rows, width])?;
                let weight = b.parameter("in_proj_weight", ty, glorot_uniform(width, rows));
                let bias = b.parameter("in_proj_bias", Type::f32(&[rows])?, Init::Constant(0.0));
                b.add(LinearOp {}, &[x, weight, bias])
            });
            let out = Linear::new(width).init(fan_in_uniform(&[width])).init_bias(Init::Constant(0.0));
            qkv.packed_attention(options).linear("out_proj", out)
        })
    }
}
