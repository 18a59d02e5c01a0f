//! What Rust's test harness prints: results, ignored tests, and tests that say that they did not run.
//!
//! A test that lacks something writes the line `SKIPPED name: reason` and returns; the harness counts it as passed.

use super::report::{Outcome, Skip};
use crate::watch;

/// Adds what each line of output says.
pub(super) fn reader() -> impl FnMut(&str, &mut Outcome) {
    // Of the program that runs now: its result line comes after them.
    let mut n_said = 0;
    move |line, outcome| {
        if let Some((n_passed, n_failed)) = counts(line) {
            outcome.n_passed += n_passed - n_said.min(n_passed);
            outcome.n_failed += n_failed;
            n_said = 0;
        } else if line.contains(watch::HUNG) {
            // The program was killed before it could count.
            outcome.n_failed += 1;
            n_said = 0;
        } else if let Some(skip) = skipped(line) {
            outcome.skips.push(skip);
            n_said += 1;
        } else if let Some(skip) = ignored(line) {
            outcome.skips.push(skip);
        }
    }
}

/// The numbers of `test result: ok. 12 passed; 0 failed; ...`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

/// `SKIPPED name: reason`, which may follow the beginning of a line of the harness when tests run one by one.
fn skipped(line: &str) -> Option<Skip> {
    let (before, said) = line.split_once("SKIPPED ")?;
    let (what, why) = said.split_once(": ")?;
    (before.is_empty() || before.starts_with("test ")).then(|| Skip::new(what, why))
}

/// `test name ... ignored` or `test name ... ignored, reason`.
fn ignored(line: &str) -> Option<Skip> {
    let (what, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let why = rest.strip_prefix(", ").unwrap_or("marked as ignored");
    Some(Skip::new(what, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_was_killed_has_failed() {
        let mut outcome = Outcome::default();
        reader()(&format!("test a::b{} 900 s; x was killed", watch::HUNG), &mut outcome);
        assert_eq!(outcome.n_failed, 1);
    }

    #[test]
    fn results_are_counted_and_what_did_not_run_is_named() {
        let output = "\
running 5 tests
SKIPPED instances: no planning instances here: set X
test a ... ok
test b ... ignored
test c ... ignored, takes an hour
test d ... SKIPPED d: no browser
ok
test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        let mut outcome = Outcome::default();
        let mut read = reader();
        output.lines().for_each(|line| read(line, &mut outcome));
        assert_eq!(outcome.n_failed, 1);
        let skips: Vec<_> =
            outcome.skips.iter().map(|skip| (skip.what.as_str(), skip.why.as_str())).collect();
        assert_eq!(
            skips,
            [
                ("instances", "no planning instances here: set X"),
                ("b", "marked as ignored"),
                ("c", "takes an hour"),
                ("d", "no browser"),
            ]
        );
        assert_eq!(outcome.n_passed, 1);
    }
}
