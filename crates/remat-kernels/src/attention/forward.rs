//! Attention forward: one task for every head and block of queries, walking over the blocks of keys.

use super::{AttentionShape, Rows, RowsMut, TILE, row, score_index};
use crate::base::raw::Dst;
use crate::base::scratch::with_scratch;
use crate::base::{math, par};
use crate::loops::rows::larger;
use crate::product::gemm::{Mat, MatMut, Write, gemm_serial};
use std::ops::Range;

/// `out = softmax(scale · q kᵀ) v`, and `lse` for [`super::attention_grad`].
pub fn attention(
    shape: &AttentionShape,
    q: Rows<'_>,
    k: Rows<'_>,
    v: Rows<'_>,
    out: RowsMut<'_>,
    lse: &mut [f32],
) {
    assert_eq!(lse.len(), shape.batch * shape.heads * shape.queries, "size of lse");
    assert!(shape.keys > 0 || lse.is_empty(), "a softmax over no keys");
    let lse = Dst::from(lse);
    let n_blocks = shape.queries.div_ceil(TILE);
    par::for_each(shape.batch * shape.heads * n_blocks, |task| {
        let (sequence_head, block) = (task / n_blocks, task % n_blocks);
        let queries = block * TILE..shape.queries.min((block + 1) * TILE);
        query_block(shape, q, k, v, &out, lse, sequence_head, queries);
    });
}

#[allow(clippy::too_many_arguments)]
fn query_block(
    shape: &AttentionShape,
    q: Rows<'_>,
    k: Rows<'_>,
    v: Rows<'_>,
    out: &RowsMut<'_>,
    lse: Dst<'_>,
    sequence_head: usize,
    queries: Range<usize>,
) {
    let (sequence, head) = (sequence_head / shape.heads, sequence_head % shape.heads);
    let (n_queries, head_dim) = (queries.len(), shape.head_dim);
    let q_tokens = sequence * shape.queries + queries.start..sequence * shape.queries + queries.end;
    let q = q.head(shape, q_tokens.clone(), head);
    with_scratch(TILE * TILE + n_queries * head_dim, |scratch| {
        let (scores, sums) = scratch.split_at_mut(TILE * TILE);
        sums.fill(0.0);
        // The softmax so far: `sums` and `denominator` are relative to e^maximum.
        let mut maximum = [f32::NEG_INFINITY; TILE];
        let mut denominator = [0.0; TILE];
        for keys in shape.key_blocks().take_while(|keys| shape.block_is_visible(&queries, keys)) {
            let tokens = sequence * shape.keys + keys.start..sequence * shape.keys + keys.end;
            let scores = &mut scores[..n_queries * keys.len()];
            let keys_transposed = k.head(shape, tokens.clone(), head).t();
            let out = MatMut::new(scores, n_queries, keys.len());
            gemm_serial(Write::Overwrite, shape.scale, q, keys_transposed, out);
            for (i, scores) in scores.chunks_exact_mut(keys.len()).enumerate() {
                let query = queries.start + i;
                let (seen, hidden) = scores.split_at_mut(shape.visible(query, &keys));
                hidden.fill(0.0);
                if seen.is_empty() {
                    continue;
                }
                let larger = larger(maximum[i], row::max(seen));
                let correction = math::exp(maximum[i] - larger);
                maximum[i] = larger;
                denominator[i] = denominator[i] * correction + row::exp_and_sum(seen, larger);
                for sum in &mut sums[i * head_dim..][..head_dim] {
                    *sum *= correction;
                }
                if let Some(dropout) = &shape.dropout {
                    let mut factors = [0.0; TILE];
                    let factors = &mut factors[..seen.len()];
                    dropout.factors(score_index(shape, sequence_head, query, keys.start), factors);
                    for (probability, factor) in seen.iter_mut().zip(factors) {
                        *probability *= *factor;
                    }
                }
            }
            let probabilities = Mat::new(scores, n_queries, keys.len());
            let values = v.head(shape, tokens, head);
            gemm_serial(
                Write::Accumulate,
                1.0,
                probabilities,
                values,
                MatMut::new(sums, n_queries, head_dim),
            );
        }
        for (i, token) in q_tokens.enumerate() {
            let sums = &mut sums[i * head_dim..][..head_dim];
            for sum in &mut *sums {
                *sum /= denominator[i];
            }
            // SAFETY: only this task has this head of these queries.
            unsafe {
                out.write(shape, token, head, sums);
                let at = sequence_head * shape.queries + queries.start + i;
                let log = libm::log(f64::from(denominator[i]));
                lse.write(at, &[(f64::from(maximum[i]) + log) as f32]);
            }
        }
    });
}
