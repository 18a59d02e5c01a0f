//! Splitting work by shape over the current rayon pool.

use rayon::prelude::*;

/// Whether tasks run one after the other on this thread; always under Miri, which objects to rayon's own queues and would
/// end before it has seen a kernel.
fn is_serial() -> bool {
    cfg!(miri) || rayon::current_num_threads() == 1
}

/// Elements per task of element-wise work: large enough to pay for a task, small enough to balance.
pub const ELEMENTS_PER_TASK: usize = 1 << 14;

/// Runs `task(i)` for `i` in `0..n`, in any order and on any thread of the current pool.
pub fn for_each(n: usize, task: impl Fn(usize) + Sync + Send) {
    if n == 1 || is_serial() {
        (0..n).for_each(task);
    } else {
        (0..n).into_par_iter().for_each(task);
    }
}

/// Runs `task(start..end)` over `0..len` in pieces of `piece` elements (the last may be shorter).
pub fn for_each_range(len: usize, piece: usize, task: impl Fn(std::ops::Range<usize>) + Sync + Send) {
    for_each(len.div_ceil(piece), |i| task(i * piece..len.min((i + 1) * piece)));
}

/// Runs `task(i, chunk)` over `data` cut in chunks of `chunk` elements (the last may be shorter).
pub fn for_each_chunk<T: Send>(data: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync + Send) {
    if data.len() <= chunk || is_serial() {
        data.chunks_mut(chunk.max(1)).enumerate().for_each(|(i, piece)| task(i, piece));
    } else {
        data.par_chunks_mut(chunk).enumerate().for_each(|(i, piece)| task(i, piece));
    }
}
