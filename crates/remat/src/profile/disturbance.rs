//! Whether other programs took processors away while something was measured.
//!
//! Linux counts how long each thread was ready to run and had to wait for a processor. Beside an idle machine that is next to
//! nothing; beside a busy one it is about as much as the others took. Elsewhere nothing is known, and nothing is said.

use std::time::{Duration, Instant};

/// Waiting for more than this part of the time makes speeds too low to rely on.
const MOST: f64 = 0.1;

/// Watches from its making on.
pub(super) struct Watch {
    begin: Instant,
    waited: Option<Duration>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch { begin: Instant::now(), waited: waited() }
    }

    /// The part of the time that each of `n_threads` busy threads had to wait for a processor, where that is much. Threads
    /// that are more than the processors wait for each other, which says nothing about other programs.
    pub(super) fn much(&self, n_threads: usize) -> Option<f64> {
        if std::thread::available_parallelism().map_or(1, usize::from) < n_threads {
            return None;
        }
        let waited = waited()?.saturating_sub(self.waited?);
        let share = waited.as_secs_f64() / (self.begin.elapsed().as_secs_f64() * n_threads as f64);
        (share > MOST).then_some(share)
    }
}

/// How long the threads of this process have waited for a processor so far.
fn waited() -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread that ends meanwhile no longer counts.
        let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?);
    }
    Some(sum)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_a_processor_have_waited() {
        if !std::path::Path::new("/proc/self/schedstat").exists() {
            // A system that does not count, for which nothing is said.
            return;
        }
        let n = std::thread::available_parallelism().map_or(1, usize::from);
        let (watch, end) = (Watch::new(), Instant::now() + Duration::from_millis(300));
        let before = waited().expect("Linux says so");
        let waited = std::thread::scope(|scope| {
            for _ in 0..4 * n {
                scope.spawn(|| while Instant::now() < end {});
            }
            while Instant::now() < end {}
            waited().expect("Linux says so")
        });
        assert!(waited > before + Duration::from_millis(100), "{waited:?} after {before:?}");
        assert_eq!(watch.much(4 * n), None, "more threads than processors");
    }
}
