//! The Python package: a fresh virtual environment, the wheel, its types and its tests.
//!
//! In: the repository and a Python of at least 3.11. Out: the commands, in order, and what the output of the tests says.
//! The environment lies in target/ and is recreated every time, so that what passes here passes after `pip install .`;
//! pip's own cache keeps that from downloading everything again. The versions of what it installs are in
//! python/requirements-test.txt.

use super::report::{Outcome, Skip};
use crate::repository::target_folder;
use crate::watch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to run, in order.
pub(super) struct Steps {
    /// Named commands that must pass before the tests.
    pub(super) setup: Vec<(&'static str, Command)>,
    /// The tests.
    pub(super) tests: Command,
}

/// The commands, or why there are none.
pub(super) fn steps(root: &Path) -> Result<Steps, &'static str> {
    let python = find_python().ok_or("no Python 3.11 or newer was found")?;
    let environment = root.join("target/venv-python");
    let inside = environment.join("bin/python");
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root);
        command
    };
    let mut create = run(&python, &["-m", "venv", "--clear"]);
    create.arg(&environment);
    let mut install =
        run(&inside, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ".[test]"]);
    // The wheel is built in an environment of its own, for which newer versions of pip have a variable of its own.
    for name in ["PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"] {
        install.env(name, root.join("python/requirements-test.txt"));
    }
    // The wheel is built with the target folder of this run, so that the planner is not compiled twice.
    install.env("CARGO_TARGET_DIR", target_folder(root));
    // Most tests use one core, and some start a second process, so more would not help a small machine.
    let mut tests = run(&inside, &["-m", "pytest", "--tb=short", "-rs", "-n", "2"]);
    // A test that hangs ends the run with the stacks of all threads, in which the test is named.
    let limit = format!("faulthandler_timeout={}", watch::LIMIT.as_secs());
    tests.args(["-o", &limit, "-o", "faulthandler_exit_on_timeout=true"]);
    Ok(Steps {
        setup: vec![
            ("python venv", create),
            ("python wheel", install),
            ("python types", run(&inside, &["-m", "mypy"])),
        ],
        tests,
    })
}

/// A Python that is new enough, by the names it usually has.
fn find_python() -> Option<PathBuf> {
    ["python3", "python3.13", "python3.12", "python3.11", "python"].iter().map(PathBuf::from).find(|python| {
        let check = "import sys, venv; sys.exit(sys.version_info < (3, 11))";
        let probe =
            Command::new(python).args(["-c", check]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    })
}

/// Adds what one line of pytest's output says.
pub(super) fn read(line: &str, outcome: &mut Outcome) {
    if let Some(skip) = skipped(line) {
        outcome.skips.push(skip);
    } else if let Some((n_passed, n_failed)) = counts(line) {
        outcome.n_passed += n_passed;
        outcome.n_failed += n_failed;
    }
}

/// `SKIPPED [2] FILE:LINE: reason`.
fn skipped(line: &str) -> Option<Skip> {
    let (n_tests, rest) = line.strip_prefix("SKIPPED [")?.split_once("] ")?;
    let (what, why) = rest.split_once(": ")?;
    Some(Skip { what: what.into(), why: why.into(), n_tests: n_tests.parse().ok()? })
}

/// The numbers of pytest's last line, such as `1 failed, 30 passed, 2 warnings in 12.34s`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (counts, time) = line.trim_matches(['=', ' ']).split_once(" in ")?;
    if !time.split(' ').next()?.ends_with('s') {
        return None;
    }
    let number = |word: &str| {
        counts
            .split(", ")
            .filter_map(|part| part.strip_suffix(word)?.trim().parse::<usize>().ok())
            .sum::<usize>()
    };
    let (n_passed, n_failed) = (number(" passed"), number(" failed") + number(" error") + number(" errors"));
    (n_passed + n_failed > 0).then_some((n_passed, n_failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_counted() {
        assert_eq!(counts("1 failed, 30 passed, 2 warnings in 12.34s"), Some((30, 1)));
        assert_eq!(counts("=== 14 failed, 1 error in 29.88s (0:01:00) ==="), Some((0, 15)));
        assert_eq!(counts("25.00s call  python/tests/test_models.py"), None);
        assert_eq!(counts("installed in a folder"), None);
    }

    #[test]
    fn skipped_tests_are_named_with_their_reason() {
        let mut outcome = Outcome::default();
        read("SKIPPED [2] python/tests/test_backend.py:262: Inductor needs a C++ compiler", &mut outcome);
        read("3 passed, 2 skipped in 1.00s", &mut outcome);
        let (what, why) = ("python/tests/test_backend.py:262".into(), "Inductor needs a C++ compiler".into());
        assert_eq!(outcome.skips, [Skip { what, why, n_tests: 2 }]);
        assert_eq!((outcome.n_passed, outcome.n_failed), (3, 0));
    }
}
