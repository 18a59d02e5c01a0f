//! Vectors that are arrays: for processors without vector instructions of their own, and to take the ways of wider ones.

use std::ops::{Add, Div, Mul, Sub};

use super::Vector;
use crate::base::math::{Lanes, fused_multiply_add};

/// `N` numbers.
#[derive(Clone, Copy)]
pub(super) struct Plain<const N: usize>([f32; N]);

impl<const N: usize> Plain<N> {
    /// A loop rather than `map`, which is not always compiled into the code around it.
    #[inline(always)]
    fn each(self, other: Self, operation: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self;
        for (out, other) in out.0.iter_mut().zip(other.0) {
            *out = operation(*out, other);
        }
        out
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<const N: usize> $trait for Plain<N> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.each(other, $trait::$method)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

// SAFETY: loads and stores are those of arrays and of slices of `n` elements.
unsafe impl<const N: usize> Vector for Plain<N> {
    const LANES: usize = N;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Plain([x; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Plain(unsafe { from.cast::<[f32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        let mut out = [0.0; N];
        // SAFETY: the caller's promise; the array is new.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n) }
        Plain(out)
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        // SAFETY: the caller's promise; the array is our own.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), to, n) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        let mut out = self;
        for ((out, factor), term) in out.0.iter_mut().zip(factor.0).zip(term.0) {
            *out = fused_multiply_add(*out, factor, term);
        }
        out
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, term: Self) -> Self {
        let mut out = self;
        for ((out, factor), term) in out.0.iter_mut().zip(factor.0).zip(term.0) {
            *out = fused_multiply_add(-*out, factor, term);
        }
        out
    }

    #[inline(always)]
    fn at_most(self, end: Self) -> Self {
        self.each(end, |x, end| if x > end { end } else { x })
    }

    #[inline(always)]
    fn at_least(self, end: Self) -> Self {
        self.each(end, |x, end| if x < end { end } else { x })
    }

    #[inline(always)]
    fn low_bits_as_eighths(self) -> Self {
        self.each(self, |x, _| Lanes::low_bits_as_eighths(x))
    }

    #[inline(always)]
    fn low_bits_as_exponent(self) -> Self {
        self.each(self, |x, _| Lanes::low_bits_as_exponent(x))
    }
}
