//! Developer commands: `cargo xtask test` runs everything that must hold, `cargo xtask tidy` the quick part of it.
//!
//! Only Rust is needed, and Python for the Python package. The last line of the output counts what passed, what failed
//! and what did not run: every test, and every other check once. The lines above say why something did not run.

mod leaderboard;
mod repository;
mod test;
mod tidy;
mod watch;

use repository::root;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

commands:
  test   format, lints, all tests, dependencies and tidiness: what must hold before a change is accepted;
         --no-python leaves out the Python package, which takes minutes and installs torch;
         --solver also tests the planner `ilp`, whose C++ solver takes long to compile;
         --strict fails when something did not run that could have been set up
  tidy   the quick part: module headers, file sizes, paths named in documents, order of modules, licences
  layers what each module imports, in the order of layers.toml
  watch PROGRAM [ARGUMENT ...]
         runs a test program and ends it when a test hangs
  leaderboard [FILE ...] [BUDGET ...] [--planners a,b] [--time-limit SECONDS] [--effort X]
         every planner on the problems of our models (and FILEs): cost, gap and time
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test", ref flags @ ..] => match test::Options::read(flags) {
            Some(options) => test::run(&root(), options).finish(options.strict),
            None => usage(),
        },
        ["tidy"] => test::run_quick(&root()).finish(true),
        ["layers"] => exit_code(tidy::print_layers(&root()).map(|()| ExitCode::SUCCESS)),
        ["watch", ..] => exit_code(watch::run(&arguments[1..])),
        ["leaderboard", ..] => {
            exit_code(leaderboard::run(&root(), &arguments[1..]).map(|()| ExitCode::SUCCESS))
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
