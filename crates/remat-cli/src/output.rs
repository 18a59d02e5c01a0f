//! Where results go: stdout, as text or as one JSON document.
//!
//! A reader that goes away (`remat ... | head -1`) is not an error. The first failed write closes the output; later
//! writes do nothing, so a command finishes its work, writes its files and exits with its true answer. Loops ask
//! [`Output::is_closed`] whether anyone still listens. Any other failure to write is an error.

use anyhow::{Context as _, Result};
use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Stdout, Write};

/// What a command found out, ready to be printed in either form.
pub(crate) trait Report: Serialize {
    /// Name and version of the JSON form, such as `remat.compare/1`.
    const SCHEMA: &'static str;

    /// The form for people, with a final line break.
    fn text(&self, paint: Paint) -> String;
}

/// A report as one JSON document with its schema.
pub(crate) fn json<R: Report>(report: &R) -> Result<String> {
    #[derive(Serialize)]
    struct Document<'a, R> {
        schema: &'static str,
        #[serde(flatten)]
        report: &'a R,
    }
    let mut text = serde_json::to_string_pretty(&Document { schema: R::SCHEMA, report })
        .context("writing the report as JSON")?;
    text.push('\n');
    Ok(text)
}

/// Stdout in the form that was asked for.
#[derive(Debug)]
pub(crate) struct Output {
    out: BufWriter<Stdout>,
    is_json: bool,
    is_closed: bool,
    has_document: bool,
}

/// Why a command failed, as a document.
#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
    exit_code: u8,
}

impl Report for Failure<'_> {
    const SCHEMA: &'static str = "remat.error/1";

    /// People read stderr.
    fn text(&self, _: Paint) -> String {
        String::new()
    }
}

impl Output {
    /// Text, or JSON when asked for.
    pub(crate) fn stdout(is_json: bool) -> Output {
        Output { out: BufWriter::new(std::io::stdout()), is_json, is_closed: false, has_document: false }
    }

    /// Whether one JSON document is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether the reader has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints a report in the form that was asked for.
    pub(crate) fn report<R: Report>(&mut self, report: &R) -> Result<()> {
        if !self.is_json {
            return self.text(&report.text(Paint::stdout()));
        }
        self.has_document = true;
        self.text(&json(report)?)
    }

    /// Ends with a document that holds the error, where JSON is wanted and no other document was printed.
    pub(crate) fn failure(&mut self, error: &str, exit_code: u8) -> Result<()> {
        if self.has_document { Ok(()) } else { self.report(&Failure { error, exit_code }) }
    }

    /// Prints text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        self.write(|out| out.write_all(text.as_bytes()))
    }

    /// Prints text and lets the reader see it now.
    pub(crate) fn text_now(&mut self, text: &str) -> Result<()> {
        self.text(text)?;
        self.flush()
    }

    /// Hands everything to the reader.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.write(Write::flush)
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<Stdout>) -> std::io::Result<()>) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match write(&mut self.out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other.context("writing to stdout"),
        }
    }
}

/// Colours words, or leaves them as they are where colour is not wanted: see <https://no-color.org>.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    /// For text on stdout.
    pub(crate) fn stdout() -> Paint {
        Paint { is_on: wants_colour() && std::io::stdout().is_terminal() }
    }

    /// For text on stderr.
    pub(crate) fn stderr() -> Paint {
        Paint { is_on: wants_colour() && std::io::stderr().is_terminal() }
    }

    /// Green.
    pub(crate) fn good(self, word: &str) -> String {
        self.styled(word, AnsiColor::Green.on_default().bold())
    }

    /// Red.
    pub(crate) fn bad(self, word: &str) -> String {
        self.styled(word, AnsiColor::Red.on_default().bold())
    }

    /// Bold.
    pub(crate) fn heading(self, word: &str) -> String {
        self.styled(word, Style::new().bold())
    }

    /// Green when it holds, red otherwise.
    pub(crate) fn verdict(self, holds: bool, word: &str) -> String {
        if holds { self.good(word) } else { self.bad(word) }
    }

    fn styled(self, word: &str, style: Style) -> String {
        if self.is_on { format!("{style}{word}{style:#}") } else { word.to_owned() }
    }
}

fn wants_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
