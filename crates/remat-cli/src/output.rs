//! Where results go: stdout, as text or as one JSON document. What is said beside them goes to stderr through [`say`].
//!
//! Names come from files that anyone may have written, and a model may print anything. Whatever passes here has its
//! unprintable characters escaped: in text so that they are seen, in JSON as JSON escapes them.
//!
//! A reader that goes away (`remat ... | head -1`) is not an error. The first failed write closes the output; later
//! writes do nothing, so a command finishes its work, writes its files and exits with its true answer. Loops ask
//! [`Output::is_closed`] whether anyone still listens. Any other failure to write is an error.

use anyhow::{Context as _, Result};
use clap::builder::styling::{AnsiColor, Style, Styles};
use remat_plan::{Shown, is_unprintable};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Stdout, Write};

/// What a command found out, ready to be printed in either form.
pub(crate) trait Report: Serialize {
    /// Name and version of the JSON form, such as `remat.compare/1`.
    const SCHEMA: &'static str;

    /// The name of this very document, where that depends on what is in it.
    fn schema(&self) -> &'static str {
        Self::SCHEMA
    }

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
    let mut text = serde_json::to_string_pretty(&Document { schema: report.schema(), report })
        .context("writing the report as JSON")?;
    text.push('\n');
    Ok(escaped(text))
}

/// JSON whose unprintable characters are written as escapes, which changes nothing for those who read it as JSON.
fn escaped(json: String) -> String {
    let is_harmful = |c: char| is_unprintable(c) && c != '\n';
    if !json.contains(is_harmful) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // Every such character is in the basic plane, so one escape is enough.
        if is_harmful(c) { text += &format!("\\u{:04x}", u32::from(c)) } else { text.push(c) }
    }
    text
}

/// Says something on stderr, with a line break. Nothing can be done about a closed stderr.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", Shown::lines(&text.to_string()));
}

/// Says on stderr what went wrong.
pub(crate) fn complain(error: &str) {
    let heading = Paint::stderr().bad("error:");
    let _ = writeln!(std::io::stderr().lock(), "{heading} {}", Shown::lines(error));
}

/// Prints what clap has to say: help to stdout, an error to stderr. It repeats words of the command line as they are.
pub(crate) fn print_usage(error: &clap::Error, styles: &Styles) {
    let paint = if error.use_stderr() { Paint::stderr() } else { Paint::stdout() };
    let rendered = error.render();
    let rendered = rendered.ansi().to_string();
    let text = paint.shown_with(&rendered, &sequences(&styles_of(styles)));
    // Nothing can be done where nobody listens.
    let _ = match error.use_stderr() {
        true => std::io::stderr().lock().write_all(text.as_bytes()),
        false => std::io::stdout().lock().write_all(text.as_bytes()),
    };
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

    /// Prints text. Only the colours of [`Paint`] are passed on as they are.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        let text = Paint::stdout().shown(text);
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

/// Begins the sequences that terminals obey.
const ESCAPE: char = '\u{1b}';
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const HEADING: Style = Style::new().bold();

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
        self.styled(word, GOOD)
    }

    /// Red.
    pub(crate) fn bad(self, word: &str) -> String {
        self.styled(word, BAD)
    }

    /// Bold.
    pub(crate) fn heading(self, word: &str) -> String {
        self.styled(word, HEADING)
    }

    /// Green when it holds, red otherwise.
    pub(crate) fn verdict(self, holds: bool, word: &str) -> String {
        if holds { self.good(word) } else { self.bad(word) }
    }

    fn styled(self, word: &str, style: Style) -> String {
        if self.is_on { format!("{style}{}{style:#}", Shown(word)) } else { word.to_owned() }
    }

    /// Text in which nothing but our own colours is an escape sequence.
    fn shown(self, text: &str) -> Cow<'_, str> {
        if !self.is_on || !text.contains(ESCAPE) {
            return Shown::lines(text);
        }
        Cow::Owned(self.shown_with(text, &sequences(&[GOOD, BAD, HEADING])))
    }

    /// Text in which only these sequences are escape sequences, or none where colour is not wanted.
    fn shown_with(self, text: &str, known: &[String]) -> String {
        let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(ESCAPE) {
            let (before, after) = rest.split_at(at);
            shown += &Shown::lines(before);
            let found = known.iter().find(|sequence| after.starts_with(*sequence));
            match found {
                Some(sequence) if self.is_on => shown += sequence,
                Some(_) => {}
                None => shown += &Shown(&after[..ESCAPE.len_utf8()]).to_string(),
            }
            rest = &after[found.map_or(ESCAPE.len_utf8(), String::len)..];
        }
        shown + &Shown::lines(rest)
    }
}

