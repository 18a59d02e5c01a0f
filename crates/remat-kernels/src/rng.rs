//! Counter-based random numbers: number `index` of a stream is a pure function of the stream's key.
//!
//! In: a [`Key`] made of seed, step and stream (in the engine: the node that a recompute was cloned from), and an
//! element index. Out: 32 uniform bits. Nothing is stored between calls, so a recompute replays the same bits and a
//! backward pass regenerates a mask instead of keeping it.
//!
//! The generator is Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//! Seven rounds already pass the test batteries; ten is the authors' margin of safety and what other frameworks use,
//! and the cost is hidden by the memory traffic of the kernels that draw.

use crate::simd::wide;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Numbers drawn from one counter.
const WORDS: usize = 4;
/// Counters that [`fill_u32`] works on side by side, one per vector lane.
const LANES: usize = 16;

/// The name of a stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    key: [u32; 2],
    counter_high: [u32; 2],
}

impl Key {
    /// The stream of a seed, a step and a stream number.
    ///
    /// Philox is a bijection of its counter, so under one seed no two pairs (step, stream) get the same key.
    pub fn new(seed: u64, step: u64, stream: u64) -> Key {
        let [step_low, step_high] = halves(step);
        let [stream_low, stream_high] = halves(stream);
        let mixed = philox([[step_low], [step_high], [stream_low], [stream_high]], halves(seed));
        Key { key: [mixed[0][0], mixed[1][0]], counter_high: [mixed[2][0], mixed[3][0]] }
    }
}

/// Number `index` of the stream.
pub fn uniform_u32(key: Key, index: u64) -> u32 {
    let [low, high] = halves(index / WORDS as u64);
    let words = philox([[low], [high], [key.counter_high[0]], [key.counter_high[1]]], key.key);
    words[(index % WORDS as u64) as usize][0]
}

wide! {
    /// Writes the numbers `first_index..first_index + out.len()` of the stream.
    pub fn fill_u32(key: Key, first_index: u64, out: &mut [u32]) {
        let lead = (first_index.wrapping_neg() % WORDS as u64).min(out.len() as u64) as usize;
        let (head, body) = out.split_at_mut(lead);
        for (i, word) in head.iter_mut().enumerate() {
            *word = uniform_u32(key, first_index + i as u64);
        }
        let mut block = (first_index + lead as u64) / WORDS as u64;
        for group in body.chunks_mut(WORDS * LANES) {
            let words = philox(counters(key, block), key.key);
            for (lane, out) in group.chunks_mut(WORDS).enumerate() {
                for (out, word) in out.iter_mut().zip(&words) {
                    *out = word[lane];
                }
            }
            block += LANES as u64;
        }
    }
}

/// A number in `[0, 1)` with 24 random bits.
pub fn uniform_f32(key: Key, index: u64) -> f32 {
    (uniform_u32(key, index) >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// A number from the standard normal distribution (Box–Muller on the numbers `2 * index` and `2 * index + 1`).
pub fn normal_f32(key: Key, index: u64) -> f32 {
    let open_unit = |index| (f64::from(uniform_u32(key, index)) + 0.5) * (1.0 / (1u64 << 32) as f64);
    let radius = libm::sqrt(-2.0 * libm::log(open_unit(2 * index)));
    (radius * libm::cos(std::f64::consts::TAU * open_unit(2 * index + 1))) as f32
}

/// Low and high half.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The counters of `LANES` blocks from `first_block` on.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "an index per lane shows the compiler that lanes are independent"
)]
fn counters(key: Key, first_block: u64) -> [[u32; LANES]; WORDS] {
    let mut counter = [[0; LANES], [0; LANES], [key.counter_high[0]; LANES], [key.counter_high[1]; LANES]];
    for lane in 0..LANES {
        let [low, high] = halves(first_block.wrapping_add(lane as u64));
        counter[0][lane] = low;
        counter[1][lane] = high;
    }
    counter
}

/// Philox4x32 on `N` counters side by side; each array holds one of the four words of every counter.
#[inline(always)]
fn philox<const N: usize>(mut counter: [[u32; N]; WORDS], mut key: [u32; 2]) -> [[u32; N]; WORDS] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        for lane in 0..N {
            let [high_a, high_c] =
                [high_product(a[lane], MULTIPLIERS[0]), high_product(c[lane], MULTIPLIERS[1])];
            counter[0][lane] = high_c ^ b[lane] ^ key[0];
            counter[1][lane] = c[lane].wrapping_mul(MULTIPLIERS[1]);
            counter[2][lane] = high_a ^ d[lane] ^ key[1];
            counter[3][lane] = a[lane].wrapping_mul(MULTIPLIERS[0]);
        }
        key = [key[0].wrapping_add(KEY_INCREMENTS[0]), key[1].wrapping_add(KEY_INCREMENTS[1])];
    }
    counter
}

/// The upper half of a product.
#[inline(always)]
fn high_product(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors published with the reference implementation (Random123, `kat_vectors`, philox4x32 10).
    #[test]
    fn philox_gives_the_published_answers() {
        let cases: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox(counter.map(|word| [word]), key).map(|[word]| word), want);
        }
    }

    #[test]
    fn a_block_holds_the_same_numbers_as_single_draws() {
        let key = Key::new(7, 3, 11);
        for first in [0, 1, 2, 3, 4, 63, 64, 1 << 34] {
            for len in [0, 1, 2, 3, 5, 63, 64, 65, 200] {
                let mut block = vec![0; len];
                fill_u32(key, first, &mut block);
                let single: Vec<u32> = (0..len as u64).map(|i| uniform_u32(key, first + i)).collect();
                assert_eq!(block, single, "from {first}, {len} numbers");
            }
        }
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let base = Key::new(1, 2, 3);
        for other in [
            Key::new(0, 2, 3),
            Key::new(1, 3, 3),
            Key::new(1, 2, 4),
            Key::new(1, 3, 2),
            Key::new(1 << 40, 2, 3),
        ] {
            let equal = (0..1000).filter(|&i| uniform_u32(base, i) == uniform_u32(other, i)).count();
            assert_eq!(equal, 0, "{other:?}");
        }
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let key = Key::new(42, 0, 0);
        let n = 100_000;
        let moments = |draw: &dyn Fn(u64) -> f32| {
            let mean = (0..n).map(|i| f64::from(draw(i))).sum::<f64>() / n as f64;
            let variance = (0..n).map(|i| (f64::from(draw(i)) - mean).powi(2)).sum::<f64>() / n as f64;
            (mean, variance)
        };
        let (mean, variance) = moments(&|i| uniform_f32(key, i));
        assert!(
            (mean - 0.5).abs() < 4e-3 && (variance - 1.0 / 12.0).abs() < 2e-3,
            "uniform: {mean} {variance}"
        );
        let (mean, variance) = moments(&|i| normal_f32(key, i));
        assert!(mean.abs() < 1.5e-2 && (variance - 1.0).abs() < 2e-2, "normal: {mean} {variance}");
    }
}
