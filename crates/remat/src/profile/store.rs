//! The speeds of a store: what copies take beside running kernels, as a price for any copy and one for each byte.
//!
//! A store on a busy machine is slower than on an idle one, because copies and kernels share memory and processors. So a
//! product runs on all threads while copies of two sizes are timed, one direction after the other. The result is kept like
//! the speeds of the machine, and a file that is damaged is measured again.

use super::cache;
use super::{Origin, Sample};
use crate::error::{Error, Result};
use crate::store::{Kind, Setup, Store};
use crate::threads::thread_pool;
use memmap2::MmapMut;
use remat_kernels::gemm::{Mat, MatMut, Write, gemm};
use remat_plan::Bytes;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of small and of large copies, and how many of each are timed: half a gigabyte, because a disk may take the first
/// few hundred megabytes faster than it can go on.
const SMALL: u64 = 256 << 10;
const LARGE: u64 = 16 << 20;
const N_COPIES: u64 = 32;
/// Places that copies in memory take turns at. It has no such beginning.
const N_IN_MEMORY: u64 = 4;

/// Two times that are close to each other say little about what a byte costs: then all of the larger one is for its bytes.
const LEAST_SHARE: f64 = 0.3;

/// What a copy in one direction takes: a price for any copy, and one for each byte.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Way {
    /// Seconds of an empty copy.
    pub latency: f64,
    /// Seconds of each byte.
    pub seconds_per_byte: f64,
}

impl Way {
    /// Seconds of a copy.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.latency + bytes as f64 * self.seconds_per_byte
    }
}

/// Both directions of a store.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct StoreSpeed {
    /// From memory to the store.
    pub out: Way,
    /// From the store to memory.
    pub back: Way,
}

impl StoreSpeed {
    /// Round speeds of an ordinary disk, for what must not depend on this one.
    pub const fn nominal() -> StoreSpeed {
        StoreSpeed {
            out: Way { latency: 1e-4, seconds_per_byte: 1e-9 },
            back: Way { latency: 1e-4, seconds_per_byte: 5e-10 },
        }
    }
}

impl StoreSpeed {
    /// The speed of a store beside kernels on `n_threads` threads: kept from an earlier run, or measured and then kept.
    pub fn load(kind: &Kind, n_threads: usize) -> Result<(StoreSpeed, Origin)> {
        match cache::kept_as(&file_name(kind, n_threads), StoreSpeed::is_plausible) {
            Some((speed, path)) => Ok((speed, Origin::Kept(path))),
            None => StoreSpeed::remeasure(kind, n_threads),
        }
    }

    /// Measures again and replaces what was kept.
    pub fn remeasure(kind: &Kind, n_threads: usize) -> Result<(StoreSpeed, Origin)> {
        let speed = StoreSpeed::measure(kind, n_threads)?;
        Ok((speed, cache::keep_as(&file_name(kind, n_threads), &speed)))
    }

    /// Measures for about a second.
    pub fn measure(kind: &Kind, n_threads: usize) -> Result<StoreSpeed> {
        let n_places = if *kind == Kind::Host { N_IN_MEMORY } else { N_COPIES };
        let mut store = Store::open(&Setup::new(kind.clone()), Bytes(n_places * LARGE))?;
        let pool = thread_pool(n_threads)?;
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| pool.install(|| be_busy(&has_ended)));
            let measured = measure_both(&mut store, n_places);
            has_ended.store(true, Relaxed);
            measured
        })
    }
}

/// Speeds are those of a device, a number of threads and this program.
fn file_name(kind: &Kind, n_threads: usize) -> String {
    let place = match kind {
        Kind::Host => "host".to_owned(),
        Kind::File(directory) => device(directory),
    };
    cache::name_of("store", n_threads, &place)
}

#[cfg(unix)]
fn device(directory: &std::path::Path) -> String {
    use std::os::unix::fs::MetadataExt as _;
    // A directory that does not exist is told about when it is opened.
    std::fs::metadata(directory).map_or_else(|_| String::new(), |found| format!("device {}", found.dev()))
}

#[cfg(not(unix))]
fn device(directory: &std::path::Path) -> String {
    directory.display().to_string()
}

/// Computes until it is told to stop.
fn be_busy(has_ended: &AtomicBool) {
    const N: usize = 512;
    let (a, b) = (vec![1.0f32; N * N], vec![1.0f32; N * N]);
    let mut c = vec![0.0f32; N * N];
    while !has_ended.load(Relaxed) {
        let to = MatMut::new(black_box(&mut c), N, N);
        gemm(Write::Overwrite, 1.0, Mat::new(&a, N, N), Mat::new(&b, N, N), to);
    }
}

/// Memory whose pages are as large as those of a step, which the speed of direct I/O depends on.
fn like_an_arena() -> Result<MmapMut> {
    let memory = MmapMut::map_anon(LARGE as usize).map_err(Error::io("reserving memory for copies"))?;
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

fn measure_both(store: &mut Store, n_places: u64) -> Result<StoreSpeed> {
    let mut memory = like_an_arena()?;
    memory.fill(1);
    let address = memory.as_mut_ptr();
    // Out comes first: what is read was written.
    let mut way = |is_out: bool| -> Result<Way> {
        let mut seconds = |bytes: u64| -> Result<f64> {
            for number in 0..N_COPIES {
                let place = number % n_places * LARGE;
                // SAFETY: the memory stays until the copies have ended. Those that are under way together read the same
                // bytes, or are written by one thread, one after the other, and nobody looks at the result.
                unsafe {
                    match is_out {
                        true => store.copy_out((address, bytes), place, None, 0)?,
                        false => store.copy_in(place, (address, bytes), None, 0)?,
                    };
                }
            }
            store.finish()?;
            // As in a step, copies follow each other without anybody who waits for each: what counts is how long a channel is
            // busy with one.
            let times =
                store.copied().iter().map(|copied| (copied.end - copied.start).as_secs_f64()).collect();
            Ok(Sample::of(times).median)
        };
        if is_out {
            // A file's first write of a place takes longer than any later one.
            seconds(LARGE)?;
        }
        let (small, large) = (seconds(SMALL)?, seconds(LARGE)?);
        let (slope, mean) = ((large - small) / (LARGE - SMALL) as f64, large / LARGE as f64);
        let seconds_per_byte = if slope > LEAST_SHARE * mean { slope } else { mean };
        Ok(Way { latency: (small - SMALL as f64 * seconds_per_byte).max(0.0), seconds_per_byte })
    };
    let speed = (way(true), way(false));
    store.finish()?;
    Ok(StoreSpeed { out: speed.0?, back: speed.1? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_stores_have_plausible_speeds() {
        let directory = tempfile::tempdir().expect("a directory");
        for kind in [Kind::Host, Kind::File(directory.path().to_owned())] {
            let speed = StoreSpeed::measure(&kind, 1).expect("a store");
            assert!(speed.is_plausible(), "{kind}: {speed:?}");
            // Nothing is that fast or that slow.
            for way in [speed.out, speed.back] {
                let gigabyte = way.seconds(1_000_000_000);
                assert!((1e-3..1e3).contains(&gigabyte), "{kind}: {gigabyte} s for a gigabyte");
            }
        }
    }
}
