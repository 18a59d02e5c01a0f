//! Counter-based random numbers: number `index` of a stream is a pure function of the stream's key.
//!
//! In: a [`Key`] made of seed, step and stream (in the engine: the node that a recompute was cloned from), and an
//! element index. Out: 32 uniform bits. Nothing is stored between calls, so a recompute replays the same bits and a
//! backward pass regenerates a mask instead of keeping it.
//!
//! The generator is Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//! Seven rounds already pass the test batteries; ten is the authors' margin of safety and what other frameworks use,
//! and the cost is hidden by the memory traffic of the kernels that draw.
//!
//! **Why by hand.** Random number crates hand out one stream in order, behind the traits of `rand`. Kernels need any
//! element of a stream by its index, many counters side by side in vector registers, and 16-bit halves in the order in
//! which vectors hold them. Checkpoints also depend on these bits, so no update of a crate may change them.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Numbers drawn from one counter.
const WORDS: usize = 4;
/// Counters that [`fill_u32`] works on side by side, one per vector lane.
const LANES: usize = 8;

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
        let counter = [step_low, step_high, stream_low, stream_high].map(|word| [u64::from(word)]);
        let [a, b, c, d] = philox(counter, halves(seed)).map(|[word]| word as u32);
        Key { key: [a, b], counter_high: [c, d] }
    }
}

/// Number `index` of the stream.
pub fn uniform_u32(key: Key, index: u64) -> u32 {
    let [low, high] = halves(index / WORDS as u64);
    let [third, fourth] = key.counter_high;
    let words = philox([low, high, third, fourth].map(|word| [u64::from(word)]), key.key);
    words[(index % WORDS as u64) as usize][0] as u32
}

/// Writes the numbers `first_index..first_index + out.len()` of the stream.
pub fn fill_u32(key: Key, first_index: u64, out: &mut [u32]) {
    let lead = (first_index.wrapping_neg() % WORDS as u64).min(out.len() as u64) as usize;
    let (head, body) = out.split_at_mut(lead);
    for (i, word) in head.iter_mut().enumerate() {
        *word = uniform_u32(key, first_index + i as u64);
    }
    let first_block = (first_index + lead as u64) / WORDS as u64;
    let (groups, rest) = body.as_chunks_mut();
    #[cfg(target_arch = "x86_64")]
    if crate::base::isa::has_avx512() {
        // SAFETY: the processor has what was chosen.
        unsafe { avx512::fill(key, first_block, groups) };
    } else if crate::base::isa::has_avx2() {
        // SAFETY: as above.
        unsafe { avx2::fill(key, first_block, groups) };
    } else {
        fill(key, first_block, groups);
    }
    #[cfg(not(target_arch = "x86_64"))]
    fill(key, first_block, groups);
    if !rest.is_empty() {
        rest.copy_from_slice(&words(key, first_block + (groups.len() * LANES) as u64)[..rest.len()]);
    }
}

/// Fills groups of `LANES` counters from `first_block` on.
fn fill(key: Key, first_block: u64, groups: &mut [[u32; WORDS * LANES]]) {
    for (i, group) in groups.iter_mut().enumerate() {
        *group = words(key, first_block + (i * LANES) as u64);
    }
}

/// The numbers of `LANES` counters from `first_block` on.
#[inline(always)]
fn words(key: Key, first_block: u64) -> [u32; WORDS * LANES] {
    let words = philox(counters(key, first_block), key.key);
    let mut out = [0; WORDS * LANES];
    for lane in 0..LANES {
        for word in 0..WORDS {
            out[lane * WORDS + word] = words[word][lane] as u32;
        }
    }
    out
}

/// Halves come in groups: the low halves of eight words, then their high halves. So eight of them are one operation on eight
/// words.
pub(crate) const HALVES: usize = 16;

/// Number `index` of the stream of 16-bit numbers, two of which make up a word of 32 bits.
pub fn uniform_u16(key: Key, index: u64) -> u16 {
    let (group, within) = (index / HALVES as u64, index % HALVES as u64);
    let word = uniform_u32(key, group * (HALVES / 2) as u64 + within % (HALVES / 2) as u64);
    (word >> (16 * (within / (HALVES / 2) as u64))) as u16
}

/// Groups that are drawn together.
pub(crate) const GROUPS: usize = WORDS * LANES * 2 / HALVES;

/// The words of a few groups of halves, of which the first one holds number `index`.
pub(crate) fn halves_from(key: Key, index: u64) -> [[u32; HALVES / 2]; GROUPS] {
    in_groups(words(key, first_counter(index)))
}

/// The counter that a group of halves begins with.
#[inline(always)]
fn first_counter(index: u64) -> u64 {
    index / HALVES as u64 * (HALVES / 2 / WORDS) as u64
}

