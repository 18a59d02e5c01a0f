//! Numbers that go through a long function side by side.
//!
//! A function that is written for any [`Lanes`] is compiled for one `f32` and, for CPUs with AVX2, for four vectors of
//! eight. Four, because a polynomial is a chain of operations that wait for each other: four chains side by side keep the
//! units busy, and a constant is loaded once for all of them. The compiler alone takes one vector after the other. Both
//! give the same bits, since every operation rounds once, on its own.

use std::f32::consts::SQRT_2;
use std::ops::{Add, Div, Mul, Sub};

/// One or more numbers; operations work on each of them.
pub(crate) trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The same number everywhere.
    fn splat(x: f32) -> Self;

    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;

    /// The same numbers; whatever is computed from one of them comes after all of them in the machine code.
    fn in_step(self) -> Self;

    /// The smaller one of `self` and `end`; not-a-number stays.
    fn at_most(self, end: f32) -> Self;

    /// The larger one of `self` and `end`; not-a-number stays.
    fn at_least(self, end: f32) -> Self;

    /// `2^(m / 8 - 127)`, where `m` are the low bits of `self`, read as an integer.
    fn low_bits_as_eighths(self) -> Self;
}

/// `2^0`, `2^(1/8)`, … `2^(7/8)`.
const ROOTS: [f32; 8] =
    [1.0, 1.090_507_7, 1.189_207_1, 1.296_839_6, SQRT_2, 1.542_210_8, 1.681_792_9, 1.834_008_1];
/// What moves the bits above the lowest three to the exponent field of an `f32`.
const SHIFT: u32 = 20;
/// The bits of the roots, without what the exponent 0 and the lowest three bits of the number that is shifted add to them.
const ROOT_BITS: [u32; 8] = {
    let mut bits = [0; 8];
    let mut i = 0;
    while i < bits.len() {
        bits[i] = (ROOTS[i].to_bits() - (127 << 23)).wrapping_sub((i as u32) << SHIFT);
        i += 1;
    }
    bits
};

