//! Words from files, fit for one line of a message: cut where they are long, with unprintable characters escaped.

use crate::shown::show;
use std::fmt::{self, Write as _};

/// Longer words are cut.
const LONGEST: usize = 80;

pub(crate) struct Short<'a>(pub(crate) &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.0.chars().enumerate() {
            if i == LONGEST {
                return f.write_char('…');
            }
            show(c, f)?;
        }
        Ok(())
    }
}
