//! The one test command: runs every check, continues after a failure, and counts what passed, failed and did not run.

mod libtest;
mod python;
mod report;
mod solver;

use crate::repository::cargo;
use crate::{tidy, watch};
use anyhow::Result;
use report::Outcome;
pub(crate) use report::Report;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What `cargo xtask test` was asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// Whether the Python package is left out.
    pub(crate) no_python: bool,
    /// Whether what could have been set up and was not counts as a failure.
    pub(crate) strict: bool,
    /// Whether the planner `ilp` is tested, too.
    pub(crate) solver: bool,
}

impl Options {
    /// Reads the flags; `None` when one is unknown.
    pub(crate) fn read(flags: &[&str]) -> Option<Options> {
        let mut options = Options::default();
        for flag in flags {
            match *flag {
                "--no-python" => options.no_python = true,
                "--strict" => options.strict = true,
                "--solver" => options.solver = true,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Runs the checks that build nothing.
pub(crate) fn run_quick(root: &Path) -> Report {
    let mut report = Report::default();
    for (name, check) in tidy::CHECKS {
        report.add_faults(name, || check(root));
    }
    report
}

/// Runs all checks, the quick ones first and the Python package last.
pub(crate) fn run(root: &Path, options: Options) -> Report {
    let mut report = run_quick(root);
    report.add_command("format", cargo(root, &["fmt", "--all", "--check"]));
    report.add_command(
        "lints",
        cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    );
    let mut docs = cargo(root, &["doc", "--workspace", "--exclude", "remat-py", "--no-deps", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "-Dwarnings");
    report.add_command("docs", docs);
    report.add_rust_tests("tests", root, &["--workspace", "--no-fail-fast"]);
    match solver::missing() {
        _ if !options.solver => report.add("solver tests", Outcome::skipped(solver::LEFT_OUT)),
        Some(why) => report.add("solver tests", Outcome::skipped(&why)),
        None => report.add_rust_tests(
            "solver tests",
            root,
            &["-p", "remat-plan", "--features", "ilp", "--test", "ilp"],
        ),
    }
    if options.no_python {
        report.add("python", Outcome::skipped("left out by --no-python"));
    } else {
        report.add_python(root);
    }
    report
}

impl Report {
    fn add_faults(&mut self, name: &'static str, check: impl FnOnce() -> Result<Vec<String>>) {
        heading(name);
        let faults = check().unwrap_or_else(|error| vec![format!("{error:#}")]);
        faults.iter().for_each(|fault| println!("{fault}"));
        self.add(name, Outcome::of_check(faults.is_empty()));
    }

    /// Whether the command passed.
    fn add_command(&mut self, name: &'static str, mut command: Command) -> bool {
        heading(name);
        let status = command.status();
        if let Err(error) = &status {
            println!("cannot run {command:?}: {error}");
        }
        let passed = status.is_ok_and(|status| status.success());
        self.add(name, Outcome::of_check(passed));
        passed
    }

    /// `cargo test` with a limit for each test.
    fn add_rust_tests(&mut self, name: &'static str, root: &Path, arguments: &[&str]) {
        let mut command = cargo(root, &["test", "--release"]);
        command.args(arguments);
        match watch::runner_option() {
            Ok(option) => {
                command.args(["--config", &option]);
                self.add_tests(name, command, libtest::reader());
            }
            Err(error) => self.add_faults(name, || Err(error)),
        }
    }

    /// The Python package in a fresh environment. Nothing after a step that failed could pass.
    fn add_python(&mut self, root: &Path) {
        let steps = match python::steps(root) {
            Ok(steps) => steps,
            Err(why) => return self.add("python", Outcome::skipped(why)),
        };
        for (name, command) in steps.setup {
            if !self.add_command(name, command) {
                return;
            }
        }
        self.add_tests("python tests", steps.tests, python::read);
    }

    /// Runs tests and shows what they print, which `read` counts.
    fn add_tests(
        &mut self,
        name: &'static str,
        mut command: Command,
        mut read: impl FnMut(&str, &mut Outcome),
    ) {
        heading(name);
        let mut outcome = Outcome::default();
        let ran = command.stdout(Stdio::piped()).spawn().and_then(|mut child| {
            if let Some(stdout) = child.stdout.take() {
                for line in BufReader::new(stdout).split(b'\n') {
                    let line = line?;
                    let line = String::from_utf8_lossy(&line);
                    println!("{line}");
                    read(&line, &mut outcome);
                }
            }
            child.wait()
        });
        if let Err(error) = &ran {
            println!("cannot run {command:?}: {error}");
        }
        // A crate that does not build, or a test process that dies, leaves no line that counts a failure.
        if outcome.n_failed == 0 && !ran.is_ok_and(|status| status.success()) {
            outcome.n_failed = 1;
        }
        self.add(name, outcome);
    }
}

fn heading(name: &str) {
    println!("==> {name}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_cannot_run_has_failed() {
        let mut report = Report::default();
        report.add_faults("x", || Err(anyhow::anyhow!("no")));
        report.add_command("y", Command::new("no-such-program"));
        report.add_tests("z", Command::new("no-such-program"), python::read);
        assert_eq!(report.n_failed(), 3);
    }

    #[test]
    fn tests_that_die_have_failed() {
        let mut report = Report::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 1"]);
        report.add_tests("x", command, libtest::reader());
        assert_eq!(report.n_failed(), 1);
    }

    #[test]
    fn flags_are_read() {
        assert!(Options::read(&["--strict", "--no-python"]).is_some_and(|o| o.strict && o.no_python));
        assert!(Options::read(&["--stric"]).is_none());
    }
}
