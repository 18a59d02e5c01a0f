//! The one test command: runs every check, goes on after a failure, and counts.

use crate::{dependencies, python, tidy};
use anyhow::Result;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What one check found.
struct Line {
    name: &'static str,
    n_passed: usize,
    n_failed: usize,
    /// Says that the check did not run, and why.
    skipped: Option<String>,
}

/// What all checks found.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

/// Runs the checks that build nothing.
pub(crate) fn run_quick(root: &Path) -> Report {
    let mut report = Report::default();
    report.add_faults("tidy", tidy::check(root));
    report.add_faults("dependencies", dependencies::check(root));
    report
}

/// Runs all checks, the quick ones first and those of the Python package last.
pub(crate) fn run(root: &Path, with_python: bool) -> Report {
    let mut report = run_quick(root);
    report.add_command("format", cargo(root, &["fmt", "--all", "--check"]));
    report.add_command(
        "lints",
        cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    );
    report.add_deny(root);
    report.say_whether_there_is_a_browser();
    report.add_tests("tests", cargo(root, &["test", "--workspace", "--release", "--no-fail-fast"]), counts);
    if with_python {
        report.add_python(root);
    }
    report
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    command
}

impl Report {
    fn add(&mut self, name: &'static str, passed: bool) {
        self.lines.push(Line { name, n_passed: passed.into(), n_failed: (!passed).into(), skipped: None });
    }

    fn add_faults(&mut self, name: &'static str, faults: Result<Vec<String>>) {
        heading(name);
        let faults = faults.unwrap_or_else(|error| vec![format!("{error:#}")]);
        faults.iter().for_each(|fault| println!("{fault}"));
        self.add(name, faults.is_empty());
    }

    fn add_command(&mut self, name: &'static str, mut command: Command) {
        heading(name);
        let status = command.status();
        if let Err(error) = &status {
            println!("cannot run {command:?}: {error}");
        }
        self.add(name, status.is_ok_and(|status| status.success()));
    }

    /// cargo-deny is a program of its own; [`dependencies`] checks licences and sources without it.
    fn add_deny(&mut self, root: &Path) {
        let probe = cargo(root, &["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if probe.is_ok_and(|status| status.success()) {
            self.add_command("cargo-deny", cargo(root, &["deny", "check", "bans", "licenses", "sources"]));
        } else {
            let why = "NOT RUN: cargo-deny is not installed (cargo install cargo-deny)".to_owned();
            self.lines.push(Line { name: "cargo-deny", n_passed: 0, n_failed: 0, skipped: Some(why) });
        }
    }

    /// One test opens the report in Chromium and passes without one, where its message is not shown; so it is said here.
    fn say_whether_there_is_a_browser(&mut self) {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|p| names.iter().any(|name| p.join(name).is_file()));
        if !is_there && std::env::var_os("REMAT_CHROMIUM").is_none() {
            let why =
                "NOT RUN: no Chromium is installed, so the report is not opened in a browser".to_owned();
            self.lines.push(Line { name: "browser", n_passed: 0, n_failed: 0, skipped: Some(why) });
        }
    }

    /// The Python package in a fresh environment. Nothing after a step that failed could pass.
    fn add_python(&mut self, root: &Path) {
        let steps = match python::steps(root) {
            Ok(steps) => steps,
            Err(why) => {
                self.lines.push(Line { name: "python", n_passed: 0, n_failed: 0, skipped: Some(why) });
                return;
            }
        };
        for (name, command) in steps.setup {
            let n_failed = self.n_failed();
            self.add_command(name, command);
            if self.n_failed() > n_failed {
                return;
            }
        }
        self.add_tests("python tests", steps.tests, python::counts);
    }

    /// Runs tests, shows what they print, and counts each; `counts` reads the lines that sum them up.
    fn add_tests(
        &mut self,
        name: &'static str,
        mut command: Command,
        counts: fn(&str) -> Option<(usize, usize)>,
    ) {
        heading(name);
        let (mut n_passed, mut n_failed) = (0, 0);
        let ran = command.stdout(Stdio::piped()).spawn().and_then(|mut child| {
            if let Some(stdout) = child.stdout.take() {
                for line in BufReader::new(stdout).lines() {
                    let line = line?;
                    println!("{line}");
                    if let Some((passed, failed)) = counts(&line) {
                        n_passed += passed;
                        n_failed += failed;
                    }
                }
            }
            child.wait()
        });
        let is_ok = ran.is_ok_and(|status| status.success());
        // A crate that does not build, or a test process that dies, leaves no line that counts a failure.
        if !is_ok && n_failed == 0 {
            n_failed = 1;
        }
        self.lines.push(Line { name, n_passed, n_failed, skipped: None });
    }

    /// How many tests and checks failed.
    pub(crate) fn n_failed(&self) -> usize {
        self.lines.iter().map(|line| line.n_failed).sum()
    }

    /// One line for each check, and the sum alone on the last line.
    pub(crate) fn print(&self) {
        println!();
        for Line { name, n_passed, n_failed, skipped } in &self.lines {
            match skipped {
                Some(why) => println!("{name:<14}{why}"),
                None => println!("{name:<14}{n_passed} passed, {n_failed} failed"),
            }
        }
        let n_passed: usize = self.lines.iter().map(|line| line.n_passed).sum();
        println!("\n{n_passed} passed, {} failed", self.n_failed());
    }
}

fn heading(name: &str) {
    println!("==> {name}");
}

/// The numbers of `test result: ok. 12 passed; 0 failed; ...`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("test tests::ok ... ok"), None);
    }

    #[test]
    fn a_check_that_cannot_run_has_failed() {
        let mut report = Report::default();
        report.add_faults("x", Err(anyhow::anyhow!("no")));
        assert_eq!(report.n_failed(), 1);
    }
}
