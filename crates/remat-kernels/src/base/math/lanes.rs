//! Numbers that go through a long function side by side.
//!
//! A function that is written for any [`Lanes`] is compiled for one `f32` and for vectors side by side: four of eight or two
//! of sixteen. Several, because a polynomial is a chain of operations that wait for each other: chains side by side keep
//! the units busy, and a constant is loaded once for all of them. The compiler alone takes one vector after the other. All
//! give the same bits, since every operation rounds once, on its own.

use std::f32::consts::SQRT_2;
use std::ops::{Add, Div, Mul, Sub};

use crate::base::vector::Vector;

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

    /// `2^(m - 127)`, where `m` are the low bits of `self`, read as an integer.
    fn low_bits_as_exponent(self) -> Self;
}

/// `2^0`, `2^(1/8)`, … `2^(7/8)`.
const ROOTS: [f32; 8] =
    [1.0, 1.090_507_7, 1.189_207_1, 1.296_839_6, SQRT_2, 1.542_210_8, 1.681_792_9, 1.834_008_1];
/// Bits of an `f32` below its exponent field.
pub(crate) const MANTISSA_BITS: u32 = 23;
/// What moves the bits above the lowest three to the exponent field of an `f32`.
pub(crate) const SHIFT: u32 = 20;
/// The bits of the roots, without what the exponent 0 and the lowest three bits of the number that is shifted add to them.
pub(crate) const ROOT_BITS: [u32; 8] = {
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

    #[inline(always)]
    fn low_bits_as_exponent(self) -> f32 {
        f32::from_bits(self.to_bits() << MANTISSA_BITS)
    }
}

/// Vectors side by side.
#[derive(Clone, Copy)]
pub(crate) struct Bundle<V, const K: usize>(pub(crate) [V; K]);

/// Numbers that go through a function together, whatever the width of a vector is.
pub(crate) const BUNDLE: usize = 32;

impl<V: Vector, const K: usize> Bundle<V, K> {
    #[inline(always)]
    pub(crate) fn read(x: &[f32; BUNDLE]) -> Self {
        assert_eq!(K * V::LANES, BUNDLE, "vectors that hold a bundle");
        let mut vectors = [V::splat(0.0); K];
        for (vector, x) in vectors.iter_mut().zip(x.chunks_exact(V::LANES)) {
            // SAFETY: a chunk has as many elements as a vector.
            *vector = unsafe { V::load(x.as_ptr()) };
        }
        Bundle(vectors)
    }

    #[inline(always)]
    pub(crate) fn to_array(self) -> [f32; BUNDLE] {
        let mut out = [0.0; BUNDLE];
        for (vector, out) in self.0.into_iter().zip(out.chunks_exact_mut(V::LANES)) {
            // SAFETY: a chunk has as many elements as a vector.
            unsafe { vector.store(out.as_mut_ptr()) };
        }
        out
    }

    /// A loop rather than `map`, which is not always compiled into the code around it.
    #[inline(always)]
    fn each(self, operation: impl Fn(V) -> V) -> Self {
        let mut out = self;
        for out in &mut out.0 {
            *out = operation(*out);
        }
        out
    }

    #[inline(always)]
    fn both(self, other: Self, operation: impl Fn(V, V) -> V) -> Self {
        let mut out = self;
        for (out, other) in out.0.iter_mut().zip(other.0) {
            *out = operation(*out, other);
        }
        out
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<V: Vector, const K: usize> $trait for Bundle<V, K> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.both(other, $trait::$method)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

impl<V: Vector, const K: usize> Lanes for Bundle<V, K> {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Bundle([V::splat(x); K])
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        let mut out = self;
        for ((out, factor), term) in out.0.iter_mut().zip(factor.0).zip(term.0) {
            *out = out.mul_add(factor, term);
        }
        out
    }

    #[inline(always)]
    fn in_step(self) -> Self {
        Bundle(V::in_step(self.0))
    }

    #[inline(always)]
    fn at_most(self, end: f32) -> Self {
        let end = V::splat(end);
        self.each(|x| x.at_most(end))
    }

    #[inline(always)]
    fn at_least(self, end: f32) -> Self {
        let end = V::splat(end);
        self.each(|x| x.at_least(end))
    }

    #[inline(always)]
    fn low_bits_as_eighths(self) -> Self {
        self.each(V::low_bits_as_eighths)
    }

    #[inline(always)]
    fn low_bits_as_exponent(self) -> Self {
        self.each(V::low_bits_as_exponent)
    }
}