impl Lanes for f32 {
    #[inline(always)]
    fn splat(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn mul_add(self, factor: f32, term: f32) -> f32 {
        f32::mul_add(self, factor, term)
    }

    #[inline(always)]
    fn in_step(self) -> f32 {
        self
    }

    #[inline(always)]
    fn at_most(self, end: f32) -> f32 {
        if self > end { end } else { self }
    }

    #[inline(always)]
    fn at_least(self, end: f32) -> f32 {
        if self < end { end } else { self }
    }

    #[inline(always)]
    fn low_bits_as_eighths(self) -> f32 {
        let bits = self.to_bits();
        f32::from_bits(ROOT_BITS[(bits % 8) as usize].wrapping_add(bits << SHIFT))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Vectors;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, _mm256_add_epi32, _mm256_add_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_div_ps,
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
        _mm256_permutevar8x32_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
    };
    use std::ops::{Add, Div, Mul, Sub};

    use super::{Lanes, ROOT_BITS, SHIFT};

    /// Vectors side by side.
    const VECTORS: usize = 4;
    /// Numbers of a vector.
    const WIDTH: usize = 8;

    /// Four vectors of eight numbers. There are none without AVX2 and fused multiply-adds: whoever makes the first one
    /// promises them, and all methods rely on it.
    #[derive(Clone, Copy)]
    pub(crate) struct Vectors([__m256; VECTORS]);

    impl Vectors {
        /// All the numbers.
        pub(crate) const LANES: usize = VECTORS * WIDTH;

        /// # Safety
        /// The CPU has AVX2 and fused multiply-adds.
        #[inline(always)]
        pub(crate) unsafe fn read(x: &[f32; Self::LANES]) -> Vectors {
            let pointer = x.as_ptr();
            // SAFETY: the instruction is there by the caller's promise, and every vector lies inside the array.
            Vectors(unsafe {
                [
                    _mm256_loadu_ps(pointer),
                    _mm256_loadu_ps(pointer.add(WIDTH)),
                    _mm256_loadu_ps(pointer.add(2 * WIDTH)),
                    _mm256_loadu_ps(pointer.add(3 * WIDTH)),
                ]
            })
        }

        #[inline(always)]
        pub(crate) fn to_array(self) -> [f32; Self::LANES] {
            let mut out = [0.0; Self::LANES];
            let pointer = out.as_mut_ptr();
            // SAFETY: a `Vectors` exists, so the instruction does; every vector lies inside the array.
            unsafe {
                _mm256_storeu_ps(pointer, self.0[0]);
                _mm256_storeu_ps(pointer.add(WIDTH), self.0[1]);
                _mm256_storeu_ps(pointer.add(2 * WIDTH), self.0[2]);
                _mm256_storeu_ps(pointer.add(3 * WIDTH), self.0[3]);
            }
            out
        }
    }

    /// An operation on every vector, written out, since `map` is not always compiled into the code around it.
    macro_rules! each {
        ($operation:ident($($operand:expr),*)) => {
            // SAFETY: a `Vectors` exists, so the instruction does.
            unsafe {
                Vectors([
                    $operation($($operand.0[0]),*),
                    $operation($($operand.0[1]),*),
                    $operation($($operand.0[2]),*),
                    $operation($($operand.0[3]),*),
                ])
            }
        };
    }

    macro_rules! operator {
        ($trait:ident, $method:ident, $operation:ident) => {
            impl $trait for Vectors {
                type Output = Vectors;
                #[inline(always)]
                fn $method(self, other: Vectors) -> Vectors {
                    each!($operation(self, other))
                }
            }
        };
    }

    operator!(Add, add, _mm256_add_ps);
    operator!(Sub, sub, _mm256_sub_ps);
    operator!(Mul, mul, _mm256_mul_ps);
    operator!(Div, div, _mm256_div_ps);

    impl Lanes for Vectors {
        #[inline(always)]
        fn splat(x: f32) -> Vectors {
            // SAFETY: only functions of a `Vectors` make others, so there is one, and the instruction exists.
            Vectors([unsafe { _mm256_set1_ps(x) }; VECTORS])
        }

        #[inline(always)]
        fn mul_add(self, factor: Vectors, term: Vectors) -> Vectors {
            each!(_mm256_fmadd_ps(self, factor, term))
        }

        #[inline(always)]
        fn in_step(self) -> Vectors {
            // SAFETY: a `Vectors` exists, so the CPU has AVX2.
            Vectors(unsafe { in_step(self.0) })
        }

        // The instructions return the second operand if one is not a number.
        #[inline(always)]
        fn at_most(self, end: f32) -> Vectors {
            let end = Vectors::splat(end);
            each!(_mm256_min_ps(end, self))
        }

        #[inline(always)]
        fn at_least(self, end: f32) -> Vectors {
            let end = Vectors::splat(end);
            each!(_mm256_max_ps(end, self))
        }

        #[inline(always)]
        fn low_bits_as_eighths(self) -> Vectors {
            #[inline(always)]
            unsafe fn power(x: __m256) -> __m256 {
                // SAFETY: the caller has a `Vectors`, so the instructions exist; the table is eight numbers.
                unsafe {
                    let bits = _mm256_castps_si256(x);
                    let roots = _mm256_loadu_si256(ROOT_BITS.as_ptr().cast());
                    // Only the low three bits of an index count.
                    let root = _mm256_permutevar8x32_epi32(roots, bits);
                    let exponent = _mm256_slli_epi32::<{ SHIFT as i32 }>(bits);
                    _mm256_castsi256_ps(_mm256_add_epi32(root, exponent))
                }
            }
            each!(power(self))
        }
    }

    /// No instruction at all, but one that seems to make four vectors out of four.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn in_step([mut a, mut b, mut c, mut d]: [__m256; VECTORS]) -> [__m256; VECTORS] {
        // SAFETY: nothing is executed.
        unsafe {
            std::arch::asm!(
                "/* {} {} {} {} */", inout(ymm_reg) a, inout(ymm_reg) b, inout(ymm_reg) c, inout(ymm_reg) d,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        [a, b, c, d]
    }
}
