//! Attention backward: one task for every head, which recomputes the probabilities tile by tile.
//!
//! With `p` the probabilities, `m` the dropout factors and `o` the output, for every query `i` and key `j`:
//!
//! ```text
//! dv_j = Σ_i p_ij m_ij do_i          delta_i = do_i · o_i
//! ds_ij = p_ij (m_ij do_i · v_j - delta_i)
//! dq_i = scale Σ_j ds_ij k_j         dk_j = scale Σ_i ds_ij q_i
//! ```
//!
//! All sums of a head are made by its task, over blocks in increasing order, directly in the outputs.

use super::{AttentionShape, Rows, RowsMut, TILE, row, score_index};
use crate::base::scratch::with_scratch;
use crate::base::simd::wide;
use crate::base::{math, par};
use crate::product::gemm::{Mat, MatMut, Write, gemm_serial};

/// Elements of workspace that [`attention_grad`] needs: `delta: [B, H, T]`.
pub fn attention_grad_workspace(shape: &AttentionShape) -> usize {
    shape.batch * shape.heads * shape.queries
}

/// What [`attention_grad`] reads: the forward's inputs and outputs and the gradient of its output.
#[derive(Clone, Copy)]
pub struct AttentionSaved<'a> {
    /// Queries `[B, T, H, D]`.
    pub q: Rows<'a>,
    /// Keys `[B, S, H, D]`.
    pub k: Rows<'a>,
    /// Values `[B, S, H, D]`.
    pub v: Rows<'a>,
    /// The forward's output `[B, T, H, D]`.
    pub out: Rows<'a>,
    /// The forward's `lse: [B, H, T]`.
    pub lse: &'a [f32],
}

/// `dq`, `dk` and `dv` from the gradient `dout: [B, T, H, D]` of the output.
pub fn attention_grad(
    shape: &AttentionShape,
    saved: &AttentionSaved<'_>,
    dout: Rows<'_>,
    dq: RowsMut<'_>,
    dk: RowsMut<'_>,
    dv: RowsMut<'_>,
    workspace: &mut [f32],
) {
    let workspace = &mut workspace[..attention_grad_workspace(shape)];
    par::for_each_chunk(workspace, shape.queries.max(1), |sequence_head, delta| {
        let (sequence, head) = (sequence_head / shape.heads, sequence_head % shape.heads);
        for (query, delta) in delta.iter_mut().enumerate() {
            let token = sequence * shape.queries + query;
            let out = saved.out.head_row(shape, token, head);
            *delta = row::dot(dout.head_row(shape, token, head), out);
        }
    });
    let delta = &*workspace;
    par::for_each(shape.batch * shape.heads, |sequence_head| {
        one_head(shape, saved, dout, [&dq, &dk, &dv], delta, sequence_head);
    });
}

fn one_head(
    shape: &AttentionShape,
    saved: &AttentionSaved<'_>,
    dout: Rows<'_>,
    [dq, dk, dv]: [&RowsMut<'_>; 3],
    delta: &[f32],
    sequence_head: usize,
) {
    let (sequence, head) = (sequence_head / shape.heads, sequence_head % shape.heads);
    for keys in shape.key_blocks() {
        let key_tokens = sequence * shape.keys + keys.start..sequence * shape.keys + keys.end;
        let k = saved.k.head(shape, key_tokens.clone(), head);
        let v = saved.v.head(shape, key_tokens.clone(), head);
        let mut write_keys = Write::Overwrite;
        for queries in shape.query_blocks().filter(|queries| shape.block_is_visible(queries, &keys)) {
            let tokens = sequence * shape.queries + queries.start..sequence * shape.queries + queries.end;
            let q = saved.q.head(shape, tokens.clone(), head);
            let dout = dout.head(shape, tokens.clone(), head);
            let (n_queries, n_keys) = (queries.len(), keys.len());
            with_scratch(2 * n_queries * n_keys, |scratch| {
                let (p, ds) = scratch.split_at_mut(n_queries * n_keys);
                gemm_serial(Write::Overwrite, shape.scale, q, k.t(), MatMut::new(p, n_queries, n_keys));
                gemm_serial(Write::Overwrite, 1.0, dout, v.t(), MatMut::new(ds, n_queries, n_keys));
                let rows = p.chunks_exact_mut(n_keys).zip(ds.chunks_exact_mut(n_keys));
                for (query, (p, ds)) in queries.clone().zip(rows) {
                    let seen = shape.visible(query, &keys);
                    p[seen..].fill(0.0);
                    ds[seen..].fill(0.0);
                    let mut factors = [1.0; TILE];
                    if let Some(dropout) = &shape.dropout {
                        let first = score_index(shape, sequence_head, query, keys.start);
                        dropout.factors(first, &mut factors[..seen]);
                    }
                    let at = sequence_head * shape.queries + query;
                    let (p, ds) = (&mut p[..seen], &mut ds[..seen]);
                    score_gradients(p, ds, &factors, saved.lse[at], delta[at]);
                }
                let (p, ds) = (Mat::new(p, n_queries, n_keys), Mat::new(ds, n_queries, n_keys));
                // The first block of keys is seen by every query, so it is the one that starts the sums.
                let write_queries = if keys.start == 0 { Write::Overwrite } else { Write::Accumulate };
                // SAFETY: this head of this sequence belongs to this task alone.
                unsafe {
                    gemm_serial(write_keys, 1.0, p.t(), dout, dv.head(shape, key_tokens.clone(), head));
                    gemm_serial(write_keys, shape.scale, ds.t(), q, dk.head(shape, key_tokens.clone(), head));
                    gemm_serial(write_queries, shape.scale, ds, k, dq.head(shape, tokens, head));
                }
            });
            write_keys = Write::Accumulate;
        }
        if write_keys == Write::Overwrite {
            // Keys that no query sees: more keys than queries under the causal rule.
            with_scratch(shape.head_dim, |zeros| {
                zeros.fill(0.0);
                for token in key_tokens {
                    // SAFETY: as above.
                    unsafe {
                        dk.write(shape, token, head, zeros);
                        dv.write(shape, token, head, zeros);
                    }
                }
            });
        }
    }
}

wide! {
    /// From scores and `do · v` to dropped-out probabilities and the gradient of the scores, for one query.
    fn score_gradients(p: &mut [f32], ds: &mut [f32], factors: &[f32], lse: f32, delta: f32) {
        for ((p, ds), factor) in p.iter_mut().zip(ds).zip(factors) {
            let probability = math::exp(*p - lse);
            *ds = probability * (*ds * factor - delta);
            *p = probability * factor;
        }
    }
}
