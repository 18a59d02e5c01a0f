//! Scaled dot-product attention that never holds the matrix of scores.
//!
//! In: `q: [B, T, H, D]`, `k, v: [B, S, H, D]`, each contiguous or part of a packed projection ([`Rows`]). Out:
//! `softmax(scale · q kᵀ) v: [B, T, H, D]` and, for the backward, the logarithm of each softmax's denominator
//! `lse: [B, H, T]`. A causal query `i` sees the keys `j <= i`. Dropout acts on the probabilities; its mask is drawn
//! again in the backward from the position `((b·H + h)·T + i)·S + j`.
//!
//! Scores exist one tile of `TILE`² at a time, transposed, in a buffer of the thread (`strip`). The forward ([`attention`]) keeps a
//! running maximum and denominator per query; the backward ([`attention_grad`]) recomputes the probabilities from
//! `lse`. Time O(B · H · T · S · D), half of it when causal.

mod backward;
mod forward;
mod row;
mod rows;
mod strip;

pub use crate::settings::attention::{AttentionDropout, AttentionShape};
pub use backward::{AttentionSaved, attention_grad, attention_grad_workspace};
pub use forward::attention;
pub use rows::{Rows, RowsMut};

use crate::base::rng;
use crate::pointwise::dropout;
use crate::product::gemm::Mat;
use crate::product::small::Packed;
use std::ops::Range;
use strip::STRIP;

/// Queries and keys of a tile.
const TILE: usize = 128;

impl AttentionShape {
    /// Blocks of queries.
    fn query_blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        blocks(self.queries)
    }

    /// Blocks of keys.
    fn key_blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        blocks(self.keys)
    }

    /// Keys of the block `keys` that `query` sees: a prefix of that many.
    fn visible(&self, query: usize, keys: &Range<usize>) -> usize {
        if self.causal { (query + 1).clamp(keys.start, keys.end) - keys.start } else { keys.len() }
    }

    /// Queries of a strip that begins with `first` and do not see `key`: a prefix of that many, if it is not all of them.
    fn n_blind(&self, first: usize, key: usize) -> usize {
        if self.causal { key.saturating_sub(first) } else { 0 }
    }

    /// Whether any query of the block sees any key of the block.
    fn block_is_visible(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        self.visible(queries.end - 1, keys) > 0
    }
}

/// Strips of a block of so many queries.
fn strips(n_queries: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n_queries).step_by(STRIP).map(move |start| start..n_queries.min(start + STRIP))
}

fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(TILE).map(move |start| start..len.min(start + TILE))
}

impl AttentionDropout {
    /// The factor of each probability of some keys and of a strip of queries: zero if it is dropped, else `1 / (1 - p)`.
    /// `row(i)` is the position of the first score of query `i`. The space is [`factor_space`].
    fn factors<'a>(
        &self,
        n_keys: usize,
        n_queries: usize,
        row: impl Fn(usize) -> u64,
        space: &'a mut [f32],
    ) -> Packed<'a> {
        let (factors, packed) = space.split_at_mut(STRIP * TILE);
        for (query, factors) in factors.chunks_exact_mut(TILE).enumerate().take(n_queries) {
            let mut draws = [0; TILE];
            let draws = &mut draws[..n_keys];
            rng::fill_u16(self.key, row(query), draws);
            let (threshold, kept) = (dropout::threshold(self.probability), dropout::factor(self.probability));
            for (factor, &draw) in factors.iter_mut().zip(&*draws) {
                *factor = if draw >= threshold { kept } else { 0.0 };
            }
        }
        Packed::new(Mat::strided(factors, n_keys, n_queries, 1, TILE), packed)
    }
}

/// Elements of space for the factors of a strip.
fn factor_space(shape: &AttentionShape) -> usize {
    if shape.dropout.is_some() { STRIP * TILE + Packed::space(TILE, STRIP) } else { 0 }
}

/// Position of the score of `(sequence and head, query, key)` in the matrix that is never held.
fn score_index(shape: &AttentionShape, sequence_head: usize, query: usize, key: usize) -> u64 {
    ((sequence_head * shape.queries + query) * shape.keys + key) as u64
}

#[cfg(test)]
mod tests;
