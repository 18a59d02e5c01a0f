//! A shuffle that needs no memory: position `i` of epoch `e` is a pure function, and every epoch visits each example once.
//!
//! A Feistel network is a bijection of the numbers below a power of four, whatever its round function is; stepping
//! until the result lies below `n` makes it a bijection of the numbers below `n` ("cycle walking"). Fewer than four
//! steps are needed on average.

use remat_kernels::rng::{Key, uniform_u32};

const ROUNDS: u64 = 4;

/// The example at a position of the shuffled sequence of `n` examples; positions count through all epochs.
pub(super) fn shuffled(seed: u64, n: u64, position: u64) -> u64 {
    let (epoch, position) = (position / n, position % n);
    // Stream numbers of nodes and hashes of names hardly meet this one; epochs count from 1 as steps do.
    let key = Key::new(seed, epoch + 1, 0x5348_5546_464C_4521);
    let half_bits = (64 - (n - 1).leading_zeros()).div_ceil(2).max(1);
    let mut at = position;
    loop {
        at = permute(key, half_bits, at);
        if at < n {
            return at;
        }
    }
}

/// A bijection of the numbers of `2 * half_bits` bits.
fn permute(key: Key, half_bits: u32, x: u64) -> u64 {
    let mask = (1u64 << half_bits) - 1;
    let (mut left, mut right) = (x >> half_bits, x & mask);
    for round in 0..ROUNDS {
        let mixed = u64::from(uniform_u32(key, (right << 2) | round)) & mask;
        (left, right) = (right, left ^ mixed);
    }
    (left << half_bits) | right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_visits_every_example_once_and_in_another_order() {
        for n in [1, 2, 3, 10, 64, 1000, 1025] {
            let epoch = |e: u64| (0..n).map(|i| shuffled(7, n, e * n + i)).collect::<Vec<_>>();
            for e in 0..3 {
                let mut visited = epoch(e);
                visited.sort_unstable();
                assert!(visited.into_iter().eq(0..n), "epoch {e} of {n}");
            }
            if n > 3 {
                assert_ne!(epoch(0), epoch(1), "{n}");
                assert_ne!(epoch(0), (0..n).collect::<Vec<_>>(), "{n}");
            }
        }
    }
}
