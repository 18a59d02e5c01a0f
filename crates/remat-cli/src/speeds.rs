//! The speeds of this machine, which costs are calculated from: measured once, with a bar, and kept.

use crate::progress::Progress;
use anyhow::{Context as _, Result};
use remat::profile::{Machine, Origin};

/// Kept from an earlier run, or measured now.
pub(crate) fn load(n_threads: usize) -> Result<(Machine, Origin)> {
    let progress = Progress::new("measuring this machine (once)", 0);
    Machine::load(n_threads, |done, of| progress.set(done, of))
        .context("measuring the speeds of this machine")
}

/// Measured now, and kept instead of what an earlier run kept.
pub(crate) fn measure(n_threads: usize) -> Result<(Machine, Origin)> {
    let progress = Progress::new("measuring this machine", 0);
    Machine::remeasure(n_threads, |done, of| progress.set(done, of))
        .context("measuring the speeds of this machine")
}
