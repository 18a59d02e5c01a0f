//! Scaled dot-product attention that never holds the matrix of scores.
//!
//! In: `q: [B, T, H, D]`, `k, v: [B, S, H, D]`, each contiguous or part of a packed projection ([`Rows`]). Out:
//! `softmax(scale · q kᵀ) v: [B, T, H, D]` and, for the backward, the logarithm of each softmax's denominator
//! `lse: [B, H, T]`. A causal query `i` sees the keys `j <= i`. Dropout acts on the probabilities; its mask is drawn
//! again in the backward from the position `((b·H + h)·T + i)·S + j`.
//!
//! Scores exist one tile of `TILE`² at a time, in a buffer of the thread. The forward ([`attention`]) keeps a
//! running maximum and denominator per query; the backward ([`attention_grad`]) recomputes the probabilities from
//! `lse`. Time O(B · H · T · S · D), half of it when causal.

mod backward;
mod forward;
mod row;
mod rows;

pub use crate::settings::attention::{AttentionDropout, AttentionShape};
pub use backward::{AttentionSaved, attention_grad, attention_grad_workspace};
pub use forward::attention;
pub use rows::{Rows, RowsMut};

use crate::base::rng;
use crate::pointwise::dropout;
use std::ops::Range;

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

    /// Whether any query of the block sees any key of the block.
    fn block_is_visible(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        self.visible(queries.end - 1, keys) > 0
    }
}

fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(TILE).map(move |start| start..len.min(start + TILE))
}

impl AttentionDropout {
    /// Writes the factor of each probability of a row: zero if it is dropped, else `1 / (1 - p)`.
    fn factors(&self, first_index: u64, factors: &mut [f32]) {
        let mut draws = [0; TILE];
        let draws = &mut draws[..factors.len()];
        rng::fill_u16(self.key, first_index, draws);
        let (threshold, kept) = (dropout::threshold(self.probability), dropout::factor(self.probability));
        for (factor, &draw) in factors.iter_mut().zip(&*draws) {
            *factor = if draw >= threshold { kept } else { 0.0 };
        }
    }
}

/// Position of the score of `(sequence and head, query, key)` in the matrix that is never held.
fn score_index(shape: &AttentionShape, sequence_head: usize, query: usize, key: usize) -> u64 {
    ((sequence_head * shape.queries + query) * shape.keys + key) as u64
}

#[cfg(test)]
mod tests;
