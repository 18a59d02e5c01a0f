//! What all checks found: passed, failed, and what did not run with the reason.

use std::process::ExitCode;

/// What one check found.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) n_passed: usize,
    pub(super) n_failed: usize,
    pub(super) skips: Vec<Skip>,
}

/// Something that did not run.
#[derive(Debug, PartialEq)]
pub(super) struct Skip {
    /// The test or check; empty for the whole check.
    pub(super) what: String,
    pub(super) why: String,
    /// How many tests this stands for.
    pub(super) n_tests: usize,
}

/// Reasons that no set-up on this machine removes, by what they contain. Every other skip fails a strict run.
const ACCEPTED: &[&str] = &[
    "no planning instances are here", // Public instances of others, which are not ours to distribute.
    "--no-python",                    // Asked for.
    "--solver",                       // Not asked for.
    "CUDA",
    "GPU",
];

impl Skip {
    pub(super) fn new(what: impl Into<String>, why: impl Into<String>) -> Skip {
        Skip { what: what.into(), why: why.into(), n_tests: 1 }
    }

    fn could_have_run(&self) -> bool {
        !ACCEPTED.iter().any(|accepted| self.why.contains(accepted))
    }
}

impl Outcome {
    pub(super) fn of_check(passed: bool) -> Outcome {
        Outcome { n_passed: passed.into(), n_failed: (!passed).into(), skips: Vec::new() }
    }

    pub(super) fn skipped(why: &str) -> Outcome {
        Outcome { skips: vec![Skip::new("", why)], ..Outcome::default() }
    }
}

/// What all checks found, in the order in which they ran.
#[derive(Default)]
pub(crate) struct Report {
    checks: Vec<(&'static str, Outcome)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, outcome: Outcome) {
        self.checks.push((name, outcome));
    }

    pub(super) fn n_failed(&self) -> usize {
        self.checks.iter().map(|(_, outcome)| outcome.n_failed).sum()
    }

    /// Prints the report. The exit code reports a failure when something failed and, in a strict run, when
    /// something did not run that could have been set up.
    pub(crate) fn finish(&self, is_strict: bool) -> ExitCode {
        print!("\n{}", self.text(is_strict));
        if self.n_failed() == 0 && !(is_strict && self.has_avoidable_skip()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn has_avoidable_skip(&self) -> bool {
        self.checks.iter().flat_map(|(_, outcome)| &outcome.skips).any(Skip::could_have_run)
    }

    /// One line for each check, one for each thing that did not run, and the sums alone on the last line.
    fn text(&self, is_strict: bool) -> String {
        let mut text = String::new();
        for (name, Outcome { n_passed, n_failed, .. }) in &self.checks {
            if n_passed + n_failed > 0 {
                text += &format!("{name:<14}{n_passed} passed, {n_failed} failed\n");
            }
        }
        let skips =
            || self.checks.iter().flat_map(|(name, outcome)| outcome.skips.iter().map(move |s| (name, s)));
        if skips().next().is_some() {
            text += "\nNOT RUN\n";
        }
        for (name, skip) in skips() {
            let Skip { what, why, n_tests } = skip;
            let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
            let count = if *n_tests > 1 { format!(" ({n_tests} tests)") } else { String::new() };
            let fault = if is_strict && skip.could_have_run() { "; a failure with --strict" } else { "" };
            text += &format!("{name:<14}{what}{why}{count}{fault}\n");
        }
        let n_passed: usize = self.checks.iter().map(|(_, outcome)| outcome.n_passed).sum();
        let n_skipped: usize = skips().map(|(_, skip)| skip.n_tests).sum();
        text + &format!("\n{n_passed} passed, {} failed, {n_skipped} skipped\n", self.n_failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(why: &str) -> Report {
        let mut report = Report::default();
        report.add("format", Outcome::of_check(true));
        let skips = vec![Skip { what: "x".into(), why: why.into(), n_tests: 2 }];
        report.add("tests", Outcome { n_passed: 40, n_failed: 0, skips });
        report
    }

    #[test]
    fn the_last_line_counts_and_the_lines_above_say_what_did_not_run() {
        let text = report("no planning instances are here").text(false);
        let lines: Vec<&str> = text.lines().rev().collect();
        assert_eq!(lines[0], "41 passed, 0 failed, 2 skipped");
        assert_eq!(lines[2], "tests         x: no planning instances are here (2 tests)");
    }

    #[test]
    fn a_strict_run_fails_when_something_could_have_been_set_up() {
        let code = |why, is_strict| format!("{:?}", report(why).finish(is_strict));
        let (good, bad) = (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(code("no Chromium is installed", false), good);
        assert_eq!(code("no Chromium is installed", true), bad);
        assert_eq!(code("no planning instances are here", true), good);
    }

    #[test]
    fn a_failure_fails() {
        let mut report = Report::default();
        report.add("format", Outcome::of_check(false));
        assert_eq!(format!("{:?}", report.finish(false)), format!("{:?}", ExitCode::FAILURE));
    }
}
