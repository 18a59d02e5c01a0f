//! How a command ends, and the exit code that says so.

use std::process::ExitCode;

/// The exit code of misuse, bad input and failures.
pub(crate) const FAILED: u8 = 2;

/// The exit code of a run that a signal stopped, as shells report an interrupt.
pub(crate) const STOPPED: u8 = 130;

/// The answer of a command that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Done: it fits, it is equal, it is valid.
    Yes,
    /// The command did its work, and the answer is no.
    No,
    /// The user stopped the command, and it ended in order.
    Stopped,
}

impl Answer {
    /// The answer to a question.
    pub(crate) fn of(holds: bool) -> Answer {
        if holds { Answer::Yes } else { Answer::No }
    }

    /// As the operating system sees it.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Answer::Yes => 0,
            Answer::No => 1,
            Answer::Stopped => STOPPED,
        })
    }
}
