//! Vectors of sixteen numbers, with AVX-512.

use std::arch::x86_64::{
    __m512, __mmask16, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_broadcast_i64x4,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_min_ps,
    _mm512_mul_ps, _mm512_permutexvar_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_sub_ps,
};
use std::ops::{Add, Div, Mul, Sub};

use super::{Kernel, Vector};
use crate::base::math::{MANTISSA_BITS, ROOT_BITS, SHIFT};

/// Runs a kernel with these vectors.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<V16>()
}

/// Sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct V16(__m512);

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:ident) => {
        impl $trait for V16 {
            type Output = V16;
            #[inline(always)]
            fn $method(self, other: V16) -> V16 {
                // SAFETY: where there is a vector, there is the instruction.
                V16(unsafe { $operation(self.0, other.0) })
            }
        }
    };
}

operator!(Add, add, _mm512_add_ps);
operator!(Sub, sub, _mm512_sub_ps);
operator!(Mul, mul, _mm512_mul_ps);
operator!(Div, div, _mm512_div_ps);

/// The first `n` lanes, of at most 16.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

// SAFETY: the instructions touch what they are said to; masked ones leave the other lanes alone.
unsafe impl Vector for V16 {
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(x: f32) -> V16 {
        // SAFETY: where there is a vector, there is the instruction; the same holds below.
        V16(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> V16 {
        // SAFETY: the caller's promise.
        V16(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> V16 {
        // SAFETY: the caller's promise.
        V16(unsafe { _mm512_maskz_loadu_ps(first(n), from) })
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to, first(n), self.0) }
    }

    #[inline(always)]
    fn mul_add(self, factor: V16, term: V16) -> V16 {
        // SAFETY: as in `splat`.
        V16(unsafe { _mm512_fmadd_ps(self.0, factor.0, term.0) })
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: V16, term: V16) -> V16 {
        // SAFETY: as in `splat`.
        V16(unsafe { _mm512_fnmadd_ps(self.0, factor.0, term.0) })
    }

    // The instructions return the second operand if one is not a number.
    #[inline(always)]
    fn at_most(self, end: V16) -> V16 {
        // SAFETY: as in `splat`.
        V16(unsafe { _mm512_min_ps(end.0, self.0) })
    }

    #[inline(always)]
    fn at_least(self, end: V16) -> V16 {
        // SAFETY: as in `splat`.
        V16(unsafe { _mm512_max_ps(end.0, self.0) })
    }

    #[inline(always)]
    fn low_bits_as_eighths(self) -> V16 {
        // SAFETY: as in `splat`; the table is eight numbers, twice in the vector.
        V16(unsafe {
            let bits = _mm512_castps_si512(self.0);
            let roots = _mm512_broadcast_i64x4(_mm256_loadu_si256(ROOT_BITS.as_ptr().cast()));
            // Only the low four bits of an index count, and the fourth changes nothing.
            let root = _mm512_permutexvar_epi32(bits, roots);
            let exponent = _mm512_slli_epi32::<{ SHIFT }>(bits);
            _mm512_castsi512_ps(_mm512_add_epi32(root, exponent))
        })
    }

    #[inline(always)]
    fn low_bits_as_exponent(self) -> V16 {
        // SAFETY: as in `splat`.
        V16(unsafe {
            let bits = _mm512_castps_si512(self.0);
            _mm512_castsi512_ps(_mm512_slli_epi32::<MANTISSA_BITS>(bits))
        })
    }

    #[inline(always)]
    fn in_step<const K: usize>(mut vectors: [V16; K]) -> [V16; K] {
        if let [a, b] = &mut vectors[..] {
            // SAFETY: as in `splat`.
            [a.0, b.0] = unsafe { in_step([a.0, b.0]) };
        }
        vectors
    }
}

/// No instruction at all, but one that seems to make two vectors out of two.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_step([mut a, mut b]: [__m512; 2]) -> [__m512; 2] {
    // SAFETY: nothing is executed.
    unsafe {
        std::arch::asm!(
            "/* {} {} */", inout(zmm_reg) a, inout(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [a, b]
}
