//! Prefetching: asks for memory before it is needed, while something else is computed.
//!
//! In: a [`Region`], which says where an operand of the next piece of work of a product lies. Out: hints to the processor, a
//! few cache lines at a time. Packing and the first pass over rows of the left operand would otherwise wait for memory, and
//! a product with a short side does little else. A hint changes no result: a wrong one only costs time.
//!
//! The innermost loop asks for a line or two between some steps (`micro`). A core has room for a dozen requests; asked for more
//! of them at once, it waits: on a Xeon with AVX-512 that took a tenth of the time of a product.

use crate::base::cache::{LINE, prefetch};

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

/// Two regions, of whose lines every tile of the innermost loop asks for some, one after the other.
pub(crate) struct Prefetch {
    /// What has not been asked for yet, from the next line on.
    walk: Walk,
    n_lines: usize,
    /// What comes afterwards.
    behind: Region,
    lines_per_tile: usize,
}

/// The lines of a region, one after the other; beyond the last one it leads anywhere, which does no harm.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    line: *const f32,
    /// Lines of the run from here on, and of every run.
    left: usize,
    run: usize,
    /// Elements from the last line of a run to the first one of the next.
    to_next_run: isize,
}

impl Prefetch {
    /// Spreads both regions over some tiles.
    pub(crate) fn new(regions: [Region; 2], n_tiles: usize) -> Prefetch {
        let [first, behind] = regions;
        let n_lines = regions.iter().map(Region::n_lines).sum::<usize>();
        let lines_per_tile = n_lines.div_ceil(n_tiles.max(1));
        Prefetch { walk: Walk::over(first), n_lines: first.n_lines(), behind, lines_per_tile }
    }

    /// The lines that the next tile asks for, and how many; those that follow belong to the tile behind it.
    #[inline(always)]
    pub(crate) fn next_tile(&mut self) -> (Walk, usize) {
        if self.n_lines == 0 {
            self.walk = Walk::over(self.behind);
            self.n_lines = self.behind.n_lines();
            self.behind = Region::NONE;
        }
        (self.walk, self.lines_per_tile.min(self.n_lines))
    }

    /// Asks for the lines of a tile all at once, for tiles that need few.
    #[inline(always)]
    pub(crate) fn ask_for_tile(&mut self) {
        let (mut walk, n_lines) = self.next_tile();
        (0..n_lines).for_each(|_| walk.next());
        self.asked(walk, n_lines);
    }

    /// The tile has asked for `n_lines` at least, up to `walk`.
    #[inline(always)]
    pub(crate) fn asked(&mut self, walk: Walk, n_lines: usize) {
        self.walk = walk;
        self.n_lines = self.n_lines.saturating_sub(n_lines);
    }
}

impl Region {
    fn n_lines(&self) -> usize {
        self.n_runs * self.run_len.div_ceil(LINE)
    }

    /// The runs of one of `n_parts` parts of about the same size.
    pub(crate) fn part(&self, part: usize, n_parts: usize) -> Region {
        let [first, end] = [part, part + 1].map(|part| self.n_runs * part / n_parts);
        Region { start: self.start.wrapping_add(first * self.stride), n_runs: end - first, ..*self }
    }
}

impl Walk {
    fn over(region: Region) -> Walk {
        let run = region.run_len.div_ceil(LINE).max(1);
        let to_next_run = region.stride as isize - ((run - 1) * LINE) as isize;
        Walk { line: region.start, left: run, run, to_next_run }
    }

    /// Asks for the next line. Always inlined: a call would have to save the sums of the tile around it. Without a branch,
    /// which the processor might guess wrong.
    #[inline(always)]
    pub(crate) fn next(&mut self) {
        prefetch(self.line);
        let last = self.left == 1;
        self.line = self.line.wrapping_offset(if last { self.to_next_run } else { LINE as isize });
        self.left = if last { self.run } else { self.left - 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_ask_for_every_line_of_both_regions_in_order() {
        let memory = [0.0f32; 400];
        let region = |start: usize, n_runs, stride, run_len| Region {
            start: memory[start..].as_ptr(),
            n_runs,
            stride,
            run_len,
        };
        let lines_of = |Region { start, n_runs, stride, run_len }: Region| {
            (0..n_runs).flat_map(move |run| {
                (0..run_len).step_by(LINE).map(move |at| start.wrapping_add(run * stride + at))
            })
        };
        for regions in [
            [region(0, 3, 100, 40), Region::NONE],
            [Region::NONE, region(5, 2, 50, 17)],
            [region(0, 1, 0, 16), region(7, 4, 90, 33)],
            [Region::NONE; 2],
        ] {
            for n_tiles in [1, 3, 20] {
                let mut prefetch = Prefetch::new(regions, n_tiles);
                let mut got = Vec::new();
                // A region ends with a tile, so a second one may need one more.
                for _ in 0..=n_tiles {
                    let (mut walk, n_lines) = prefetch.next_tile();
                    for _ in 0..n_lines {
                        got.push(walk.line);
                        walk.next();
                    }
                    prefetch.asked(walk, n_lines);
                }
                let want: Vec<_> = regions.into_iter().flat_map(lines_of).collect();
                assert_eq!(got, want);
            }
        }
        let whole = region(0, 3, 100, 40);
        let parts: Vec<_> = (0..5).flat_map(|part| lines_of(whole.part(part, 5))).collect();
        assert_eq!(parts, lines_of(whole).collect::<Vec<_>>());
    }
}
