//! SIGINT and SIGTERM end a run in order: the step under way is finished. A second one ends the process at once.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
}

impl Signals {
    /// Takes the signals over for the rest of the process.
    pub(crate) fn take_over() -> Result<Signals> {
        let stop = Arc::new(AtomicBool::new(false));
        let install = || -> std::io::Result<()> {
            for signal in [SIGINT, SIGTERM] {
                // The order matters: the first signal finds the flag unset and sets it, the second one ends the process.
                flag::register_conditional_shutdown(
                    signal,
                    crate::answer::STOPPED.into(),
                    Arc::clone(&stop),
                )?;
                flag::register(signal, Arc::clone(&stop))?;
            }
            Ok(())
        };
        install().context("taking over signals")?;
        Ok(Signals { stop })
    }

    /// True once the run should end.
    pub(crate) fn is_stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
