//! The speeds of this machine: what the analytic profile divides by.
//!
//! Three numbers describe the machine as such (arithmetic, memory, calls) and are enough for a rough profile.
//! `speeds` adds what each kind of op really reaches, measured on a few sizes (`calibrate.rs`) and kept between runs
//! (`cache.rs`).

use super::calibrate;
use super::disturbance::Watch;
use crate::error::Error;
use crate::graph::Type;
use crate::op::relu::Relu;
use crate::op::{Alone, MicroBatch, Run};
use remat_kernels::gemm::{Mat, MatMut, Write, gemm};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Speeds of the thread pool in which kernels run.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Threads that were measured.
    pub n_threads: usize,
    /// Floating-point operations per second of a large matrix product.
    pub flops: f64,
    /// Bytes read and written per second by a copy that does not fit any cache.
    pub bandwidth: f64,
    /// Seconds to call a kernel that does almost nothing.
    pub overhead: f64,
    /// What ops reach, by name; one that is not listed is taken for as fast as `flops` and `bandwidth` allow.
    pub speeds: BTreeMap<String, Speed>,
    /// The part of the time for which threads had to wait for other programs while all this was measured, where it is so much
    /// that the speeds are too low.
    #[serde(default)]
    pub disturbed: Option<f64>,
}

/// How fast one kind of op does its work.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// Limited by arithmetic: floating-point operations per second.
    Flops(f64),
    /// Limited by memory, or by arithmetic that grows with it.
    Bytes {
        /// Bytes per second when everything is in a cache.
        near: f64,
        /// Bytes per second when nothing is.
        far: f64,
    },
}

impl Machine {
    /// Round speeds of an ordinary machine, for what must not depend on this one.
    pub const fn nominal(n_threads: usize) -> Machine {
        Machine {
            n_threads,
            flops: 1e11,
            bandwidth: 2e10,
            overhead: 2e-6,
            speeds: BTreeMap::new(),
            disturbed: None,
        }
    }

    /// Measures for a few seconds with `n_threads` threads. [`Machine::load`](Machine::load) remembers the result.
    /// `progress` is told how many of how many ops are measured.
    pub fn measure(n_threads: usize, progress: impl FnMut(usize, usize) + Send) -> crate::Result<Machine> {
        let pool = crate::threads::thread_pool(n_threads)?;
        pool.install(|| {
            let watch = Watch::new();
            let (overhead, speeds) = (call_overhead()?, calibrate::speeds(progress)?);
            let (flops, bandwidth) = (gemm_flops(), copy_bandwidth());
            Ok(Machine { n_threads, flops, bandwidth, overhead, speeds, disturbed: watch.much(n_threads) })
        })
    }
}

/// The fastest of several runs: the least disturbed one.
pub(super) fn fastest(n: usize, mut run: impl FnMut()) -> Duration {
    run();
    (0..n)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed()
        })
        .min()
        .unwrap_or(Duration::MAX)
}

fn gemm_flops() -> f64 {
    const N: usize = 512;
    let (a, b) = (vec![1.0f32; N * N], vec![1.0f32; N * N]);
    let mut c = vec![0.0f32; N * N];
    let time = fastest(8, || {
        gemm(
            Write::Overwrite,
            1.0,
            Mat::new(&a, N, N),
            Mat::new(&b, N, N),
            MatMut::new(black_box(&mut c), N, N),
        );
    });
    2.0 * (N * N * N) as f64 / time.as_secs_f64()
}

fn copy_bandwidth() -> f64 {
    const N: usize = 8 << 20;
    let from = vec![1.0f32; N];
    let mut to = vec![0.0f32; N];
    let time = fastest(4, || {
        remat_kernels::elementwise::scale(from.as_slice().into(), 1.0, black_box(to.as_mut_slice()).into());
    });
    (2 * N * size_of::<f32>()) as f64 / time.as_secs_f64()
}

/// The time of a node whose arithmetic is negligible.
fn call_overhead() -> crate::Result<f64> {
    const CALLS: usize = 64;
    let mut relu = Alone::new(&Relu {}.into(), &[Type::f32(&[16])?])
        .map_err(|message| Error::Bug { stage: "profile", faults: vec![message] })?;
    let run = Run { seed: 0, step: 1, learning_rate: 0.0, micro: MicroBatch::ONLY };
    let time = fastest(8, || (0..CALLS).for_each(|_| relu.run(&run)));
    Ok(time.as_secs_f64() / CALLS as f64)
}
