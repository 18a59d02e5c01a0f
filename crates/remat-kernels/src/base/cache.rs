//! What the first-level cache of this processor looks like, as far as kernels care.
//!
//! It decides what is copied before it is read, never a result: copies hold the same numbers.

use std::sync::OnceLock;

/// Ways of a set of the first-level data cache: so many lines that lie a power of two apart can be in it at once. Eight where
/// the processor does not say.
pub(crate) fn first_level_ways() -> usize {
    static WAYS: OnceLock<usize> = OnceLock::new();
    *WAYS.get_or_init(|| reported_ways().unwrap_or(8))
}

/// What the processor reports of its caches: Intel's in leaf 4, AMD's in leaf 0x8000_001D, with the same meaning.
#[cfg(target_arch = "x86_64")]
fn reported_ways() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let (data, first) = (1, 1);
    // A leaf beyond the last one answers as if it were another.
    let leaf = [4, 0x8000_001d].into_iter().filter(|leaf| __cpuid(leaf & 0x8000_0000).eax >= *leaf);
    let caches = leaf.flat_map(|leaf| (0..8).map(move |index| __cpuid_count(leaf, index)));
    let mut first_level = caches.filter(|cache| (cache.eax & 0x1f, cache.eax >> 5 & 7) == (data, first));
    first_level.next().map(|cache| (cache.ebx >> 22) as usize + 1)
}

#[cfg(not(target_arch = "x86_64"))]
fn reported_ways() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ways_is_a_sensible_one() {
        assert!((2..=64).contains(&first_level_ways()), "{}", first_level_ways());
    }
}
