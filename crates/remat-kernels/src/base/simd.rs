//! One source, three machine codes: functions compiled for the baseline CPU, for AVX2 with fused multiply-adds, and for
//! AVX-512. What needs vectors in its source is a [`Kernel`](super::vector::Kernel) instead.
//!
//! A wide version runs if [`isa`](super::isa) says so. It gives the same bits: the compiler never fuses a multiply
//! with an add on its own, a `mul_add` in the source is fused on every CPU (by a slow library call where there is no
//! instruction), and the order of sums is written out as arrays of lanes in the source.
//!
//! **Why by hand.** It is one short macro. The `multiversion` crate does the same with procedural macros, whose parser would be
//! most of what this crate compiles, and `std::simd` is not stable.

/// Defines a function whose body is compiled three times; callees must be `#[inline(always)]` to follow it.
///
/// Generic parameters are given in brackets before the arguments: `fn name[const N: usize](…)`.
macro_rules! wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $([$($generics:tt)*])? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
     $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<$($($generics)*)?>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$($($generics)*)?>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2<$($($generics)*)?>($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512<$($($generics)*)?>($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if $crate::base::isa::has_avx512() {
                    // SAFETY: the processor has what was chosen.
                    return unsafe { avx512($($arg),*) };
                }
                if $crate::base::isa::has_avx2() {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use wide;
