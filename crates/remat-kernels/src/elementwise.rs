//! Element-wise arithmetic, and the loop that all element-wise kernels share.
//!
//! In: one or more inputs of the same length. Out: `y[i] = f(x[i], …)`. Each block of elements is read into local
//! arrays before the same block of `y` is written, so `y` may be the storage of any input. Time O(n), no workspace.

use std::ops::Range;

use crate::math::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::math::Vectors;
use crate::par;
use crate::raw::{Dst, Src};
use crate::simd::wide;

/// Elements that are read, computed and written together; a compromise between registers and loop overhead.
pub(crate) const BLOCK: usize = 64;

/// A function of one element of each of `N` inputs.
///
/// Small closures serve as they are. A long function is a struct whose `at` is `#[inline(always)]`, because the
/// compiler might decide against inlining a long closure, and the loop would not become vector code.
pub(crate) trait Map<const N: usize>: Copy + Send + Sync {
    fn at(self, x: [f32; N]) -> f32;
}

impl<const N: usize, F: Fn([f32; N]) -> f32 + Copy + Send + Sync> Map<N> for F {
    #[inline(always)]
    fn at(self, x: [f32; N]) -> f32 {
        self(x)
    }
}

/// `y[i] = f(inputs[0][i], inputs[1][i], …)` in parallel; `y` may be one of the inputs.
pub(crate) fn map<const N: usize>(inputs: [Src<'_>; N], y: Dst<'_>, f: impl Map<N>) {
    for_each_range(inputs, y, |range| map_range(inputs, y, range, f));
}

/// Runs `task` over ranges of elements that are worth a task each.
fn for_each_range<const N: usize>(
    inputs: [Src<'_>; N],
    y: Dst<'_>,
    task: impl Fn(Range<usize>) + Sync + Send,
) {
    for input in &inputs {
        assert_eq!(input.len(), y.len(), "inputs and output have the same length");
    }
    par::for_each_range(y.len(), par::ELEMENTS_PER_TASK, task);
}

/// A long function of one element of each of `N` inputs, such as one with an exponential.
pub(crate) trait LanesMap<const N: usize>: Copy + Send + Sync {
    fn at<T: Lanes>(self, x: [T; N]) -> T;
}

/// [`map`] of a long function.
pub(crate) fn map_lanes<const N: usize>(inputs: [Src<'_>; N], y: Dst<'_>, f: impl LanesMap<N>) {
    for_each_range(inputs, y, |range| {
        map_lanes_run(inputs.map(|input| (input, range.start)), (y, range.start), range.len(), f);
    });
}

/// [`map_run`] of a long function; chooses the code for the CPU itself.
fn map_lanes_run<const N: usize>(
    inputs: [(Src<'_>, usize); N],
    y: (Dst<'_>, usize),
    len: usize,
    f: impl LanesMap<N>,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has both, as just detected.
        return unsafe { map_vectors(inputs, y, len, f) };
    }
    map_run(inputs, y, len, |x: [f32; N]| f.at(x));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn map_vectors<const N: usize>(
    inputs: [(Src<'_>, usize); N],
    (y, y_start): (Dst<'_>, usize),
    len: usize,
    f: impl LanesMap<N>,
) {
    const LANES: usize = Vectors::LANES;
    let whole = len / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        // SAFETY: this function runs only where the CPU has AVX2 and fused multiply-adds.
        let x = inputs.map(|(input, start)| unsafe { Vectors::read(&input.array(start + at)) });
        // SAFETY: tasks get disjoint ranges, and this task has read the block already.
        unsafe { y.write(y_start + at, &f.at(x).to_array()) }
    }
    if whole < len {
        let rest = len - whole;
        let x = inputs.map(|(input, start)| {
            let mut block = [0.0; LANES];
            input.read(start + whole, &mut block[..rest]);
            // SAFETY: as above.
            unsafe { Vectors::read(&block) }
        });
        // SAFETY: as above.
        unsafe { y.write(y_start + whole, &f.at(x).to_array()[..rest]) }
    }
}

wide! {
    fn map_range[const N: usize, F: Map<N>](inputs: [Src<'_>; N], y: Dst<'_>, range: Range<usize>, f: F) {
        map_run(inputs.map(|input| (input, range.start)), (y, range.start), range.len(), f);
    }
}

/// [`map`] for one run of `len` elements of one task; each operand starts at an offset of its own.
#[inline(always)]
pub(crate) fn map_run<const N: usize>(
    inputs: [(Src<'_>, usize); N],
    y: (Dst<'_>, usize),
    len: usize,
    f: impl Map<N>,
) {
    let whole = len / BLOCK * BLOCK;
    for at in (0..whole).step_by(BLOCK) {
        map_block(inputs, y, at, BLOCK, f);
    }
    if whole < len {
        map_block(inputs, y, whole, len - whole, f);
    }
}

/// Inlined twice, so that `width` is a constant for whole blocks.
#[inline(always)]
fn map_block<const N: usize>(
    inputs: [(Src<'_>, usize); N],
    (y, y_start): (Dst<'_>, usize),
    at: usize,
    width: usize,
    f: impl Map<N>,
) {
    let mut x = [[0.0; BLOCK]; N];
    for (block, (input, start)) in x.iter_mut().zip(inputs) {
        input.read(start + at, &mut block[..width]);
    }
    let mut out = [0.0; BLOCK];
    for (i, out) in out[..width].iter_mut().enumerate() {
        let mut arguments = [0.0; N];
        for (argument, block) in arguments.iter_mut().zip(&x) {
            *argument = block[i];
        }
        *out = f.at(arguments);
    }
    // SAFETY: tasks get disjoint ranges, and this task has read the block already.
    unsafe { y.write(y_start + at, &out[..width]) }
}

/// Reads `width <= BLOCK` elements; whole blocks are common and need no call to copy them.
#[inline(always)]
pub(crate) fn read_block(x: Src<'_>, at: usize, block: &mut [f32; BLOCK], width: usize) {
    if width == BLOCK { x.read(at, block) } else { x.read(at, &mut block[..width]) }
}

/// `y = a + b`, where `b` repeats every `b.len()` elements: it has the shape of `a` or of its last dimensions.
pub fn add(a: Src<'_>, b: Src<'_>, y: Dst<'_>) {
    if a.len() == b.len() {
        return map([a, b], y, |[a, b]: [f32; 2]| a + b);
    }
    assert_eq!(a.len(), y.len(), "the first term and the sum have the same length");
    assert!(b.len() > 0 && a.len().is_multiple_of(b.len()), "the second term fits a whole number of times");
    par::for_each_range(y.len(), par::ELEMENTS_PER_TASK, |range| add_range(a, b, y, range));
}

wide! {
    fn add_range(a: Src<'_>, b: Src<'_>, y: Dst<'_>, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let start = at % b.len();
            let len = (b.len() - start).min(range.end - at);
            map_run([(a, at), (b, start)], (y, at), len, |[a, b]: [f32; 2]| a + b);
            at += len;
        }
    }
}

/// `y = a * b`, element by element.
pub fn mul(a: Src<'_>, b: Src<'_>, y: Dst<'_>) {
    map([a, b], y, |[a, b]: [f32; 2]| a * b);
}

/// `y = factor * x`.
pub fn scale(x: Src<'_>, factor: f32, y: Dst<'_>) {
    map([x], y, move |[x]: [f32; 1]| factor * x);
}

/// Sets every element to `value`.
pub fn fill(value: f32, y: &mut [f32]) {
    par::for_each_chunk(y, par::ELEMENTS_PER_TASK, |_, chunk| chunk.fill(value));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::naive::elementwise as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    /// Lengths around the block and the task size.
    pub(crate) const LENGTHS: [usize; 8] = [1, 3, 63, 64, 65, 1000, par::ELEMENTS_PER_TASK, 50_001];

    /// Runs a kernel of `inputs` into fresh memory and over each input's own storage, in pools of several sizes;
    /// asserts that all results are the same, bit for bit, and returns them.
    pub(crate) fn out_of_place_and_in_place<const N: usize>(
        inputs: [&Vec<f32>; N],
        kernel: impl Fn([Src<'_>; N], Dst<'_>) + Sync,
    ) -> Vec<f32> {
        let fresh = same_bits_in_any_pool(|| {
            let mut y = vec![f32::NAN; inputs[0].len()];
            kernel(std::array::from_fn(|i| Src::from(&inputs[i][..])), Dst::from(&mut y[..]));
            y
        });
        for overwritten in (0..N).filter(|&i| inputs[i].len() == fresh.len()) {
            let mut y = inputs[overwritten].clone();
            let (pointer, len) = (y.as_mut_ptr(), y.len());
            let sources = std::array::from_fn(|i| {
                // SAFETY: `y` outlives the call and is touched by nothing else during it.
                let same = unsafe { Src::from_raw(pointer, len) };
                if i == overwritten { same } else { Src::from(&inputs[i][..]) }
            });
            // SAFETY: as above.
            kernel(sources, unsafe { Dst::from_raw(pointer, len) });
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(&y) == bits(&fresh), "writing over input {overwritten} changed a bit");
        }
        fresh
    }

    #[test]
    fn arithmetic_agrees_with_the_definition() {
        for n in LENGTHS {
            let inputs = [random(n, 1), random(n, 2)];
            let (a, b) = (wide(&inputs[0]), wide(&inputs[1]));
            let sum = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| add(a, b, y));
            assert_close(&sum, &naive::add(&a, &b), 1e-7);
            let product = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| mul(a, b, y));
            assert_close(&product, &naive::mul(&a, &b), 1e-7);
            let scaled = out_of_place_and_in_place([&inputs[0]], |[x], y| scale(x, 0.3, y));
            assert_close(&scaled, &naive::scale(&a, 0.3), 1e-7);
        }
    }

    #[test]
    fn the_second_term_is_repeated_over_leading_dimensions() {
        for (rows, cols) in [(1, 1), (5, 1), (7, 3), (300, 64), (3, 65), (1000, 77), (2, 40_000)] {
            let inputs = [random(rows * cols, 1), random(cols, 2)];
            let sum = out_of_place_and_in_place(inputs.each_ref(), |[a, b], y| add(a, b, y));
            assert_close(&sum, &naive::add(&wide(&inputs[0]), &wide(&inputs[1])), 1e-7);
        }
    }

    #[test]
    fn fill_reaches_every_element() {
        let mut y = vec![f32::NAN; 3 * par::ELEMENTS_PER_TASK + 1];
        fill(2.5, &mut y);
        assert!(y.iter().all(|&y| y == 2.5));
    }
}
