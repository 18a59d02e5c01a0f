//! Progress bars: on stderr, and only when that is a terminal (elsewhere indicatif draws nothing).

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that vanishes when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `length` pieces of work; a length of zero shows a spinner until the length is known.
    pub(crate) fn new(what: &'static str, length: usize) -> Progress {
        let bar = ProgressBar::new(length as u64).with_message(what);
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Progress { bar }
    }

    /// A bar that also says how long the rest will take, for work whose pieces take equally long.
    pub(crate) fn with_end(what: &'static str, length: usize) -> Progress {
        let bar = Progress::new(what, length);
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}, {eta} left");
        bar.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar
    }

    /// Says what goes on, beside the bar.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Shows that `done` of `length` pieces are done.
    pub(crate) fn set(&self, done: usize, length: usize) {
        self.bar.set_length(length as u64);
        self.bar.set_position(done as u64);
    }

    /// Takes the bar away while something else is printed to the terminal.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