/// The escape sequences that begin and end these styles, one by one.
fn sequences(styles: &[Style]) -> Vec<String> {
    let all: String = styles.iter().map(|style| format!("{style}{style:#}")).collect();
    all.split_terminator(ESCAPE).skip(1).map(|rest| format!("{ESCAPE}{rest}")).collect()
}

/// The styles of what clap prints.
fn styles_of(styles: &Styles) -> Vec<Style> {
    let words = [styles.get_header(), styles.get_usage(), styles.get_literal(), styles.get_placeholder()];
    let verdicts = [styles.get_error(), styles.get_valid(), styles.get_invalid()];
    let context = [styles.get_context(), styles.get_context_value()];
    words.into_iter().chain(verdicts).chain(context).copied().collect()
}

fn wants_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_reach_a_terminal() {
        let paint = Paint { is_on: true };
        let text = format!("{}: {}\n", paint.good("fits"), "\u{1b}[2J\u{1b}[8m\u{9b}1m\r\u{202e}");
        let shown = paint.shown(&text);
        assert_eq!(shown, format!("{GOOD}fits{GOOD:#}: {}\n", r"\u{1b}[2J\u{1b}[8m\u{9b}1m\r\u{202e}"));
        assert!(!paint.heading("a\u{1b}[2J").contains("\u{1b}[2J"));
        let off = Paint { is_on: false };
        assert_eq!(off.shown("\u{1b}[1m"), r"\u{1b}[1m");
    }

    #[test]
    fn words_of_the_command_line_are_shown_in_colour_or_without_and_never_obeyed() {
        let flag = clap::Arg::new("flag").long("flag");
        let mut command = clap::Command::new("remat").arg(flag);
        let words = ["remat", "--flagg", "\u{1b}[2J\u{1b}[8m\u{9b}1m\r\u{202e}"];
        let told = |words: &[&str], command: &mut clap::Command| {
            let error = command.try_get_matches_from_mut(words).unwrap_err();
            let known = sequences(&styles_of(command.get_styles()));
            let rendered = error.render().ansi().to_string();
            [true, false].map(|is_on| Paint { is_on }.shown_with(&rendered, &known))
        };
        let [coloured, plain] = told(&words[..2], &mut command);
        assert!(coloured.contains("\u{1b}[1m") && coloured.len() > plain.len(), "{coloured:?}");
        assert!(
            plain.starts_with("error: ") && !plain.contains(|c| is_unprintable(c) && c != '\n'),
            "{plain:?}"
        );
        let [coloured, plain] = told(&[words[0], words[2]], &mut command);
        for text in [coloured, plain] {
            assert!(text.contains(r"\u{1b}[2J\u{1b}[8m\u{9b}1m\r\u{202e}"), "{text:?}");
            assert!(!text.contains("\u{1b}[2J") && !text.contains("\u{1b}[8m"), "{text:?}");
        }
    }

    #[test]
    fn json_means_the_same_without_unprintable_characters() {
        let names = ["\u{1b}[2J", "\u{7f}\u{9b}", "\u{202e}gpj", "é\n"];
        let text = escaped(serde_json::to_string_pretty(&names).unwrap());
        assert!(!text.contains(|c| is_unprintable(c) && c != '\n'), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), names);
    }
}
