//! The vectors that kernels are written with: once, for any number of lanes.
//!
//! A [`Kernel`] is a piece of work for any [`Vector`]. [`dispatch`] runs it with the one of the chosen instruction set:
//! 16 lanes of AVX-512, 8 of AVX2, or arrays of 8 lanes, which every processor has; arrays of 16 lanes take the ways of
//! AVX-512 on any processor (`REMAT_ISA=emulated512`). All of them give the same bits: every operation rounds once, lane
//! by lane, and the order of sums is written out in the kernels.
//!
//! The types are private, and [`dispatch`] alone names them. So where there is a vector, there are its instructions, and
//! that is what all of their methods rely on.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

use std::ops::{Add, Div, Mul, Sub};

use super::isa::{self, Isa};

/// Numbers side by side; operations work on each of them.
///
/// # Safety
/// Loads and stores touch exactly the elements that they name.
pub(crate) unsafe trait Vector:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Numbers of a vector.
    const LANES: usize;

    /// The same number everywhere.
    fn splat(x: f32) -> Self;

    /// # Safety
    /// `LANES` elements from `from` on are readable.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// `LANES` elements from `to` on are writable.
    unsafe fn store(self, to: *mut f32);

    /// The first `n` elements, and zeros beyond them.
    ///
    /// # Safety
    /// `n` elements from `from` on are readable; there are at most `LANES` of them.
    unsafe fn load_first(from: *const f32, n: usize) -> Self;

    /// # Safety
    /// `n` elements from `to` on are writable; there are at most `LANES` of them.
    unsafe fn store_first(self, to: *mut f32, n: usize);

    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;

    /// `term - self * factor`, rounded once.
    fn neg_mul_add(self, factor: Self, term: Self) -> Self;

    /// The smaller one of `self` and `end`; not-a-number stays.
    fn at_most(self, end: Self) -> Self;

    /// The larger one of `self` and `end`; not-a-number stays.
    fn at_least(self, end: Self) -> Self;

    /// `2^(m / 8 - 127)`, where `m` are the low bits of `self`, read as an integer.
    fn low_bits_as_eighths(self) -> Self;

    /// `2^(m - 127)`, where `m` are the low bits of `self`, read as an integer.
    fn low_bits_as_exponent(self) -> Self;

    /// The same vectors; whatever is computed from one of them comes after all of them in the machine code.
    #[inline(always)]
    fn in_step<const K: usize>(vectors: [Self; K]) -> [Self; K] {
        vectors
    }
}

/// A piece of work for any vector.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// Does the work. It must be `#[inline(always)]`, and so must be all that it calls with vectors: that is what puts the
    /// instructions of the set into the code.
    fn run<V: Vector>(self) -> Self::Output;
}

/// Runs a kernel with the vectors of the chosen instruction set.
#[inline(always)]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_to(isa::current(), kernel)
}

/// Runs a kernel with the vectors of an instruction set, which was [`isa::current`] before: for kernels that have laid out
/// their work for it.
#[inline(always)]
pub(crate) fn dispatch_to<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa {
        Isa::Portable => kernel.run::<plain::Plain<8>>(),
        Isa::Emulated512 => kernel.run::<plain::Plain<16>>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: only sets that the processor has can be chosen.
        Isa::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 => unsafe { avx512::run(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => unreachable!("no such set can be chosen on this processor"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every operation gives for numbers of which some are special, and for tails of every length.
    struct Everything<'a> {
        x: &'a [f32],
        y: &'a [f32],
    }

    impl Kernel for Everything<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<V: Vector>(self) -> Vec<u32> {
            let mut all = Vec::new();
            let mut out = vec![7.0f32; self.x.len()];
            for operation in 0..11 {
                let mut at = 0;
                while at < self.x.len() {
                    let n = V::LANES.min(self.x.len() - at);
                    // SAFETY: `n` elements are left of every slice.
                    unsafe {
                        let (x, y) = (
                            V::load_first(self.x.as_ptr().add(at), n),
                            V::load_first(self.y.as_ptr().add(at), n),
                        );
                        let result = match operation {
                            0 => x + y,
                            1 => x - y,
                            2 => x * y,
                            3 => x / y,
                            4 => x.mul_add(y, V::splat(0.3)),
                            5 => x.neg_mul_add(y, V::splat(0.3)),
                            6 => x.at_most(y),
                            7 => x.at_least(y),
                            8 => x.low_bits_as_eighths(),
                            9 => x.low_bits_as_exponent(),
                            _ => V::in_step([x, y])[1],
                        };
                        result.store_first(out.as_mut_ptr().add(at), n);
                    }
                    at += n;
                }
                all.extend(out.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }));
            }
            all
        }
    }

    #[test]
    fn all_vectors_give_the_same_bits() {
        for len in 1..=40 {
            // Any numbers of both signs will do; the generator of the other tests belongs to a later stage.
            let numbers = |factor: f32| (1..=len).map(move |i| (i as f32 * factor) % 1.7 - 0.8);
            let (mut x, mut y): (Vec<f32>, Vec<f32>) = (numbers(0.731).collect(), numbers(1.297).collect());
            for (i, special) in
                [0.0, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 3.0, 1e38].into_iter().enumerate()
            {
                if i < len {
                    x[i] = special;
                    y[len - 1 - i] = special;
                }
            }
            let work = || Everything { x: &x, y: &y };
            let want = dispatch_to(Isa::Portable, work());
            for isa in Isa::available() {
                assert!(dispatch_to(isa, work()) == want, "{} of length {len}", isa.name());
            }
        }
    }
}
