//! The same numbers with the vectors of AVX2; the state of all counters stays in registers, which the compiler does not
//! manage on its own.

use super::{
    GROUPS, HALVES, KEY_INCREMENTS, Key, LANES, MULTIPLIERS, ROUNDS, WORDS, first_counter, in_groups,
};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_blend_epi32, _mm256_mul_epu32, _mm256_permute2x128_si256,
    _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// Counters of a vector: one for every 64-bit lane, of which the low half counts.
const COUNTERS: usize = 4;

/// Fills groups of `LANES` counters from `first_block` on.
#[target_feature(enable = "avx2")]
pub(super) fn fill(key: Key, first_block: u64, groups: &mut [[u32; WORDS * LANES]]) {
    let draws = VectorDraws::new(key);
    for (i, group) in groups.iter_mut().enumerate() {
        *group = draws.words(first_block.wrapping_add((i * LANES) as u64));
    }
}

/// A key, ready for use.
pub(crate) struct VectorDraws {
    counter_high: [__m256i; 2],
    round_keys: [[__m256i; 2]; ROUNDS],
}

impl VectorDraws {
    #[target_feature(enable = "avx2")]
    pub(crate) fn new(key: Key) -> VectorDraws {
        let [third, fourth] = key.counter_high;
        VectorDraws {
            counter_high: [_mm256_set1_epi64x(i64::from(third)), _mm256_set1_epi64x(i64::from(fourth))],
            round_keys: round_keys(key.key),
        }
    }

    /// [`halves_from`](super::halves_from) with vector instructions.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn halves_from(&self, index: u64) -> [[u32; HALVES / 2]; GROUPS] {
        in_groups(self.words(first_counter(index)))
    }

    /// The numbers of `LANES` counters from `first_block` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(&self, first_block: u64) -> [u32; WORDS * LANES] {
        let [third, fourth] = self.counter_high;
        let mut state = [[third; WORDS]; LANES / COUNTERS];
        let mut counter =
            _mm256_add_epi64(_mm256_set1_epi64x(first_block as i64), _mm256_setr_epi64x(0, 1, 2, 3));
        for state in &mut state {
            *state = [counter, _mm256_srli_epi64::<32>(counter), third, fourth];
            counter = _mm256_add_epi64(counter, _mm256_set1_epi64x(COUNTERS as i64));
        }
        rounds(&mut state, &self.round_keys);
        let mut words = [0; WORDS * LANES];
        for (state, out) in state.into_iter().zip(words.as_chunks_mut::<{ WORDS * COUNTERS }>().0) {
            write(state, out);
        }
        words
    }
}

/// The key of every round, in all lanes.
#[target_feature(enable = "avx2")]
fn round_keys(mut key: [u32; 2]) -> [[__m256i; 2]; ROUNDS] {
    let mut keys = [[_mm256_set1_epi64x(0); 2]; ROUNDS];
    for keys in &mut keys {
        *keys = [_mm256_set1_epi64x(i64::from(key[0])), _mm256_set1_epi64x(i64::from(key[1]))];
        key = [key[0].wrapping_add(KEY_INCREMENTS[0]), key[1].wrapping_add(KEY_INCREMENTS[1])];
    }
    keys
}

/// The rounds of Philox on all vectors side by side.
#[target_feature(enable = "avx2")]
#[inline]
fn rounds<const N: usize>(state: &mut [[__m256i; WORDS]; N], keys: &[[__m256i; 2]; ROUNDS]) {
    let multipliers = MULTIPLIERS.map(|word| _mm256_set1_epi64x(i64::from(word)));
    for keys in keys {
        for state in &mut *state {
            let [a, b, c, d] = *state;
            let (from_a, from_c) = (_mm256_mul_epu32(a, multipliers[0]), _mm256_mul_epu32(c, multipliers[1]));
            let first = _mm256_xor_si256(_mm256_srli_epi64::<32>(from_c), _mm256_xor_si256(b, keys[0]));
            let third = _mm256_xor_si256(_mm256_srli_epi64::<32>(from_a), _mm256_xor_si256(d, keys[1]));
            *state = [first, from_c, third, from_a];
        }
    }
}

/// Writes the four words of each counter one after the other.
#[target_feature(enable = "avx2")]
#[inline]
fn write([a, b, c, d]: [__m256i; WORDS], out: &mut [u32; WORDS * COUNTERS]) {
    const HIGH_HALVES: i32 = 0b1010_1010;
    let first_two = _mm256_blend_epi32::<HIGH_HALVES>(a, _mm256_slli_epi64::<32>(b));
    let last_two = _mm256_blend_epi32::<HIGH_HALVES>(c, _mm256_slli_epi64::<32>(d));
    let (even, odd) =
        (_mm256_unpacklo_epi64(first_two, last_two), _mm256_unpackhi_epi64(first_two, last_two));
    let halves = [_mm256_permute2x128_si256::<0x20>(even, odd), _mm256_permute2x128_si256::<0x31>(even, odd)];
    for (half, out) in halves.into_iter().zip(out.as_chunks_mut::<8>().0) {
        // SAFETY: eight words are a vector.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), half) }
    }
}
