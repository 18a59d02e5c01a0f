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
//! All sums of a head are made by its task, over blocks in increasing order: those of a block of keys in its own memory,
//! those of the queries directly in the output.

use super::strip::{self, STRIP, Scores, score_gradients};
use super::{AttentionShape, Rows, RowsMut, TILE, factor_space, row, score_index, strips};
use crate::base::par;
use crate::base::scratch::with_scratches;
use crate::product::gemm::{Mat, MatMut, Write};
use crate::product::prefetch::Region;
use crate::product::small::{Ahead, Packed, multiply};
use std::ops::Range;

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
        Head { shape, saved, dout, grads: [&dq, &dk, &dv], delta, sequence_head }.run();
    });
}

/// Elements from one key to the next in a tile of scores: an odd number of cache lines, because columns are read, too.
const STRIDE: usize = TILE + 16;

/// One head of one sequence, which belongs to one task alone.
struct Head<'a> {
    shape: &'a AttentionShape,
    saved: &'a AttentionSaved<'a>,
    dout: Rows<'a>,
    grads: [&'a RowsMut<'a>; 3],
    delta: &'a [f32],
    sequence_head: usize,
}

impl Head<'_> {
    fn run(&self) {
        let &Head { shape, saved, .. } = self;
        let (n_queries, n_keys, head_dim) = (shape.queries.min(TILE), shape.keys.min(TILE), shape.head_dim);
        let (columns, rows) = (Packed::space(head_dim, n_queries), Packed::space(n_queries, head_dim));
        let (scores, k_rows) = (n_keys * STRIDE, Packed::space(n_keys, head_dim));
        let (dk, factors) = (n_keys * head_dim, factor_space(shape));
        let spaces = [scores, scores, columns, columns, rows, rows, k_rows, factors, dk, dk];
        with_scratches(spaces, |spaces| {
            let [p, ds, q_columns, dout_columns, q_rows, dout_rows, k_rows, factors, dk, dv] = spaces;
            for keys in shape.key_blocks() {
                let k = self.keys(saved.k, &keys);
                let k_rows = Packed::new(k, k_rows);
                let mut write = Write::Overwrite;
                let visible = |queries: &Range<usize>| shape.block_is_visible(queries, &keys);
                let mut blocks = shape.query_blocks().filter(visible).peekable();
                while let Some(queries) = blocks.next() {
                    let mut ahead = self.ahead(&keys, &queries, blocks.peek());
                    let (q, dout) = (self.queries(saved.q, &queries), self.queries(self.dout, &queries));
                    let columns = [Packed::new(q.t(), q_columns), Packed::new(dout.t(), dout_columns)];
                    for strip in strips(queries.len()) {
                        self.scores(&keys, &queries, strip.clone(), columns, [p, ds], factors, &mut ahead);
                        self.grad_queries(&keys, &queries, strip, ds, k_rows, &mut ahead);
                    }
                    let rows = [Packed::new(q, q_rows), Packed::new(dout, dout_rows)];
                    self.grad_keys(&keys, &queries, [p, ds], rows, write, [dk, dv], &mut ahead);
                    write = Write::Accumulate;
                }
                if write == Write::Overwrite {
                    // Keys that no query sees: more keys than queries under the causal rule.
                    dk.fill(0.0);
                    dv.fill(0.0);
                }
                self.write_keys(&keys, [dk, dv]);
            }
        });
    }

    fn sequence_and_head(&self) -> (usize, usize) {
        (self.sequence_head / self.shape.heads, self.sequence_head % self.shape.heads)
    }

    /// This head of some queries.
    fn queries<'a>(&self, tokens: Rows<'a>, queries: &Range<usize>) -> Mat<'a> {
        let (sequence, head) = self.sequence_and_head();
        let first = sequence * self.shape.queries;
        tokens.head(self.shape, first + queries.start..first + queries.end, head)
    }

    /// This head of some keys.
    fn keys<'a>(&self, tokens: Rows<'a>, keys: &Range<usize>) -> Mat<'a> {
        let (sequence, head) = self.sequence_and_head();
        let first = sequence * self.shape.keys;
        tokens.head(self.shape, first + keys.start..first + keys.end, head)
    }

    /// What the next tile reads: the next block of queries if there is one, else the next block of keys.
    fn ahead(&self, keys: &Range<usize>, queries: &Range<usize>, next: Option<&Range<usize>>) -> Ahead<2> {
        let saved = self.saved;
        let regions = match next {
            Some(next) => [saved.q, self.dout].map(|rows| self.queries(rows, next).into()),
            None if keys.end == self.shape.keys => [Region::NONE; 2],
            None => {
                let next = keys.end..self.shape.keys.min(keys.end + TILE);
                [saved.k, saved.v].map(|rows| self.keys(rows, &next).into())
            }
        };
        Ahead::new(regions, 2 * (queries.len().div_ceil(STRIP) * keys.len() + keys.len()))
    }

    /// Fills the strip's columns of `p` and `ds`; `columns` are queries and gradients of outputs.
    #[allow(clippy::too_many_arguments)]
    fn scores(
        &self,
        keys: &Range<usize>,
        queries: &Range<usize>,
        strip: Range<usize>,
        columns: [Packed<'_>; 2],
        scores: [&mut [f32]; 2],
        factor_space: &mut [f32],
        ahead: &mut Ahead<2>,
    ) {
        let &Head { shape, saved, delta, sequence_head, .. } = self;
        let (first, n_queries) = (queries.start + strip.start, strip.len());
        let n_keys = shape.visible(first + n_queries - 1, keys);
        let n_columns = n_queries.next_multiple_of(strip::LANES);
        let columns = columns.map(|columns| columns.cols(strip.start..strip.start + n_columns));
        let [p, ds] = scores.map(|scores| &mut scores[strip.start..]);
        let seen = keys.start..keys.start + n_keys;
        for (tokens, columns, scale, out) in
            [(saved.k, columns[0], shape.scale, &mut *p), (saved.v, columns[1], 1.0, &mut *ds)]
        {
            let out = MatMut::strided(out, n_keys, n_columns, STRIDE, 1);
            multiply(Write::Overwrite, scale, self.keys(tokens, &seen), columns, out, ahead);
        }
        let factors = shape.dropout.map(|dropout| {
            let row = |i: usize| score_index(shape, sequence_head, first + i, keys.start);
            dropout.factors(n_keys, n_queries, row, factor_space)
        });
        let at = sequence_head * shape.queries + first;
        let [lse, delta] = [saved.lse, delta].map(|of_queries| {
            let mut part = [0.0; STRIP];
            part[..n_queries].copy_from_slice(&of_queries[at..at + n_queries]);
            part
        });
        let [p_strip, ds_strip] =
            [&mut *p, &mut *ds].map(|scores| Scores::new(scores, STRIDE, n_keys, n_queries));
        score_gradients(p_strip, ds_strip, factors, &lse, &delta);
        for key in 0..keys.len() {
            let n_blind = shape.n_blind(first, keys.start + key).min(n_queries);
            p[key * STRIDE..][..n_blind].fill(0.0);
            ds[key * STRIDE..][..n_blind].fill(0.0);
        }
    }

    /// Adds to the gradient of a strip of queries.
    fn grad_queries(
        &self,
        keys: &Range<usize>,
        queries: &Range<usize>,
        strip: Range<usize>,
        ds: &[f32],
        k_rows: Packed<'_>,
        ahead: &mut Ahead<2>,
    ) {
        let (shape, (sequence, head)) = (self.shape, self.sequence_and_head());
        let strip_queries = queries.start + strip.start..queries.start + strip.end;
        let ds = Mat::strided(&ds[strip.start..], strip.len(), keys.len(), 1, STRIDE);
        // The first block of keys is seen by every query, so it is the one that starts the sums.
        let write = if keys.start == 0 { Write::Overwrite } else { Write::Accumulate };
        let first = sequence * shape.queries;
        let tokens = first + strip_queries.start..first + strip_queries.end;
        // SAFETY: this head of this sequence belongs to this task alone.
        let dq = unsafe { self.grads[0].head(shape, tokens, head) };
        multiply(write, shape.scale, ds, k_rows, dq, ahead);
    }

    /// Adds to the gradients of a block of keys and its values; `rows` are queries and gradients of outputs.
    #[allow(clippy::too_many_arguments)]
    fn grad_keys(
        &self,
        keys: &Range<usize>,
        queries: &Range<usize>,
        [p, ds]: [&[f32]; 2],
        rows: [Packed<'_>; 2],
        write: Write,
        [dk, dv]: [&mut [f32]; 2],
        ahead: &mut Ahead<2>,
    ) {
        let (shape, head_dim) = (self.shape, self.shape.head_dim);
        for part in strips(keys.len()) {
            // Queries that do not see the first key of the part: nothing of theirs is added.
            let n_blind = shape.n_blind(queries.start, keys.start + part.start).min(queries.len());
            for (scores, rows, scale, grad) in
                [(p, rows[1], 1.0, &mut *dv), (ds, rows[0], shape.scale, &mut *dk)]
            {
                let scores = &scores[part.start * STRIDE + n_blind..];
                let scores = Mat::strided(scores, part.len(), queries.len() - n_blind, STRIDE, 1);
                let grad = MatMut::new(&mut grad[part.start * head_dim..], part.len(), head_dim);
                multiply(write, scale, scores, rows.steps(n_blind..queries.len()), grad, ahead);
            }
        }
    }

    /// Writes the gradients of a block of keys and its values.
    fn write_keys(&self, keys: &Range<usize>, grads: [&[f32]; 2]) {
        let (shape, (sequence, head)) = (self.shape, self.sequence_and_head());
        for (grad, out) in grads.into_iter().zip(&self.grads[1..]) {
            for (i, key) in keys.clone().enumerate() {
                let grad = &grad[i * shape.head_dim..][..shape.head_dim];
                // SAFETY: this head of this sequence belongs to this task alone.
                unsafe { out.write(shape, sequence * shape.keys + key, head, grad) };
            }
        }
    }
}
