//! The caches of this processor, as far as kernels care: their sizes, and hints of what will be needed.
//!
//! They decide what is copied before it is read and how much a task takes at a time, never a result.

use std::sync::OnceLock;

/// A data cache of a core.
#[derive(Clone, Copy, Debug)]
struct Cache {
    bytes: usize,
    /// Lines that a set has room for.
    ways: usize,
}

/// The caches of a core, or what most have where the processor does not say.
fn caches() -> [Cache; 2] {
    static CACHES: OnceLock<[Cache; 2]> = OnceLock::new();
    *CACHES.get_or_init(|| {
        let usual = [Cache { bytes: 1 << 15, ways: 8 }, Cache { bytes: 1 << 19, ways: 8 }];
        [1, 2].map(|level| reported(level).unwrap_or(usual[level as usize - 1]))
    })
}

/// Ways of a set of the first-level data cache: so many lines that lie a power of two apart can be in it at once.
pub(crate) fn first_level_ways() -> usize {
    caches()[0].ways
}

/// Bytes of the second-level cache.
pub(crate) fn second_level_bytes() -> usize {
    caches()[1].bytes
}

/// Whether the second-level cache can hold a line of each of `n` rows that lie `stride` bytes apart.
pub(crate) fn second_level_has_room(n: usize, stride: usize) -> bool {
    caches()[1].has_room(n, stride)
}

impl Cache {
    fn has_room(self, n: usize, stride: usize) -> bool {
        // Addresses that differ by a multiple of this share a set.
        let period = self.bytes / self.ways;
        n <= self.ways * (period / greatest_common_divisor(period, stride).max(LINE_BYTES))
    }
}

/// Bytes of a line, and the elements that it holds.
const LINE_BYTES: usize = 64;
pub(crate) const LINE: usize = LINE_BYTES / size_of::<f32>();

/// Asks for the line of an address, into the second-level cache: the first one is full of what is being computed.
#[inline(always)]
pub(crate) fn prefetch(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the line of an address that will be written when the sums are there.
#[inline(always)]
pub(crate) fn prefetch_for_writing(address: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// What the processor says of a level: Intel's in leaf 4, AMD's in leaf 0x8000_001D, with the same meaning.
/// Miri has no such instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
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
        Cache { bytes: ways * partitions * line * sets, ways }
    })
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
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

    #[test]
    fn rows_a_power_of_two_apart_share_sets() {
        let cache = Cache { bytes: 2 << 20, ways: 16 };
        assert!(cache.has_room(16, 128 << 10) && !cache.has_room(17, 128 << 10));
        assert!(cache.has_room(128, 16 << 10) && !cache.has_room(129, 16 << 10));
        assert!(cache.has_room(256, 8 << 10));
        // An odd number of lines apart, and within lines.
        assert!(cache.has_room(32 << 10, (16 << 10) + LINE) && cache.has_room(32 << 10, 4 * 50_257));
    }
}
