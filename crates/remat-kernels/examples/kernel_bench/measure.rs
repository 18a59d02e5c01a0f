//! Times, and the two limits that kernels are compared with: the peak of fused multiply-adds and a copy of memory.

use std::time::{Duration, Instant};

use rayon::prelude::*;
use remat_kernels::isa::Isa;

/// Time spent on one line, and the runs that are made at least.
const TIME_PER_LINE: Duration = Duration::from_millis(400);
const MIN_RUNS: usize = 5;

/// Seconds of the fastest run of a kernel and of the fastest run of its limit, which take turns; `before` each run of the kernel
/// something may be done that is not measured.
pub(crate) fn best_times(task: &mut impl FnMut(), limit: &mut impl FnMut(), before: impl Fn()) -> (f64, f64) {
    let (start, mut best, mut runs) = (Instant::now(), (f64::INFINITY, f64::INFINITY), 0);
    while runs < MIN_RUNS || start.elapsed() < TIME_PER_LINE {
        before();
        best = (best.0.min(seconds(task)), best.1.min(seconds(limit)));
        runs += 1;
    }
    best
}

fn seconds(task: &mut impl FnMut()) -> f64 {
    let alone = rayon::current_num_threads() == 1;
    let (wall, thread) = (Instant::now(), if alone { thread_time() } else { None });
    task();
    match thread.zip(thread_time()) {
        Some((before, after)) => after - before,
        None => wall.elapsed().as_secs_f64(),
    }
}

/// Seconds that this thread has spent on a processor.
#[cfg(target_os = "linux")]
fn thread_time() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the timespec it is given.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (status == 0).then_some(time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64)
}

#[cfg(not(target_os = "linux"))]
fn thread_time() -> Option<f64> {
    None
}

/// The limit of kernels that stream memory.
pub(crate) fn copy(from: &[f32], to: &mut [f32]) {
    let chunk = to.len().div_ceil(rayon::current_num_threads());
    to.par_chunks_mut(chunk).zip(from.par_chunks(chunk)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Reads a line at a time.
pub(crate) fn read(memory: &[f32]) {
    let chunk = memory.len().div_ceil(rayon::current_num_threads()).max(1);
    let sums = memory.par_chunks(chunk).map(|part| part.iter().step_by(16).sum::<f32>());
    std::hint::black_box(sums.sum::<f32>());
}

/// Multiply-adds per measurement of the peak and thread; independent chains that hide the latency.
const PEAK_STEPS: usize = 1 << 17;
const CHAINS: usize = 12;

/// Numbers of a vector of an instruction set, as the peak is measured with.
fn lanes(isa: Isa) -> usize {
    if isa == Isa::Avx512 { 16 } else { 8 }
}

/// Multiply-adds (which count as two) of [`run_chains`].
pub(crate) fn chain_flops(isa: Isa) -> f64 {
    (2 * PEAK_STEPS * CHAINS * lanes(isa) * rayon::current_num_threads()) as f64
}

/// The limit of products with the vectors of an instruction set.
pub(crate) fn run_chains(isa: Isa) {
    (0..rayon::current_num_threads()).into_par_iter().for_each(|_| {
        std::hint::black_box(multiply_add_chains(isa, std::hint::black_box(0.5)));
    });
}

fn multiply_add_chains(isa: Isa, factor: f32) -> f32 {
    #[inline(always)]
    fn body<const LANES: usize>(factor: f32, multiply_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
        let mut sums = [[1.0f32; LANES]; CHAINS];
        for _ in 0..PEAK_STEPS {
            for sum in sums.as_flattened_mut() {
                *sum = multiply_add(*sum, factor, factor);
            }
        }
        sums.as_flattened().iter().sum()
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2(factor: f32) -> f32 {
            body::<8>(factor, f32::mul_add)
        }
        #[target_feature(enable = "avx512f,fma")]
        fn avx512(factor: f32) -> f32 {
            body::<16>(factor, f32::mul_add)
        }
        if isa == Isa::Avx512 && isa.is_available() {
            // SAFETY: the CPU has it, as just detected.
            return unsafe { avx512(factor) };
        }
        if Isa::Avx2.is_available() {
            // SAFETY: as above.
            return unsafe { avx2(factor) };
        }
    }
    body::<8>(factor, |sum, a, b| sum * a + b)
}
