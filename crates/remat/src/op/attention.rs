//! Multi-head attention without the matrix of scores.

use super::{
    Calibration, Case, Cost, Example, GradArgs, InEvaluation, Io, NaiveIo, OpDef, expect_rank, expect_same,
    expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::attention::{
    AttentionDropout, AttentionSaved, AttentionShape, Rows, RowsMut, attention, attention_grad,
    attention_grad_workspace,
};
use remat_kernels::rng::{Key, uniform_u16};
use remat_kernels::{dropout, naive};

/// `softmax(q kᵀ / sqrt(D)) v` for every head of width `D = C / heads`.
///
/// Inputs are one packed projection `[B, T, 3 C]` or three tensors `[B, T, C]`, `[B, S, C]`, `[B, S, C]`. Outputs are
/// `[B, T, C]` and, for the backward, the logarithm of each softmax's denominator `[B, heads, T]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// Query `i` sees only the keys `j <= i`.
    pub causal: bool,
    /// Probability of dropping an attention probability.
    pub dropout: f32,
    /// The random numbers of the dropout.
    pub stream: u64,
}

impl Attention {
    /// The sizes for inputs `qkv` or `q, k, v`, without the random key.
    fn sizes(&self, x: &[&Type]) -> Result<AttentionShape, String> {
        for (name, ty) in ["q", "k", "v"].iter().zip(x) {
            expect_rank(if x.len() == 1 { "qkv" } else { name }, ty, 3)?;
        }
        let (parts, k) = match x {
            [_] => (3, x[0]),
            [_, k, v] => {
                expect_same("k and v", k, v)?;
                (1, *k)
            }
            _ => return Err(format!("takes a packed qkv or q, k and v, got {} inputs", x.len())),
        };
        let (&[batch, queries, width], &[batch_of_k, keys, width_of_k]) = (x[0].shape(), k.shape()) else {
            unreachable!("rank 3 was just checked")
        };
        if batch != batch_of_k || width != width_of_k {
            return Err(format!("q and k must have the same sequences and width, got {} and {k}", x[0]));
        }
        if x[0].numel() == 0 || k.numel() == 0 {
            return Err(format!("takes no empty tensors, got {} and {k}", x[0]));
        }
        if self.heads == 0 || width % parts != 0 || width / parts % self.heads != 0 {
            let part = if parts == 3 { "a third of " } else { "" };
            return Err(format!("{part}the width {width} does not divide into {} heads", self.heads));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(format!("the dropout probability must be in 0..1, got {}", self.dropout));
        }
        let head_dim = width / parts / self.heads;
        let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
        let (heads, causal) = (self.heads, self.causal);
        Ok(AttentionShape { batch, heads, queries, keys, head_dim, causal, scale, dropout: None })
    }

    /// The sizes in a kernel call, with the key of this step.
    fn shape(&self, x: &[&Type], key: Key) -> AttentionShape {
        let sizes = self.sizes(x).expect("the types were checked when the node was made");
        let dropout = (self.dropout > 0.0).then_some(AttentionDropout { probability: self.dropout, key });
        AttentionShape { dropout, ..sizes }
    }
}

/// Width of a token: all heads side by side.
fn width(shape: &AttentionShape) -> usize {
    shape.heads * shape.head_dim
}

/// The first inputs of a node as rows of `q`, `k` and `v`.
fn rows<'a>(io: &Io<'a>, shape: &AttentionShape, packed: bool) -> [Rows<'a>; 3] {
    let width = width(shape);
    std::array::from_fn(|part| match packed {
        true => Rows::new(io.f32(0), 3 * width, part * width),
        false => Rows::new(io.f32(part), width, 0),
    })
}

/// Two products of depth `D` for every visible score, times `products / 2`.
fn cost(shape: &AttentionShape, products: usize, x: &[&Type], y: &[&Type]) -> Cost {
    let scores = Cost::of_products(x, y, &[shape.batch, shape.queries, shape.keys, width(shape), products]);
    Cost { flops: if shape.causal { scores.flops / 2 } else { scores.flops }, ..scores }
}

/// Whose speed is measured.
const CALIBRATED: Attention = Attention { heads: 8, causal: false, dropout: 0.0, stream: 0 };

impl OpDef for Attention {
    fn name() -> &'static str {
        "attention"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        let shape = self.sizes(x)?;
        let out = [shape.batch, shape.queries, width(&shape)];
        let lse = [shape.batch, shape.heads, shape.queries];
        Ok(vec![Type::f32(&out).map_err(|e| e.to_string())?, Type::f32(&lse).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let mut inputs = args.x.to_vec();
        inputs.extend([args.y[0], args.y[1], args.dy0()]);
        let gradients = b.add_all(AttentionGrad { forward: *self }, &inputs)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        self.sizes(x).map_or(Cost::default(), |shape| cost(&shape, 2, x, y))
    }

    fn calibration() -> Option<Calibration> {
        let case = Case::floats(CALIBRATED, &[&[2, 256, 3 * 512]]);
        Some(Calibration::Arithmetic(vec![case]))
    }

    fn in_evaluation(&self) -> InEvaluation {
        InEvaluation::Instead { op: Attention { dropout: 0.0, ..*self }.into(), statistics: &[] }
    }

    fn run(&self, io: &mut Io<'_>) {
        let types: Vec<&Type> = (0..io.n_inputs()).map(|i| io.x_type(i)).collect();
        let shape = self.shape(&types, io.run().key(self.stream));
        let [q, k, v] = rows(io, &shape, types.len() == 1);
        attention(&shape, q, k, v, RowsMut::new(io.out(0), width(&shape)), io.out(1));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = self.shape(io.x_types, io.run.key(self.stream));
        let [q, k, v] = &unpacked(io, &shape, io.x.len() == 1);
        let out = naive::attention::attention(&shape, q, k, v, &dropout_factors(&shape));
        vec![out, naive::attention::probabilities(&shape, q, k).1]
    }

    fn examples() -> Vec<Example> {
        let plain = Attention { heads: 2, causal: false, dropout: 0.0, stream: 3 };
        let full = Attention { heads: 3, causal: true, dropout: 0.25, stream: 5 };
        vec![
            Example::normal(plain, &[&[2, 3, 12]]),
            Example::normal(plain, &[&[2, 3, 4], &[2, 5, 4], &[2, 5, 4]]),
            Example::normal(full, &[&[1, 5, 18]]),
            Example::normal(full, &[&[2, 4, 3], &[2, 4, 3], &[2, 4, 3]]),
        ]
    }
}

/// The gradients of an attention: of `qkv`, or of `q`, `k` and `v`. Inputs are the inputs of the forward, its two outputs
/// and the gradient of the first.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AttentionGrad {
    /// The attention.
    pub forward: Attention,
}

