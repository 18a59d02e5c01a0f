//! Whether there is enough memory, and what happens where there is not.

pub(crate) use remat::memory::{available, group_limit, peak_resident, reset_peak, total};

use remat_plan::Bytes;

/// Fails when `needed` bytes are surely not there: the kernel would grant them and then end the process.
pub(crate) fn check_available(needed: Bytes) -> anyhow::Result<()> {
    match available() {
        Some(available) if needed > available => anyhow::bail!(
            "the run needs {needed} of memory, but only {available} are available; \
             give a smaller --budget or make the batch smaller"
        ),
        _ => Ok(()),
    }
}

/// Ends the process with the exit code of a failure where it would be aborted, which happens when there is no memory left for
/// something small: the message has been printed by then, and a crash report is of no use.
pub(crate) fn fail_instead_of_aborting(exit_code: u8) {
    #[cfg(unix)]
    {
        use signal_hook::{consts::SIGABRT, flag::register_conditional_shutdown};
        // Should this fail, the process is aborted as before.
        let _ = register_conditional_shutdown(SIGABRT, exit_code.into(), std::sync::Arc::new(true.into()));
    }
    #[cfg(not(unix))]
    let _ = exit_code;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_there_is() {
        assert!(check_available(Bytes(1)).is_ok());
        if available().is_some() {
            let message = check_available(Bytes(1 << 60)).unwrap_err().to_string();
            assert!(message.contains("1.00 EiB"), "{message}");
        }
    }
}
