//! How many threads kernels use. Results do not depend on it, so more than the machine runs at once is never useful.

use std::num::NonZeroUsize;
use std::sync::Once;

/// As many threads as the machine runs at once.
pub(crate) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The number to use: what was asked for, or all there are. More than there are is said once and not done.
pub(crate) fn usable(asked: Option<NonZeroUsize>) -> usize {
    static WARNED: Once = Once::new();
    let available = available();
    let asked = asked.map_or(available, NonZeroUsize::get);
    if asked > available {
        WARNED.call_once(|| {
            let runs = crate::format::plural(available, "thread");
            crate::output::say(format_args!(
                "warning: this machine runs {runs} at once; --threads {asked} is taken as {available}"
            ));
        });
    }
    asked.min(available)
}

/// Reads the value of `--threads`.
pub(crate) fn parse(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| {
        let available = available();
        format!("give a number from 1 to {available}, or leave --threads out to use all {available} cores")
    })
}