#[inline(always)]
fn in_groups(words: [u32; WORDS * LANES]) -> [[u32; HALVES / 2]; GROUPS] {
    let mut groups = [[0; HALVES / 2]; GROUPS];
    groups.as_flattened_mut().copy_from_slice(&words);
    groups
}

/// The halves of a group.
#[inline(always)]
fn halves_of(words: &[u32; HALVES / 2]) -> [u32; HALVES] {
    let mut halves = [0; HALVES];
    for (lane, &word) in words.iter().enumerate() {
        halves[lane] = word & 0xffff;
        halves[HALVES / 2 + lane] = word >> 16;
    }
    halves
}

/// Halves that [`fill_u16`] draws at most.
const MOST_HALVES: usize = 256;

/// Writes the 16-bit numbers `first_index..first_index + out.len()` of the stream, at most `MOST_HALVES`.
#[inline(always)]
pub fn fill_u16(key: Key, first_index: u64, out: &mut [u32]) {
    let mut words = [[0; HALVES / 2]; MOST_HALVES / HALVES + 1];
    let skipped = (first_index % HALVES as u64) as usize;
    let words = &mut words[..(skipped + out.len()).div_ceil(HALVES)];
    fill_u32(key, first_counter(first_index) * WORDS as u64, words.as_flattened_mut());
    if skipped == 0 && out.len().is_multiple_of(HALVES) {
        split(words, out);
    } else {
        let mut halves = [0; MOST_HALVES + HALVES];
        split(words, &mut halves);
        out.copy_from_slice(&halves[skipped..][..out.len()]);
    }
}

/// The halves of words, group by group.
#[inline(always)]
fn split(words: &[[u32; HALVES / 2]], halves: &mut [u32]) {
    for (words, group) in words.iter().zip(halves.as_chunks_mut::<HALVES>().0) {
        *group = halves_of(words);
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

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::VectorDraws;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::WideDraws;

/// Low and high half.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The counters of `LANES` blocks from `first_block` on.
fn counters(key: Key, first_block: u64) -> [[u64; LANES]; WORDS] {
    let [third, fourth] = key.counter_high.map(u64::from);
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for (lane, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
        let block = first_block.wrapping_add(lane as u64);
        (*low, *high) = (block, block >> 32);
    }
    [low, high, [third; LANES], [fourth; LANES]]
}

/// Philox4x32 on `N` counters side by side; each array holds one of the four words of every counter.
///
/// A word is the low half of an element and the high half means nothing: a vector instruction multiplies the low halves
/// of 64-bit lanes to whole products, whose halves are then both where they are needed.
#[inline(always)]
fn philox<const N: usize>(mut counter: [[u64; N]; WORDS], mut key: [u32; 2]) -> [[u64; N]; WORDS] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        for lane in 0..N {
            let (from_a, from_c) = (product(a[lane], MULTIPLIERS[0]), product(c[lane], MULTIPLIERS[1]));
            counter[0][lane] = (from_c >> 32) ^ b[lane] ^ u64::from(key[0]);
            counter[1][lane] = from_c;
            counter[2][lane] = (from_a >> 32) ^ d[lane] ^ u64::from(key[1]);
            counter[3][lane] = from_a;
        }
        key = [key[0].wrapping_add(KEY_INCREMENTS[0]), key[1].wrapping_add(KEY_INCREMENTS[1])];
    }
    counter
}

/// The product of the low halves.
#[inline(always)]
fn product(a: u64, b: u32) -> u64 {
    (a & u64::from(u32::MAX)) * u64::from(b)
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
            let counter = counter.map(|word| [u64::from(word)]);
            assert_eq!(philox(counter, key).map(|[word]| word as u32), want);
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
    fn halves_are_those_of_the_words() {
        let key = Key::new(7, 3, 11);
        // Every half of the first sixteen words occurs once among the first thirty-two numbers.
        let mut drawn: Vec<u16> = (0..32).map(|i| uniform_u16(key, i)).collect();
        let words = (0..16).map(|i| uniform_u32(key, i));
        let mut halves: Vec<u16> = words.flat_map(|word| [word as u16, (word >> 16) as u16]).collect();
        drawn.sort_unstable();
        halves.sort_unstable();
        assert_eq!(drawn, halves);
        for first in [0, 1, 2, 8, 15, 16, 17, 63, 64, 1 << 34] {
            for len in [0, 1, 2, 15, 16, 17, 63, 64, 65, 200, MOST_HALVES] {
                let mut block = vec![0; len];
                fill_u16(key, first, &mut block);
                let single: Vec<u32> =
                    (0..len as u64).map(|i| u32::from(uniform_u16(key, first + i))).collect();
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
