//! Which instruction set the kernels use: chosen once, the same for all of them.
//!
//! The environment variable `REMAT_ISA` names one; without it, it is the best that this processor has. All of them give
//! the same bits, which the tests of every kernel check, so the choice only matters for speed. A new set is a variant of
//! [`Isa`], a line in [`Isa::is_available`] and a type in `vector`.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The environment variable that names the instruction set.
pub const VARIABLE: &str = "REMAT_ISA";

/// An instruction set, from the narrowest to the widest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Isa {
    /// What every processor of the target has, as the compiler uses it.
    Portable = 1,
    /// The ways of AVX-512 with arrays in place of vectors: slower than anything else, for tests on processors that do
    /// not have it.
    Emulated512,
    /// AVX2 with fused multiply-adds.
    Avx2,
    /// AVX-512: the instructions for numbers, integers and halves of vectors (F, DQ, BW, VL).
    Avx512,
}

impl Isa {
    /// All of them, from the narrowest to the widest.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Emulated512, Isa::Avx2, Isa::Avx512];

    /// The name, as in `REMAT_ISA`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Emulated512 => "emulated512",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable | Isa::Emulated512 => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// Those that this processor has.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The widest that this processor has.
    pub fn best() -> Isa {
        Isa::available().filter(|&isa| isa != Isa::Emulated512).last().unwrap_or(Isa::Portable)
    }

    /// The one with this name, if this processor has it; else what is wrong and what would be right.
    pub fn named(name: &str) -> Result<Isa, String> {
        let names = |sets: &mut dyn Iterator<Item = Isa>| sets.map(Isa::name).collect::<Vec<_>>().join(", ");
        match Isa::ALL.into_iter().find(|isa| isa.name() == name) {
            Some(isa) if isa.is_available() => Ok(isa),
            Some(_) => {
                Err(format!("this processor does not have `{name}`; it has {}", names(&mut Isa::available())))
            }
            None => Err(format!("`{name}` is none of {}", names(&mut Isa::ALL.into_iter()))),
        }
    }

    /// The one that the environment names, or the best there is.
    pub fn from_environment() -> Result<Isa, String> {
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(Isa::best()) };
        Isa::named(&name.to_string_lossy()).map_err(|message| format!("{VARIABLE}: {message}"))
    }
}

/// The choice; 0 until there is one.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The instruction set that kernels use; always one that this processor has. What the environment names wrongly does not
/// count here: programs ask [`Isa::from_environment`] first and say so.
#[inline(always)]
pub fn current() -> Isa {
    let chosen = usize::from(CHOSEN.load(Relaxed));
    Isa::ALL.get(chosen.wrapping_sub(1)).copied().unwrap_or_else(choose)
}

/// Whether kernels use AVX2 and fused multiply-adds, which the processor then has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    current() >= Isa::Avx2
}

/// Whether kernels use AVX-512, which the processor then has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    current() >= Isa::Avx512
}

#[cold]
fn choose() -> Isa {
    let isa = Isa::from_environment().unwrap_or_else(|_| Isa::best());
    CHOSEN.store(isa as u8, Relaxed);
    isa
}

/// Makes kernels use another instruction set from now on, on all threads; for tests and measurements.
///
/// # Panics
/// If this processor does not have it.
pub fn select(isa: Isa) {
    assert!(isa.is_available(), "this processor does not have {}", isa.name());
    CHOSEN.store(isa as u8, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_available_or_explained() {
        assert_eq!(Isa::named("portable"), Ok(Isa::Portable));
        for isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()), Ok(isa));
        }
        for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
            assert!(Isa::named(isa.name()).is_err_and(|message| message.contains("it has portable")));
        }
        for wrong in ["", "AVX2", "sse", "avx2 "] {
            let message = Isa::named(wrong).expect_err("no such set");
            assert!(message.contains("none of portable, emulated512, avx2, avx512"), "{message}");
        }
    }

    #[test]
    fn the_choice_is_one_that_the_processor_has() {
        assert!(current().is_available() && Isa::best().is_available());
    }
}
