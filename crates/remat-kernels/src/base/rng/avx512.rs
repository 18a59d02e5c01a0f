//! The same numbers with the vectors of AVX-512: a group of counters is one vector.

use super::{GROUPS, HALVES, KEY_INCREMENTS, Key, LANES, MULTIPLIERS, ROUNDS, WORDS, first_counter};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_mask_blend_epi32, _mm512_mul_epu32, _mm512_permutex2var_epi64,
    _mm512_set1_epi64, _mm512_setr_epi64, _mm512_shuffle_epi32, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_xor_si512,
};

/// Vectors of counters that are drawn together, because each round waits for the one before it.
const TOGETHER: usize = 2;

/// Fills groups of `LANES` counters from `first_block` on.
#[target_feature(enable = "avx512f")]
pub(super) fn fill(key: Key, first_block: u64, groups: &mut [[u32; WORDS * LANES]]) {
    let draws = WideDraws::new(key);
    let block = |i: usize| first_block.wrapping_add((i * LANES) as u64);
    let (together, rest) = groups.as_chunks_mut::<TOGETHER>();
    for (i, groups) in together.iter_mut().enumerate() {
        *groups = draws.words(block(TOGETHER * i));
    }
    for (i, group) in rest.iter_mut().enumerate() {
        [*group] = draws.words(block(TOGETHER * together.len() + i));
    }
}

/// The high halves of products where the low ones were. A shuffle, because shifts share a unit with the multiplications;
/// what it leaves in the high halves means nothing.
#[inline]
#[target_feature(enable = "avx512f")]
fn high_halves(products: __m512i) -> __m512i {
    _mm512_shuffle_epi32::<0b11_11_01_01>(products)
}

/// The low halves in place of the high ones. A shift would be made one with the multiplication before it, and those of 64
/// bits are slow.
#[inline]
#[target_feature(enable = "avx512f")]
fn low_halves_up(words: __m512i) -> __m512i {
    _mm512_shuffle_epi32::<0b10_10_00_00>(words)
}

/// A key, ready for use.
pub(crate) struct WideDraws {
    counter_high: [__m512i; 2],
    round_keys: [[__m512i; 2]; ROUNDS],
}

impl WideDraws {
    #[target_feature(enable = "avx512f")]
    pub(crate) fn new(key: Key) -> WideDraws {
        let mut round_keys = [[_mm512_set1_epi64(0); 2]; ROUNDS];
        let [mut first, mut second] = key.key;
        for keys in &mut round_keys {
            *keys = [_mm512_set1_epi64(i64::from(first)), _mm512_set1_epi64(i64::from(second))];
            (first, second) = (first.wrapping_add(KEY_INCREMENTS[0]), second.wrapping_add(KEY_INCREMENTS[1]));
        }
        let [third, fourth] = key.counter_high;
        let counter_high = [_mm512_set1_epi64(i64::from(third)), _mm512_set1_epi64(i64::from(fourth))];
        WideDraws { counter_high, round_keys }
    }

    /// [`halves_from`](super::halves_from) with vector instructions, for twice as many groups.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn halves_from(&self, index: u64) -> [[u32; HALVES / 2]; TOGETHER * GROUPS] {
        let mut groups = [[0; HALVES / 2]; TOGETHER * GROUPS];
        let words = self.words::<TOGETHER>(first_counter(index));
        groups.as_flattened_mut().copy_from_slice(words.as_flattened());
        groups
    }

    /// The numbers of `N` times `LANES` counters from `first_block` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn words<const N: usize>(&self, first_block: u64) -> [[u32; WORDS * LANES]; N] {
        let multipliers = MULTIPLIERS.map(|word| _mm512_set1_epi64(i64::from(word)));
        let [third, fourth] = self.counter_high;
        let mut counter = _mm512_add_epi64(
            _mm512_set1_epi64(first_block as i64),
            _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7),
        );
        let mut states = [[third; WORDS]; N];
        for state in &mut states {
            *state = [counter, _mm512_srli_epi64::<32>(counter), third, fourth];
            counter = _mm512_add_epi64(counter, _mm512_set1_epi64(LANES as i64));
        }
        for keys in &self.round_keys {
            for state in &mut states {
                let [a, b, c, d] = *state;
                let (from_a, from_c) =
                    (_mm512_mul_epu32(a, multipliers[0]), _mm512_mul_epu32(c, multipliers[1]));
                let first = _mm512_xor_si512(high_halves(from_c), _mm512_xor_si512(b, keys[0]));
                let third = _mm512_xor_si512(high_halves(from_a), _mm512_xor_si512(d, keys[1]));
                *state = [first, from_c, third, from_a];
            }
        }
        let mut words = [[0; WORDS * LANES]; N];
        for (state, words) in states.into_iter().zip(&mut words) {
            write(state, words);
        }
        words
    }
}

/// Writes the four words of each counter one after the other.
#[inline]
#[target_feature(enable = "avx512f")]
fn write([a, b, c, d]: [__m512i; WORDS], words: &mut [u32; WORDS * LANES]) {
    const HIGH_HALVES: u16 = 0b1010_1010_1010_1010;
    let first_two = _mm512_mask_blend_epi32(HIGH_HALVES, a, low_halves_up(b));
    let last_two = _mm512_mask_blend_epi32(HIGH_HALVES, c, low_halves_up(d));
    let halves = [
        _mm512_permutex2var_epi64(first_two, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), last_two),
        _mm512_permutex2var_epi64(first_two, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), last_two),
    ];
    for (half, out) in halves.into_iter().zip(words.as_chunks_mut::<16>().0) {
        // SAFETY: sixteen words are a vector.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), half) }
    }
}
