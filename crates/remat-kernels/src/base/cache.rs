//! The caches of this processor, as far as kernels care.
//!
//! They decide what is copied before it is read and how much a task takes at a time, never a result.

use std::sync::OnceLock;

/// The caches of a core, or what most have where the processor does not say.
#[derive(Clone, Copy, Debug)]
struct Caches {
    first_level_ways: usize,
    second_level_bytes: usize,
}

fn caches() -> Caches {
    static CACHES: OnceLock<Caches> = OnceLock::new();
    *CACHES.get_or_init(|| Caches {
        first_level_ways: reported(1).map_or(8, |cache| cache.ways),
        second_level_bytes: reported(2).map_or(1 << 19, |cache| cache.bytes),
    })
}

/// Ways of a set of the first-level data cache: so many lines that lie a power of two apart can be in it at once.
pub(crate) fn first_level_ways() -> usize {
    caches().first_level_ways
}

/// Bytes of the second-level cache.
pub(crate) fn second_level_bytes() -> usize {
    caches().second_level_bytes
}

struct Cache {
    ways: usize,
    bytes: usize,
}

/// What the processor says of a level: Intel's in leaf 4, AMD's in leaf 0x8000_001D, with the same meaning.
#[cfg(target_arch = "x86_64")]
fn reported(level: u32) -> Option<Cache> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // Instructions alone are not what is looked for.
    const INSTRUCTIONS: u32 = 2;
    // A leaf beyond the last one answers as if it were another.
    let leaves = [4, 0x8000_001d].into_iter().filter(|leaf| __cpuid(leaf & 0x8000_0000).eax >= *leaf);
    // The list of caches ends with one of no kind.
    let caches = leaves.flat_map(|leaf| {
        (0..8).map(move |index| __cpuid_count(leaf, index)).take_while(|cache| cache.eax & 0x1f != 0)
    });
    let mut of_level = caches.filter(|cache| cache.eax >> 5 & 7 == level && cache.eax & 0x1f != INSTRUCTIONS);
    of_level.next().map(|cache| {
        let field = |shift: u32, bits: u32| (cache.ebx >> shift & ((1 << bits) - 1)) as usize + 1;
        let (ways, partitions, line, sets) =
            (field(22, 10), field(12, 10), field(0, 12), cache.ecx as usize + 1);
        Cache { ways, bytes: ways * partitions * line * sets }
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn reported(_level: u32) -> Option<Cache> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_sensible() {
        assert!((2..=64).contains(&first_level_ways()), "{:?}", caches());
        assert!((1 << 16..=1 << 28).contains(&second_level_bytes()), "{:?}", caches());
    }
}
