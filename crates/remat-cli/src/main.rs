//! The `remat` command: trains neural networks inside a memory budget, and explains how.
//!
//! The binary is glue. [`flags`] holds what was typed and turns it into what it means; each file in [`command`] is one
//! command, which makes a report; [`output`] prints a report as text or as JSON.
//!
//! Data goes to stdout, everything else to stderr. Exit code 0: done. 1: the command ran, and the answer is no (a
//! budget cannot be met, bits differ, a plan is wrong). 2: misuse, bad input or a failure. 130: stopped by a signal.

// Whatever is printed passes through `output`, which escapes what could take a terminal over.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod answer;
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
mod moves;
mod output;
mod planning;
mod prices;
mod progress;
mod slowdown;
mod speeds;
mod store_prices;
mod sweep;
mod target;
mod threads;
mod training;

use clap::{CommandFactory as _, Parser};
use command::Command;
use output::{Output, complain};
use std::process::ExitCode;

/// Trains neural networks inside a memory budget: same bits, bounded bytes.
#[derive(Debug, Parser)]
#[command(name = "remat", version, propagate_version = true, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 the answer is no (does not fit, not equal, not valid, diverged), 2 bad input \
or failure, 130 stopped by a signal."
)]
struct Cli {
    /// Print one JSON document with a `schema` field instead of text; after a failure, the error.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    report_panics_as_errors();
    report_file_size_limits_as_errors();
    memory::fail_instead_of_aborting(answer::FAILED);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misuse(&error),
    };
    let mut out = Output::stdout(cli.json);
    // A panic is our bug. The hook has printed it as an error; here it only becomes a document and an exit code.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        remat::isa::Isa::from_environment().map_err(anyhow::Error::msg)?;
        let answer = cli.command.run(&mut out, Cli::command())?;
        out.flush()?;
        anyhow::Ok(answer)
    }));
    let error = match ran {
        Ok(Ok(answer)) => return answer.exit_code(),
        Ok(Err(error)) => {
            let error = format!("{error:#}");
            complain(&error);
            error
        }
        Err(payload) => format!("internal error: {}", panic_message(&*payload)),
    };
    // What was printed before the failure still reaches its reader; a second failure adds nothing.
    let _ = out.failure(&error, answer::FAILED).and_then(|()| out.flush());
    ExitCode::from(answer::FAILED)
}

/// Ends a command line that cannot be read, or one that only asks for help.
fn misuse(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|word| word == "--json");
    let code = u8::try_from(error.exit_code()).unwrap_or(answer::FAILED);
    if error.use_stderr() && wants_json {
        // The message without its heading and without the lines on usage.
        let text = error.render().to_string();
        let text = text.trim_start_matches("error:").split("\n\nUsage:").next().unwrap_or_default();
        let mut out = Output::stdout(true);
        let _ = out.failure(text.trim(), code).and_then(|()| out.flush());
    }
    output::print_usage(error, Cli::command().get_styles());
    ExitCode::from(code)
}

/// Prints a panic as one line that says where to look; with `RUST_BACKTRACE` set, Rust's own report is kept.
fn report_panics_as_errors() {
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        let message = panic_message(info.payload());
        complain(&format!("internal error{place}: {message}; please report it with the command you ran"));
    }));
}

/// Has a write beyond the limit for the size of a file fail, with a message, instead of ending the process.
fn report_file_size_limits_as_errors() {
    #[cfg(unix)]
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()) {
        output::say(format_args!(
            "warning: a file that reaches the limit of its size will end the process: {error}"
        ));
    }
}

fn panic_message(payload: &dyn std::any::Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent_and_no_model_option_collides_with_a_flag() {
        Cli::command().debug_assert();
    }

    /// Commands in code blocks and code spans, with continued lines joined and comments removed.
    fn commands(page: &str) -> Vec<String> {
        let text = page.replace("\\\n", " ");
        let (mut found, mut is_fenced) = (Vec::new(), false);
        for line in text.lines() {
            is_fenced ^= line.starts_with("```");
            if !is_fenced && !line.starts_with("    ") {
                found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
                continue;
            }
            let line = line.trim().trim_start_matches("$ ").replace("cargo run --release -- ", "remat ");
            found.push(line.split(" # ").next().unwrap_or_default().trim().to_owned());
        }
        found.retain(|command| command.starts_with("remat "));
        found
    }

    /// The words of a command; what is between quotes is one.
    fn words(command: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for (at, part) in command.split('"').enumerate() {
            if at % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
        }
        words
    }

    #[test]
    fn every_command_in_the_docs_is_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
        let mut n_parsed = 0;
        for path in
            pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("bench/README.md")])
        {
            for command in commands(&std::fs::read_to_string(&path).unwrap()) {
                // Placeholders, what is left out, and a command's name alone are not for parsing.
                let is_placeholder =
                    |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
                let words = words(&command);
                if words.len() < 3
                    || words.iter().any(|w| is_placeholder(w) || w.contains("...") || w.contains(['…', '|']))
                {
                    continue;
                }
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{}: {command}\n{error}", path.display());
                }
                n_parsed += 1;
            }
        }
        assert!(n_parsed > 20, "only {n_parsed} commands were found");
    }
}
