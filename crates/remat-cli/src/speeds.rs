//! The speeds of this machine, which costs are calculated from: measured once, with a bar, and kept.

use crate::output::say;
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use remat::profile::{Machine, Origin, StoreSpeed};
use remat::store::Kind;

/// Kept from an earlier run, or measured now.
pub(crate) fn load(n_threads: usize) -> Result<(Machine, Origin)> {
    let progress = Progress::new("measuring this machine (once)", 0);
    let (machine, origin) = Machine::load(n_threads, |done, of| progress.set(done, of))
        .context("measuring the speeds of this machine")?;
    drop(progress);
    if let (Some(note), false) = (disturbance(&machine), matches!(origin, Origin::Kept(_))) {
        say(format_args!("warning: {note}"));
    }
    Ok((machine, origin))
}

/// What to know about speeds that were measured while other programs ran.
pub(crate) fn disturbance(machine: &Machine) -> Option<String> {
    let percent = 100.0 * machine.disturbed?;
    Some(format!(
        "other programs ran while the speeds of this machine were measured, which waited {percent:.0} % of the time: predicted \
         times are too long; `remat doctor --remeasure` measures again"
    ))
}

/// Measured now, and kept instead of what an earlier run kept.
pub(crate) fn measure(n_threads: usize) -> Result<(Machine, Origin)> {
    let progress = Progress::new("measuring this machine", 0);
    Machine::remeasure(n_threads, |done, of| progress.set(done, of))
        .context("measuring the speeds of this machine")
}

/// The speed of a store beside running kernels: kept from an earlier run, or measured now.
pub(crate) fn of_store(kind: &Kind, n_threads: usize) -> Result<(StoreSpeed, Origin)> {
    let _progress = Progress::new("measuring the store (once)", 0);
    StoreSpeed::load(kind, n_threads).with_context(|| format!("measuring the speed of the store {kind}"))
}

/// The speed of a store, measured now and kept instead of what an earlier run kept.
pub(crate) fn measure_store(kind: &Kind, n_threads: usize) -> Result<(StoreSpeed, Origin)> {
    let _progress = Progress::new("measuring the store", 0);
    StoreSpeed::remeasure(kind, n_threads).with_context(|| format!("measuring the speed of the store {kind}"))
}
