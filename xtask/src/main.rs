//! Developer commands: `cargo xtask test` runs everything that must hold, `cargo xtask tidy` the quick part of it.
//!
//! Only Rust is needed. The last line of the output counts what passed and what failed: every test, and every other
//! check once.

mod dependencies;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  test   format, lints, all tests, dependencies and tidiness: what must hold before a change is accepted
  tidy   the quick part: module headers, file sizes, paths named in documents, licences of dependencies
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let report = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(&root()),
        ["tidy"] => test::run_quick(&root()),
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
