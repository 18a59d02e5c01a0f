//! The Python package: a fresh virtual environment, the wheel, its types and its tests.
//!
//! In: the repository and a Python of at least 3.11. Out: whether each step passed, and how many tests did. The
//! environment lies in target/ and is made anew every time, so that what passes here passes after `pip install .`;
//! pip's own cache keeps that from downloading anew. Where there is no such Python, the check says so and is skipped: the
//! planner and the engine need Rust alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Installs, checks the types and runs the tests; the commands are for the caller to run, in order.
pub(crate) struct Steps {
    /// Named commands that must pass before the tests.
    pub(crate) setup: Vec<(&'static str, Command)>,
    /// The tests.
    pub(crate) tests: Command,
}

/// The commands, or why there are none.
pub(crate) fn steps(root: &Path) -> Result<Steps, String> {
    let python = find_python().ok_or("NOT RUN: no Python 3.11 or newer was found (or pass --no-python)")?;
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
    // The wheel is built with the target folder of this run, so that the planner is not compiled twice.
    install.env("CARGO_TARGET_DIR", target_folder(root));
    Ok(Steps {
        setup: vec![
            ("python venv", create),
            ("python wheel", install),
            ("python types", run(&inside, &["-m", "mypy"])),
        ],
        tests: run(&inside, &["-m", "pytest", "--tb=short"]),
    })
}

fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
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

/// The numbers of pytest's last line, such as `1 failed, 30 passed, 2 warnings in 12.34s`.
pub(crate) fn counts(line: &str) -> Option<(usize, usize)> {
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
}
