//! Memory that a thread keeps from task to task, aligned to cache lines.

use std::cell::RefCell;

/// Elements of a cache line.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Elements that begin with a cache line, so that no vector of a packed panel lies across two of them.
pub(crate) struct Lines(Vec<Line>);

impl Lines {
    pub(crate) const fn new() -> Lines {
        Lines(Vec::new())
    }

    /// The first `len` elements; what they hold is left from earlier, or zero.
    pub(crate) fn get(&mut self, len: usize) -> &mut [f32] {
        let n_lines = len.div_ceil(LINE);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, Line([0.0; LINE]));
        }
        // SAFETY: a line is an array of `LINE` elements without padding, and there are enough of them.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Calls `task` with a buffer of this thread, which no other call may ask for meanwhile; it holds what the last user left.
pub(crate) fn with_scratch<R>(len: usize, task: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Lines> = const { RefCell::new(Lines::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| task(scratch.get(len)))
}

/// [`with_scratch`] for buffers of several lengths, each of which begins with a cache line.
pub(crate) fn with_scratches<const N: usize, R>(
    lens: [usize; N],
    task: impl FnOnce([&mut [f32]; N]) -> R,
) -> R {
    with_scratch(lens.iter().map(|len| len.next_multiple_of(LINE)).sum(), |mut rest| {
        task(lens.map(|len| {
            let (buffer, behind) = std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(LINE));
            rest = behind;
            &mut buffer[..len]
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_aligned_and_kept() {
        let mut lines = Lines::new();
        assert!(lines.get(0).is_empty());
        lines.get(17)[16] = 3.0;
        assert_eq!(lines.get(40)[16], 3.0);
        assert!(lines.get(100).as_ptr().addr().is_multiple_of(64));
    }
}