impl OpDef for AttentionGrad {
    fn name() -> &'static str {
        "attention_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() != 4 && x.len() != 6 {
            return Err(format!(
                "takes the forward's inputs, out, lse and dout: 4 or 6 inputs, got {}",
                x.len()
            ));
        }
        let (inputs, saved) = x.split_at(x.len() - 3);
        let forward = self.forward.infer(inputs)?;
        expect_shape("out", saved[0], forward[0].shape())?;
        expect_shape("lse", saved[1], forward[1].shape())?;
        expect_shape("dout", saved[2], forward[0].shape())?;
        Ok(inputs.iter().map(|&ty| ty.clone()).collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        self.forward.sizes(&x[..x.len() - 3]).map_or(Cost::default(), |shape| cost(&shape, 5, x, y))
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        let sizes = self.forward.sizes(&x[..x.len() - 3]);
        sizes.map_or(0, |shape| 4 * attention_grad_workspace(&shape) as u64)
    }

    fn calibration() -> Option<Calibration> {
        let (qkv, o, lse) = ([2, 256, 3 * 512], [2, 256, 512], [2, 8, 256]);
        let case = Case::floats(AttentionGrad { forward: CALIBRATED }, &[&qkv, &o, &lse, &o]);
        Some(Calibration::Arithmetic(vec![case]))
    }

    fn run(&self, io: &mut Io<'_>) {
        let n = io.n_inputs() - 3;
        let types: Vec<&Type> = (0..n).map(|i| io.x_type(i)).collect();
        let shape = self.forward.shape(&types, io.run().key(self.forward.stream));
        let width = width(&shape);
        let [q, k, v] = rows(io, &shape, n == 1);
        let saved = AttentionSaved { q, k, v, out: Rows::new(io.f32(n), width, 0), lse: io.f32(n + 1) };
        let dout = Rows::new(io.f32(n + 2), width, 0);
        let [dq, dk, dv] = match n {
            1 => RowsMut::packed(io.out(0), width),
            _ => std::array::from_fn(|part| RowsMut::new(io.out(part), width)),
        };
        attention_grad(&shape, &saved, dout, dq, dk, dv, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let n = io.x.len() - 3;
        let shape = self.forward.shape(&io.x_types[..n], io.run.key(self.forward.stream));
        let [q, k, v] = &unpacked(io, &shape, n == 1);
        let saved = naive::attention::Saved { q, k, v, out: io.x[n], lse: io.x[n + 1] };
        let grads = naive::attention::attention_grad(&shape, &saved, &dropout_factors(&shape), io.x[n + 2]);
        match n {
            1 => {
                let tokens = shape.batch * shape.queries;
                let token =
                    |part: &[f64], t: usize| part[t * width(&shape)..(t + 1) * width(&shape)].to_vec();
                vec![(0..tokens).flat_map(|t| grads.iter().flat_map(move |part| token(part, t))).collect()]
            }
            _ => grads.into(),
        }
    }

    fn examples() -> Vec<Example> {
        let plain = Attention { heads: 2, causal: false, dropout: 0.0, stream: 3 };
        let full = Attention { heads: 3, causal: true, dropout: 0.25, stream: 5 };
        vec![
            Example::normal(
                AttentionGrad { forward: plain },
                &[&[2, 3, 12], &[2, 3, 4], &[2, 2, 3], &[2, 3, 4]],
            ),
            Example::normal(
                AttentionGrad { forward: full },
                &[&[1, 4, 3], &[1, 5, 3], &[1, 5, 3], &[1, 4, 3], &[1, 3, 4], &[1, 4, 3]],
            ),
        ]
    }
}

/// `q`, `k` and `v` as tensors of their own.
fn unpacked(io: &NaiveIo<'_>, shape: &AttentionShape, packed: bool) -> [Vec<f64>; 3] {
    let width = width(shape);
    std::array::from_fn(|part| match packed {
        true => io.x[0].chunks(3 * width).flat_map(|row| row[part * width..][..width].to_vec()).collect(),
        false => io.x[part].to_vec(),
    })
}

/// The factor of every probability, drawn one by one.
fn dropout_factors(shape: &AttentionShape) -> Vec<f64> {
    let n_scores = shape.batch * shape.heads * shape.queries * shape.keys;
    let Some(AttentionDropout { probability, key }) = shape.dropout else { return vec![1.0; n_scores] };
    let kept = |index: usize| u32::from(uniform_u16(key, index as u64)) >= dropout::threshold(probability);
    let factor = f64::from(dropout::factor(probability));
    (0..n_scores).map(|index| if kept(index) { factor } else { 0.0 }).collect()
}
