//! Attention with the whole matrix of probabilities.

use crate::settings::attention::AttentionShape;

/// The probabilities before dropout, `[B, H, T, S]`, and the logarithms of their denominators, `[B, H, T]`.
pub fn probabilities(shape: &AttentionShape, q: &[f64], k: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut all, mut lse) = (Vec::new(), Vec::new());
    for_each_query(shape, |b, h, i| {
        let score = |j: usize| {
            let dot: f64 =
                (0..shape.head_dim).map(|d| q[q_at(shape, b, i, h, d)] * k[k_at(shape, b, j, h, d)]).sum();
            if shape.causal && j > i { f64::NEG_INFINITY } else { dot * f64::from(shape.scale) }
        };
        let scores: Vec<f64> = (0..shape.keys).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| libm::exp(s - top)).sum();
        lse.push(top + libm::log(sum));
        all.extend(scores.iter().map(|s| libm::exp(s - top) / sum));
    });
    (all, lse)
}

/// `out: [B, T, H, D]`; `factors: [B, H, T, S]` multiply the probabilities (dropout).
pub fn attention(shape: &AttentionShape, q: &[f64], k: &[f64], v: &[f64], factors: &[f64]) -> Vec<f64> {
    let (p, _) = probabilities(shape, q, k);
    let mut out = vec![0.0; q.len()];
    for_each_product(shape, |at, b, h, i, j| {
        for d in 0..shape.head_dim {
            out[q_at(shape, b, i, h, d)] += p[at] * factors[at] * v[k_at(shape, b, j, h, d)];
        }
    });
    out
}

/// What the gradient is a function of, besides the gradient of the output; fields as in
/// `AttentionSaved`.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Saved<'a> {
    pub q: &'a [f64],
    pub k: &'a [f64],
    pub v: &'a [f64],
    pub out: &'a [f64],
    pub lse: &'a [f64],
}

/// `[dq, dk, dv]` by the chain rule through the softmax, from the forward's inputs and outputs.
pub fn attention_grad(
    shape: &AttentionShape,
    saved: &Saved<'_>,
    factors: &[f64],
    dout: &[f64],
) -> [Vec<f64>; 3] {
    let &Saved { q, k, v, out, lse } = saved;
    let scale = f64::from(shape.scale);
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for_each_product(shape, |at, b, h, i, j| {
        if shape.causal && j > i {
            return;
        }
        let (q_of, k_of) = (|d| q_at(shape, b, i, h, d), |d| k_at(shape, b, j, h, d));
        let sum = |term: &dyn Fn(usize) -> f64| (0..shape.head_dim).map(term).sum::<f64>();
        let probability = libm::exp(scale * sum(&|d| q[q_of(d)] * k[k_of(d)]) - lse[at / shape.keys]);
        let dprobability = factors[at] * sum(&|d| dout[q_of(d)] * v[k_of(d)]);
        let dscore = probability * (dprobability - sum(&|d| dout[q_of(d)] * out[q_of(d)]));
        for d in 0..shape.head_dim {
            dv[k_of(d)] += probability * factors[at] * dout[q_of(d)];
            dq[q_of(d)] += scale * dscore * k[k_of(d)];
            dk[k_of(d)] += scale * dscore * q[q_of(d)];
        }
    });
    [dq, dk, dv]
}

fn for_each_query(shape: &AttentionShape, mut visit: impl FnMut(usize, usize, usize)) {
    for b in 0..shape.batch {
        for h in 0..shape.heads {
            for i in 0..shape.queries {
                visit(b, h, i);
            }
        }
    }
}

/// Calls `visit(at, b, h, i, j)`, where `at` is the position in `[B, H, T, S]`.
fn for_each_product(shape: &AttentionShape, mut visit: impl FnMut(usize, usize, usize, usize, usize)) {
    let mut at = 0;
    for_each_query(shape, |b, h, i| {
        for j in 0..shape.keys {
            visit(at, b, h, i, j);
            at += 1;
        }
    });
}

fn q_at(shape: &AttentionShape, b: usize, i: usize, h: usize, d: usize) -> usize {
    ((b * shape.queries + i) * shape.heads + h) * shape.head_dim + d
}

fn k_at(shape: &AttentionShape, b: usize, j: usize, h: usize, d: usize) -> usize {
    ((b * shape.keys + j) * shape.heads + h) * shape.head_dim + d
}
