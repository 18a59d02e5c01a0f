//! Sums over a row as vectors, for kernels that make them in the same loop as something else.
//!
//! The order is that of [`sum_row`](crate::loops::rows::sum_row), and so are the bits: in `f32` within a block of a row and
//! in `f64` beyond it.

use crate::base::vector::Vector;
use crate::loops::rows::{BLOCK, LANES, WIDE, sum_of_lanes};

/// `S` sums over a row, of which `K` vectors of elements are taken at a time; together they have `WIDE` lanes.
pub(crate) struct RowSums<V, const K: usize, const S: usize> {
    /// Sums within the block.
    pub(crate) partial: [[V; K]; S],
    /// Sums over earlier blocks.
    sums: [[f64; LANES]; S],
}

impl<V: Vector, const K: usize, const S: usize> RowSums<V, K, S> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        assert_eq!(K * V::LANES, WIDE, "vectors that are taken at a time");
        RowSums { partial: [[V::splat(0.0); K]; S], sums: [[0.0; LANES]; S] }
    }

    /// The elements `at..at + WIDE` have been added to the partial sums.
    #[inline(always)]
    pub(crate) fn added(&mut self, at: usize) {
        if (at + WIDE).is_multiple_of(BLOCK) {
            self.widen();
        }
    }

    #[inline(always)]
    fn widen(&mut self) {
        for (sums, partial) in self.sums.iter_mut().zip(&mut self.partial) {
            let mut lanes = [0.0; WIDE];
            for (lanes, partial) in lanes.chunks_exact_mut(V::LANES).zip(partial) {
                // SAFETY: a chunk has as many elements as a vector.
                unsafe { partial.store(lanes.as_mut_ptr()) };
                *partial = V::splat(0.0);
            }
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += f64::from(lanes[lane] + lanes[lane + LANES]);
            }
        }
    }

    /// The sums when the elements below `whole`, a multiple of `WIDE`, have been added; `rest` are the terms of the
    /// others.
    #[inline(always)]
    pub(crate) fn finish(mut self, whole: usize, rest: impl Iterator<Item = [f32; S]>) -> [f64; S] {
        if !whole.is_multiple_of(BLOCK) {
            self.widen();
        }
        for (i, terms) in rest.enumerate() {
            for (sums, term) in self.sums.iter_mut().zip(terms) {
                sums[(whole + i) % LANES] += f64::from(term);
            }
        }
        self.sums.map(sum_of_lanes)
    }
}

/// The vectors from an address on.
///
/// # Safety
/// So many elements are readable.
#[inline(always)]
pub(crate) unsafe fn load<V: Vector, const K: usize>(from: *const f32) -> [V; K] {
    let mut vectors = [V::splat(0.0); K];
    for (i, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *vector = unsafe { V::load(from.add(i * V::LANES)) };
    }
    vectors
}
