//! Developer commands: `cargo xtask test` runs everything that must hold, `cargo xtask tidy` the quick part of it.
//!
//! Only Rust is needed, and Python for the Python package. The last line of the output counts what passed and what
//! failed: every test, and every other check once.

mod dependencies;
mod leaderboard;
mod python;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  test   format, lints, all tests, dependencies and tidiness: what must hold before a change is accepted;
         --no-python leaves out the Python package, which takes minutes and installs torch
  tidy   the quick part: module headers, file sizes, paths named in documents, licences of dependencies
  leaderboard [FILE ...] [BUDGET ...] [--planners a,b] [--time-limit SECONDS] [--effort X]
         every planner on the problems of our models (and FILEs): cost, gap and time
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let report = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(&root(), true),
        ["test", "--no-python"] => test::run(&root(), false),
        ["tidy"] => test::run_quick(&root()),
        ["leaderboard", ..] => {
            return match leaderboard::run(&root(), &arguments[1..]) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("error: {error:#}");
                    ExitCode::from(2)
                }
            };
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    report.print();
    if report.n_failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The root of the repository: this crate lies in a folder of it.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
