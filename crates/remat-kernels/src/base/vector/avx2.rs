//! Vectors of eight numbers, with AVX2 and fused multiply-adds.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_add_epi32, _mm256_add_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmpgt_epi32, _mm256_div_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_slli_epi32,
    _mm256_storeu_ps, _mm256_sub_ps,
};
use std::ops::{Add, Div, Mul, Sub};

use super::{Kernel, Vector};
use crate::base::math::{MANTISSA_BITS, ROOT_BITS, SHIFT};

/// Runs a kernel with these vectors.
#[target_feature(enable = "avx2,fma")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<V8>()
}

/// Eight numbers.
#[derive(Clone, Copy)]
pub(super) struct V8(__m256);

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:ident) => {
        impl $trait for V8 {
            type Output = V8;
            #[inline(always)]
            fn $method(self, other: V8) -> V8 {
                // SAFETY: where there is a vector, there is the instruction.
                V8(unsafe { $operation(self.0, other.0) })
            }
        }
    };
}

operator!(Add, add, _mm256_add_ps);
operator!(Sub, sub, _mm256_sub_ps);
operator!(Mul, mul, _mm256_mul_ps);
operator!(Div, div, _mm256_div_ps);

/// All bits of the first `n` lanes.
#[inline(always)]
fn first(n: usize) -> __m256i {
    // SAFETY: called by methods of vectors only.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

// SAFETY: the instructions touch what they are said to; masked ones leave the other lanes alone.
unsafe impl Vector for V8 {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> V8 {
        // SAFETY: where there is a vector, there is the instruction; the same holds below.
        V8(unsafe { _mm256_set1_ps(x) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> V8 {
        // SAFETY: the caller's promise.
        V8(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> V8 {
        // SAFETY: the caller's promise.
        V8(unsafe { _mm256_maskload_ps(from, first(n)) })
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_maskstore_ps(to, first(n), self.0) }
    }

    #[inline(always)]
    fn mul_add(self, factor: V8, term: V8) -> V8 {
        // SAFETY: as in `splat`.
        V8(unsafe { _mm256_fmadd_ps(self.0, factor.0, term.0) })
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: V8, term: V8) -> V8 {
        // SAFETY: as in `splat`.
        V8(unsafe { _mm256_fnmadd_ps(self.0, factor.0, term.0) })
    }

    // The instructions return the second operand if one is not a number.
    #[inline(always)]
    fn at_most(self, end: V8) -> V8 {
        // SAFETY: as in `splat`.
        V8(unsafe { _mm256_min_ps(end.0, self.0) })
    }

    #[inline(always)]
    fn at_least(self, end: V8) -> V8 {
        // SAFETY: as in `splat`.
        V8(unsafe { _mm256_max_ps(end.0, self.0) })
    }

    #[inline(always)]
    fn low_bits_as_eighths(self) -> V8 {
        // SAFETY: as in `splat`; the table is eight numbers.
        V8(unsafe {
            let bits = _mm256_castps_si256(self.0);
            let roots = _mm256_loadu_si256(ROOT_BITS.as_ptr().cast());
            // Only the low three bits of an index count.
            let root = _mm256_permutevar8x32_epi32(roots, bits);
            let exponent = _mm256_slli_epi32::<{ SHIFT as i32 }>(bits);
            _mm256_castsi256_ps(_mm256_add_epi32(root, exponent))
        })
    }

    #[inline(always)]
    fn low_bits_as_exponent(self) -> V8 {
        // SAFETY: as in `splat`.
        V8(unsafe {
            let bits = _mm256_castps_si256(self.0);
            _mm256_castsi256_ps(_mm256_slli_epi32::<{ MANTISSA_BITS as i32 }>(bits))
        })
    }

    #[inline(always)]
    fn in_step<const K: usize>(mut vectors: [V8; K]) -> [V8; K] {
        if let [a, b, c, d] = &mut vectors[..] {
            // SAFETY: as in `splat`.
            [a.0, b.0, c.0, d.0] = unsafe { in_step([a.0, b.0, c.0, d.0]) };
        }
        vectors
    }
}

/// No instruction at all, but one that seems to make four vectors out of four.
#[inline]
#[target_feature(enable = "avx2")]
fn in_step([mut a, mut b, mut c, mut d]: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: nothing is executed.
    unsafe {
        std::arch::asm!(
            "/* {} {} {} {} */", inout(ymm_reg) a, inout(ymm_reg) b, inout(ymm_reg) c, inout(ymm_reg) d,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [a, b, c, d]
}
