//! The `remat` command: trains neural networks inside a memory budget, and explains how.
//!
//! The binary is glue. [`flags`] holds what was typed and turns it into what it means; each file in [`command`] is one
//! command, which makes a report; [`output`] prints a report as text or as JSON.
//!
//! Data goes to stdout, everything else to stderr. Exit code 0: done. 1: the command ran, and the answer is no (a
//! budget cannot be met, bits differ, a plan is wrong). 2: misuse, bad input or a failure. 130: stopped by a signal.

mod chart;
mod command;
mod draw;
mod environment;
mod files;
mod flags;
mod folder;
mod format;
mod loss_log;
mod memory;
mod output;
mod page;
mod prices;
mod progress;
mod sweep;
mod target;
mod training;

use clap::Parser;
use command::Command;
use output::{Output, Paint};
use std::process::ExitCode;

/// Trains neural networks inside a memory budget: same bits, bounded bytes.
#[derive(Debug, Parser)]
#[command(name = "remat", version, propagate_version = true, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 the answer is no (does not fit, not equal, not valid), 2 bad input or failure, \
130 stopped by a signal."
)]
struct Cli {
    /// Print one JSON document with a `schema` field instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// The answer of a command that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Done: it fits, it is equal, it is valid.
    Yes,
    /// The command did its work, and the answer is no.
    No,
    /// The user stopped the command, and it ended in order.
    Stopped,
}

impl Answer {
    /// The answer to a question.
    fn of(holds: bool) -> Answer {
        if holds { Answer::Yes } else { Answer::No }
    }
}

fn main() -> ExitCode {
    report_panics_as_errors();
    let cli = Cli::parse();
    let mut out = Output::stdout(cli.json);
    // A panic is our bug. The hook has printed it as an error; here it only becomes the exit code of one.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let answer = cli.command.run(&mut out)?;
        out.flush()?;
        anyhow::Ok(answer)
    }));
    match ran {
        Ok(Ok(Answer::Yes)) => ExitCode::SUCCESS,
        Ok(Ok(Answer::No)) => ExitCode::from(1),
        Ok(Ok(Answer::Stopped)) => ExitCode::from(training::STOPPED),
        Ok(Err(error)) => {
            // What was printed before the failure still reaches its reader; a second failure adds nothing.
            let _ = out.flush();
            eprintln!("{} {error:#}", Paint::stderr().bad("error:"));
            ExitCode::from(2)
        }
        Err(_) => ExitCode::from(2),
    }
}

/// Users get one line that says where to look; whoever sets `RUST_BACKTRACE` gets Rust's own report.
fn report_panics_as_errors() {
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        let payload = info.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("no message");
        eprintln!("error: internal error{place}: {message}; please report it with the command you ran");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn flags_are_consistent_and_no_model_option_collides_with_a_flag() {
        Cli::command().debug_assert();
    }
}
