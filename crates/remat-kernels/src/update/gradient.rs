//! What happens to gradients between backward and update: sums over micro-batches, and the norm over all of them.
//!
//! In: gradients of any length. Out: the running mean of the micro-batches, or the sum of squares. Sums are taken in
//! `f64` in chunks of a fixed size, so they do not depend on the number of threads. Time O(n); the workspace of
//! [`sum_squares`] holds one partial sum per chunk.

use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::map::map;
use std::ops::Range;

/// Elements of one partial sum.
const CHUNK: usize = 1 << 15;
/// Sums that run side by side inside a chunk, one per vector lane.
const LANES: usize = 16;

/// `sum' = sum + factor * gradient`, or without `sum` just `factor * gradient`; `new` may be `old`.
pub fn accumulate(old: Src<'_>, gradient: Src<'_>, factor: f32, is_first: bool, new: Dst<'_>) {
    if is_first {
        map([gradient], new, move |[g]: [f32; 1]| factor * g);
    } else {
        map([old, gradient], new, move |[sum, g]: [f32; 2]| sum + factor * g);
    }
}

/// Elements of workspace that [`sum_squares`] needs for `len` elements.
pub fn sum_squares_workspace(len: usize) -> usize {
    len.div_ceil(CHUNK)
}

/// `Σ x²`.
pub fn sum_squares(x: &[f32], workspace: &mut [f32]) -> f32 {
    let partial = &mut workspace[..sum_squares_workspace(x.len())];
    par::for_each_chunk(partial, 1, |i, out| {
        out[0] = chunk_sum(x, i * CHUNK..x.len().min((i + 1) * CHUNK)) as f32;
    });
    partial.iter().map(|&sum| f64::from(sum)).sum::<f64>() as f32
}

wide! {
    fn chunk_sum(x: &[f32], range: Range<usize>) -> f64 {
        let mut sums = [0.0f64; LANES];
        let x = &x[range];
        let whole = x.len() / LANES * LANES;
        for block in x[..whole].chunks_exact(LANES) {
            for (sum, &x) in sums.iter_mut().zip(block) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(&x[whole..]) {
            *sum += f64::from(x) * f64::from(x);
        }
        sums.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::gradient as naive;
    use crate::testing::{assert_close, out_of_place_and_in_place, random, same_bits_in_any_pool, wide};

    #[test]
    fn sums_agree_with_the_definition() {
        let inputs = [random(20_011, 1), random(20_011, 2)];
        for is_first in [true, false] {
            let got = out_of_place_and_in_place(inputs.each_ref(), |[sum, gradient], new| {
                accumulate(sum, gradient, 0.25, is_first, new);
            });
            let want = naive::accumulate(&wide(&inputs[0]), &wide(&inputs[1]), 0.25, is_first);
            assert_close(&got, &want, 2e-7);
        }
    }

    #[test]
    fn squares_agree_with_the_definition_in_any_pool() {
        for len in [0, 1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3] {
            let x = random(len, 3);
            let got = same_bits_in_any_pool(|| {
                let mut workspace = vec![f32::NAN; sum_squares_workspace(len)];
                vec![sum_squares(&x, &mut workspace)]
            });
            assert_close(&got, &[naive::sum_squares(&wide(&x))], 2e-7);
        }
    }
}
