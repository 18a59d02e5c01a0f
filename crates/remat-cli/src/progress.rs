//! Progress bars: on stderr, and only when that is a terminal (elsewhere indicatif draws nothing). Several can be shown at
//! once, one below the other.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{LazyLock, Once};
use std::time::Duration;

static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A bar that appears when it is first set, if ever, and vanishes when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    appears: Once,
}

impl Progress {
    /// A bar over `length` pieces of work; 0 when the length is not known yet.
    pub(crate) fn new(what: &'static str, length: usize) -> Progress {
        Progress::with_template(what, length, "{msg} [{bar:30}] {pos}/{len} {elapsed}")
    }

    /// A bar that also says how long the rest will take, for work whose pieces take equally long.
    pub(crate) fn with_end(what: &'static str, length: usize) -> Progress {
        Progress::with_template(what, length, "{msg} [{bar:30}] {pos}/{len} {elapsed}, {eta} left")
    }

    fn with_template(what: &'static str, length: usize, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::hidden());
        Progress { bar: bar.with_style(style.progress_chars("=> ")).with_message(what), appears: Once::new() }
    }

    /// Says what is happening, beside the bar.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Shows that `done` of `length` pieces are done.
    pub(crate) fn set(&self, done: usize, length: usize) {
        self.appears.call_once(|| {
            BARS.add(self.bar.clone());
        });
        self.bar.set_length(length as u64);
        self.bar.set_position(done as u64);
    }

    /// Takes all bars away while something else is printed to the terminal.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        BARS.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        BARS.remove(&self.bar);
    }
}

/// A line for work of unknown length: what is done, for how long, and what is known so far. It vanishes when it is dropped.
#[derive(Debug)]
pub(crate) struct Spinner {
    bar: ProgressBar,
}

/// Says something on the line of a [`Spinner`], from any thread.
#[derive(Debug)]
pub(crate) struct SpinnerLine {
    bar: ProgressBar,
}

impl Spinner {
    /// A line that appears at once.
    pub(crate) fn new(what: String) -> Spinner {
        let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = BARS.add(ProgressBar::new_spinner().with_style(style).with_prefix(what));
        bar.enable_steady_tick(Duration::from_millis(200));
        Spinner { bar }
    }

    /// For reporting from elsewhere.
    pub(crate) fn handle(&self) -> SpinnerLine {
        SpinnerLine { bar: self.bar.clone() }
    }
}

impl SpinnerLine {
    /// Replaces what is known so far.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        BARS.remove(&self.bar);
    }
}
