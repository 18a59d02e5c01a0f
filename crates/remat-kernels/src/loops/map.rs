//! The loop that element-wise kernels share: a function of one element of every input, over all elements.
//!
//! In: one or more inputs of the same length. Out: `y[i] = f(x[i], …)`. Each block of elements is read into local
//! arrays before the same block of `y` is written, so `y` may be the storage of any input. Time O(n), no workspace.

use std::ops::Range;

use crate::base::math::{BUNDLE, Bundle, Lanes};
use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::base::vector::{Kernel, Vector, dispatch};

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
    dispatch(MapBundles { inputs, y, len, f });
}

struct MapBundles<'a, const N: usize, F> {
    inputs: [(Src<'a>, usize); N],
    y: (Dst<'a>, usize),
    len: usize,
    f: F,
}

impl<const N: usize, F: LanesMap<N>> Kernel for MapBundles<'_, N, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let MapBundles { inputs, y: (y, y_start), len, f } = self;
        let whole = len / BUNDLE * BUNDLE;
        for at in (0..whole).step_by(BUNDLE) {
            let mut x = [[0.0; BUNDLE]; N];
            for (x, (input, start)) in x.iter_mut().zip(inputs) {
                *x = input.array(start + at);
            }
            // SAFETY: tasks get disjoint ranges, and this task has read the block already.
            unsafe { y.write(y_start + at, &at_bundle::<V, N>(&x, f)) }
        }
        if whole < len {
            let rest = len - whole;
            let mut x = [[0.0; BUNDLE]; N];
            for (x, (input, start)) in x.iter_mut().zip(inputs) {
                input.read(start + whole, &mut x[..rest]);
            }
            // SAFETY: as above.
            unsafe { y.write(y_start + whole, &at_bundle::<V, N>(&x, f)[..rest]) }
        }
    }
}

/// A long function of as many numbers of each input as make a bundle.
#[inline(always)]
pub(crate) fn at_bundle<V: Vector, const N: usize>(
    x: &[[f32; BUNDLE]; N],
    f: impl LanesMap<N>,
) -> [f32; BUNDLE] {
    #[inline(always)]
    fn at_vectors<V: Vector, const N: usize, const K: usize>(
        x: &[[f32; BUNDLE]; N],
        f: impl LanesMap<N>,
    ) -> [f32; BUNDLE] {
        let mut bundles = [Bundle::<V, K>::splat(0.0); N];
        for (bundle, x) in bundles.iter_mut().zip(x) {
            *bundle = Bundle::read(x);
        }
        f.at(bundles).to_array()
    }
    // Numbers of vectors cannot be computed from their width where types are written.
    if V::LANES == 16 { at_vectors::<V, N, 2>(x, f) } else { at_vectors::<V, N, 4>(x, f) }
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
