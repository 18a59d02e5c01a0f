//! Prefetching: asks for memory before it is needed, while something else is computed.
//!
//! In: a [`Region`], which says where an operand of the next piece of work of a product lies. Out: hints to the processor, a
//! few cache lines at a time. Packing and the first pass over rows of the left operand would otherwise wait for memory, and
//! a product with a short side does little else. A hint changes no result: a wrong one only costs time.
//!
//! The innermost loop asks for a line or two between some steps (`micro`). A core has room for a dozen requests; asked for more
//! of them at once, it waits: on a Xeon with AVX-512 that took a tenth of the time of a product.

/// Elements of a cache line.
const LINE: usize = 16;

/// Runs of elements that will be read soon, `stride` elements from one to the next.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) start: *const f32,
    pub(crate) n_runs: usize,
    pub(crate) stride: usize,
    pub(crate) run_len: usize,
}

impl Region {
    pub(crate) const NONE: Region = Region { start: std::ptr::null(), n_runs: 0, stride: 0, run_len: 0 };
}

/// A walk over the lines of a region, in parts.
pub(crate) struct Prefetch {
    region: Region,
    /// The element of its run with which the next line begins; `region.start` is where the run begins.
    at: usize,
    n_lines: usize,
    lines_per_part: usize,
}

impl Prefetch {
    /// Walks over the region in `n_parts` parts of about the same number of lines.
    pub(crate) fn new(region: Region, n_parts: usize) -> Prefetch {
        let n_lines = region.n_runs * region.run_len.div_ceil(LINE);
        Prefetch { region, at: 0, n_lines, lines_per_part: n_lines.div_ceil(n_parts.max(1)) }
    }

    /// Asks for the lines of one part. Always inlined: a call would have to save the sums of the tile around it.
    #[inline(always)]
    pub(crate) fn next_part(&mut self) {
        let n_lines = self.lines_per_part.min(self.n_lines);
        if n_lines == 0 {
            return;
        }
        let Region { mut start, stride, run_len, .. } = self.region;
        let mut at = self.at;
        for _ in 0..n_lines {
            prefetch(start.wrapping_add(at));
            at += LINE;
            if at >= run_len {
                (start, at) = (start.wrapping_add(stride), 0);
            }
        }
        self.n_lines -= n_lines;
        (self.region.start, self.at) = (start, at);
    }
}

/// Asks for the line of an address, into the second-level cache: the first one is full of what is being computed.
#[inline(always)]
fn prefetch(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_line_and_end() {
        let memory = [0.0f32; 400];
        for (n_runs, stride, run_len, n_lines) in
            [(3, 100, 40, 9), (1, 0, 16, 1), (2, 50, 17, 4), (4, 100, 0, 0)]
        {
            for n_parts in [1, 3, 7] {
                let region = Region { start: memory.as_ptr(), n_runs, stride, run_len };
                let mut prefetch = Prefetch::new(region, n_parts);
                assert_eq!(prefetch.n_lines, n_lines);
                (0..n_parts).for_each(|_| prefetch.next_part());
                assert_eq!((prefetch.n_lines, prefetch.at), (0, 0));
                let behind = if n_lines == 0 { 0 } else { n_runs * stride };
                assert_eq!(prefetch.region.start, memory.as_ptr().wrapping_add(behind));
            }
        }
    }
}
