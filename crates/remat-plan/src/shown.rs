//! Words from files as they may be printed: nothing in them takes a terminal over, reorders a line or hides itself.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// A word with every unprintable character, line breaks and tabs included, as its escape: `\u{1b}`, `\n`.
///
/// ```
/// assert_eq!(remat_plan::Shown("a\u{1b}[2J\n").to_string(), r"a\u{1b}[2J\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| show(c, f))
    }
}

impl Shown<'_> {
    /// Escapes what has to be escaped in place.
    pub fn make(text: &mut String) {
        if text.contains(is_unprintable) {
            *text = Shown(text).to_string();
        }
    }

    /// Text of several lines, in which line breaks and tabs may stay.
    pub fn lines(text: &str) -> Cow<'_, str> {
        let is_harmful = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\t');
        if !text.contains(is_harmful) {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            // Writing to a string does not fail.
            let _ = if is_harmful(c) { show(c, &mut shown) } else { shown.write_char(c) };
        }
        Cow::Owned(shown)
    }
}

/// Whether a character acts instead of being seen: control characters, line separators, and those that change
/// the direction of the text around them.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Writes a character, or its escape.
pub(crate) fn show(c: char, out: &mut impl fmt::Write) -> fmt::Result {
    if is_unprintable(c) { write!(out, "{}", c.escape_default()) } else { out.write_char(c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_seen_is_escaped_once() {
        let text =
            "\0\u{7}\t\n\r\u{1b}[2J \u{7f} \u{9b}2J \u{202e}gpj \u{2066} \u{200f} \u{61c} é 日 🙂 \\ \"";
        let shown =
            r#"\u{0}\u{7}\t\n\r\u{1b}[2J \u{7f} \u{9b}2J \u{202e}gpj \u{2066} \u{200f} \u{61c} é 日 🙂 \ ""#;
        assert_eq!(Shown(text).to_string(), shown);
        assert_eq!(Shown(shown).to_string(), shown);
        assert_eq!(Shown::lines("a\tb\n\u{1b}c\r\n"), "a\tb\n\\u{1b}c\\r\n");
        assert!(matches!(Shown::lines("a\tb\n"), Cow::Borrowed(_)));
    }
}
