//! What kernel tests share: reproducible data, comparison with the `f64` oracle, and the bit-equality check.

use std::sync::{Mutex, PoisonError};

use crate::base::isa::{self, Isa};
use crate::base::par;
use crate::base::raw::{Dst, Src};

/// Reproducible values, evenly spread in `-1..1` (a linear congruential sequence; the tests need no better).
pub(crate) fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// The same numbers in `f64`, as the naive twins take them.
pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Asserts that every element is within `tolerance` of the oracle, relative to the oracle's largest magnitude.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "number of elements");
    let scale = want.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs() / scale;
        assert!(error <= tolerance, "element {i}: got {g}, want {w}, relative error {error:e}");
    }
}

/// Runs `kernel` in pools of one, two and three threads, twice in the same pool, and with every instruction set; asserts
/// that the results are bit-identical, and returns them.
#[track_caller]
pub(crate) fn same_bits_in_any_pool(kernel: impl Fn() -> Vec<f32> + Sync) -> Vec<f32> {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool starts");
        pool.install(&kernel)
    };
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let one = run(1);
    for (name, other) in [("a rerun", run(1)), ("two threads", run(2)), ("three threads", run(3))] {
        assert!(bits(&one) == bits(&other), "{name} changed a bit");
    }
    for isa in Isa::available() {
        let other = with_isa(isa, || run(1));
        assert!(bits(&one) == bits(&other), "the instruction set {} changed a bit", isa.name());
    }
    one
}

/// Runs `task` with an instruction set. Only one test at a time chooses; meanwhile others run with that set as well, which
/// changes no bit of theirs.
pub(crate) fn with_isa<R>(isa: Isa, task: impl FnOnce() -> R) -> R {
    static CHOICE: Mutex<()> = Mutex::new(());
    let _choice = CHOICE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = isa::current();
    isa::select(isa);
    let result = task();
    isa::select(before);
    result
}

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
