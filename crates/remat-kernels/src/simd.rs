//! One source, two machine codes: functions compiled for the baseline CPU and again for AVX2.
//!
//! The wide version is chosen at run time. It gives the same bits: the compiler never fuses a multiply with an add
//! on its own, the kernels never ask for it, and vector lanes are written out as arrays in the source.

/// Defines a function whose body is compiled twice; callees must be `#[inline(always)]` to follow it.
///
/// Generic parameters stand in brackets before the arguments: `fn name[const N: usize](…)`.
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
                #[target_feature(enable = "avx2")]
                fn avx2<$($($generics)*)?>($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the CPU has AVX2, as just detected.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use wide;
