//! Attention forward: one task for every head and block of queries, walking over the blocks of keys.

use super::strip::{self, STRIP, Scores, Softmax};
use super::{AttentionShape, Rows, RowsMut, TILE, factor_space, score_index, strips};
use crate::base::par;
use crate::base::raw::Dst;
use crate::base::scratch::with_scratches;
use crate::base::simd::wide;
use crate::product::gemm::{Mat, MatMut, Write};
use crate::product::prefetch::Region;
use crate::product::small::{Ahead, Packed, multiply};
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
    let spaces = [
        TILE * STRIP,
        n_queries * head_dim,
        Packed::space(head_dim, n_queries),
        Packed::space(shape.keys.min(TILE), head_dim),
        factor_space(shape),
    ];
    with_scratches(spaces, |[scores, sums, q_space, v_space, factor_space]| {
        sums.fill(0.0);
        let q = Packed::new(q.t(), q_space);
        // The softmax so far; `sums` are relative to e^maximum, too.
        let mut softmax = [Softmax::NEW; TILE / STRIP];
        for keys in shape.key_blocks().take_while(|keys| shape.block_is_visible(&queries, keys)) {
            let first_token = sequence * shape.keys + keys.start;
            let values = v.head(shape, first_token..first_token + keys.len(), head);
            let packed_values = Packed::new(values, v_space);
            // Meanwhile the next block is on its way, or the place of the results.
            let next = keys.end..shape.keys.min(keys.end + TILE);
            let ahead = if !next.is_empty() && shape.block_is_visible(&queries, &next) {
                let first = sequence * shape.keys;
                [k, v].map(|rows| rows.head(shape, first + next.start..first + next.end, head).into())
            } else {
                // SAFETY: only this task has this head of these queries.
                [Region::NONE, unsafe { out.head(shape, q_tokens.clone(), head) }.into()]
            };
            let mut ahead = Ahead::new(ahead, n_queries.div_ceil(STRIP) * keys.len() + n_queries);
            for strip in strips(n_queries) {
                let (first, n_queries) = (queries.start + strip.start, strip.len());
                let n_keys = shape.visible(first + n_queries - 1, &keys);
                let k = k.head(shape, first_token..first_token + n_keys, head);
                let n_columns = n_queries.next_multiple_of(strip::LANES);
                let q = q.cols(strip.start..strip.start + n_columns);
                let out = MatMut::strided(scores, n_keys, n_columns, STRIP, 1);
                multiply(Write::Overwrite, shape.scale, k, q, out, &mut ahead);
                for (key, scores) in scores.chunks_exact_mut(STRIP).enumerate().take(keys.len()) {
                    let n_blind = shape.n_blind(first, keys.start + key).min(n_queries);
                    // Keys that none of these queries sees have no exponential, but a place in the sums.
                    scores[..n_blind].fill(if key < n_keys { f32::NEG_INFINITY } else { 0.0 });
                }
                let factors = shape.dropout.map(|dropout| {
                    let row = |i: usize| score_index(shape, sequence_head, first + i, keys.start);
                    dropout.factors(n_keys, n_queries, row, factor_space)
                });
                let strip_scores = Scores::new(scores, STRIP, n_keys, n_queries);
                let correction = softmax[strip.start / STRIP].take_in(strip_scores, factors);
                let sums = &mut sums[strip.start * head_dim..][..n_queries * head_dim];
                correct(sums, head_dim, &correction);
                let probabilities = Mat::strided(scores, n_queries, keys.len(), 1, STRIP);
                let out = MatMut::new(sums, n_queries, head_dim);
                multiply(Write::Accumulate, 1.0, probabilities, packed_values, out, &mut ahead);
            }
        }
        for (i, token) in q_tokens.enumerate() {
            let Softmax { maximum, denominator } = &softmax[i / STRIP];
            let (maximum, denominator) = (maximum[i % STRIP], denominator[i % STRIP]);
            let sums = &mut sums[i * head_dim..][..head_dim];
            divide(sums, denominator);
            // SAFETY: only this task has this head of these queries.
            unsafe {
                out.write(shape, token, head, sums);
                let at = sequence_head * shape.queries + queries.start + i;
                let log = libm::log(f64::from(denominator));
                lse.write(at, &[(f64::from(maximum) + log) as f32]);
            }
        }
    });
}

wide! {
    fn divide(sums: &mut [f32], denominator: f32) {
        for sum in sums {
            *sum /= denominator;
        }
    }
}

wide! {
    /// Multiplies every row of the sums with the factor of its query.
    fn correct(sums: &mut [f32], head_dim: usize, factors: &[f32; STRIP]) {
        for (sums, factor) in sums.chunks_exact_mut(head_dim.max(1)).zip(factors) {
            for sum in sums {
                *sum *= factor;
            }
        }
    }
}
