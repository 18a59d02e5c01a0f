//! The sizes of an attention, and how scores are made.

use crate::base::rng::Key;

/// The sizes of an attention and how scores are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Sequences, `B`.
    pub batch: usize,
    /// Heads, `H`.
    pub heads: usize,
    /// Queries of a sequence, `T`.
    pub queries: usize,
    /// Keys and values of a sequence, `S`.
    pub keys: usize,
    /// Width of a head, `D`.
    pub head_dim: usize,
    /// Query `i` sees only the keys `j <= i`.
    pub causal: bool,
    /// Factor of the scores, usually `1 / sqrt(D)`.
    pub scale: f32,
    /// Dropout of the probabilities.
    pub dropout: Option<AttentionDropout>,
}

/// Dropout of the attention probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionDropout {
    /// The probability of dropping, in `0..=1`.
    pub probability: f32,
    /// Names the random numbers.
    pub key: Key,
}
