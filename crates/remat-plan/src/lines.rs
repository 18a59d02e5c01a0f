//! Lines of words: what the text forms of problems and plans are made of.
//!
//! A line is a list of words between blanks; `#` begins a comment. A word with characters that are not
//! [`is_plain`] is written in quotes, with the escapes of JSON, so every name survives. An error says the line, what is
//! wrong there and what to write instead.

use crate::ids::ValueId;
use crate::short::Short;
use crate::shown::is_unprintable;
use crate::units::Bytes;
use std::fmt;

/// Why a text is not in the text form of a problem or a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// What to write instead.
    pub advice: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.advice)
    }
}

impl std::error::Error for TextError {}

/// The words of one line, read from the left.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    number: usize,
    rest: &'a str,
}

/// The lines of a text that have words.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let numbered = text.lines().enumerate().map(|(i, rest)| Line { number: i + 1, rest });
    numbered.filter(|line| !line.is_at_end())
}

impl<'a> Line<'a> {
    pub(crate) fn error(&self, what: impl Into<String>, advice: impl Into<String>) -> TextError {
        TextError { line: self.number, what: what.into(), advice: advice.into() }
    }

    fn skip(&self) -> &'a str {
        self.rest.trim_start()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        let rest = self.skip();
        rest.is_empty() || rest.starts_with('#')
    }

    /// The next word as it is written.
    fn raw(&self) -> Option<&'a str> {
        let rest = self.skip();
        if self.is_at_end() {
            return None;
        }
        let end = if let Some(inside) = rest.strip_prefix('"') {
            let mut is_escaped = false;
            let close = inside.bytes().position(|c| {
                let closes = c == b'"' && !is_escaped;
                is_escaped = c == b'\\' && !is_escaped;
                closes
            });
            close.map_or(rest.len(), |at| at + 2)
        } else {
            rest.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(rest.len())
        };
        Some(&rest[..end])
    }

    /// Whether the next word begins like an id of a value.
    fn has_value_next(&self) -> bool {
        self.skip().starts_with('%')
    }

    /// The next word without its quotes; `what` names it in the error when the line has ended.
    pub(crate) fn word(&mut self, what: &str) -> Result<String, TextError> {
        let raw =
            self.raw().ok_or_else(|| self.error(format!("{what} is missing"), format!("add {what}")))?;
        let word = if raw.starts_with('"') {
            serde_json::from_str(raw).map_err(|_| {
                self.error(
                    format!("{} is not a complete quoted word", shown(raw)),
                    "close the quotes; write \\\" and \\\\ for a quote and a backslash inside them",
                )
            })?
        } else {
            raw.to_string()
        };
        let rest = self.skip();
        self.rest = &rest[raw.len()..];
        Ok(word)
    }

    fn parsed<T>(
        &mut self,
        what: &str,
        advice: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TextError> {
        let start = self.clone();
        let word = self.word(what)?;
        parse(&word).ok_or_else(|| start.error(format!("{} is not {what}", shown(&word)), advice))
    }

    /// A number of bytes: digits alone, or a size with a unit.
    pub(crate) fn bytes(&mut self, what: &str) -> Result<Bytes, TextError> {
        self.parsed(what, "write a number of bytes such as 4096, or a size such as 1.5MiB", |word| {
            word.parse::<u64>().ok().map(Bytes).or_else(|| word.parse().ok())
        })
    }

    /// A cost.
    pub(crate) fn number(&mut self, what: &str) -> Result<f64, TextError> {
        self.parsed(what, "write a number such as 0.25 or 1e-3", |word| word.parse().ok())
    }

    /// A position in a list.
    pub(crate) fn index(&mut self, what: &str) -> Result<u32, TextError> {
        self.parsed(what, "write its number, counted from 0", |word| word.parse().ok())
    }

    /// The id of a value.
    pub(crate) fn value(&mut self) -> Result<ValueId, TextError> {
        self.parsed("a value", "write a value as % and its number, such as %3", value_id)
    }

    /// All ids of values that come next; something else may follow them, but not replace them.
    pub(crate) fn values(&mut self) -> Result<Vec<ValueId>, TextError> {
        let mut values = Vec::new();
        while self.has_value_next() || (values.is_empty() && !self.is_at_end()) {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// Pairs such as `%0>%4`.
    pub(crate) fn pairs(&mut self) -> Result<Vec<(ValueId, ValueId)>, TextError> {
        let mut pairs = Vec::new();
        while self.has_value_next() {
            let advice = "write the input and the output with > between them, such as %0>%4";
            pairs.push(self.parsed("a pair of values", advice, |word| {
                let (input, output) = word.split_once('>')?;
                Some((value_id(input)?, value_id(output)?))
            })?);
        }
        Ok(pairs)
    }

    /// One of several words.
    pub(crate) fn one_of<T: Copy>(&mut self, what: &str, known: &[(&str, T)]) -> Result<T, TextError> {
        let start = self.clone();
        let word = self.word(what)?;
        let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            start.error(
                format!("{} is not {what}", shown(&word)),
                format!("write one of {}", names.join(", ")),
            )
        })
    }

    /// Demands that nothing follows.
    pub(crate) fn end(self) -> Result<(), TextError> {
        match self.raw() {
            None => Ok(()),
            Some(word) => Err(self.error(
                format!("{} is one word too many", shown(word)),
                "remove it, or put a name with blanks in double quotes",
            )),
        }
    }
}

fn value_id(word: &str) -> Option<ValueId> {
    word.strip_prefix('%')?.parse().ok().map(ValueId)
}

fn shown(word: &str) -> String {
    format!("`{}`", Short(word))
}

/// Whether a word needs no quotes.
fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.:/+*,=[]()".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

/// A word as it is written: in quotes where it has to be.
pub(crate) struct Word<'a>(pub(crate) &'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            return f.write_str(self.0);
        }
        // JSON leaves unprintable characters above ASCII as they are; a line must not contain them.
        let quoted = serde_json::to_string(self.0).expect("a string is valid JSON");
        for c in quoted.chars() {
            if is_unprintable(c) {
                write!(f, "\\u{:04x}", c as u32)?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
