//! Every Rust and Python file says what it is at its top; no source file holds more than one concept.

use super::File;

/// A file longer than this holds more than one concept.
const MAX_LINES: usize = 500;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

pub(super) fn check(file: &File) -> Vec<String> {
    let File { name, text } = file;
    let mut faults = Vec::new();
    if !begins_with_header(name, text) {
        faults.push(format!("{name}:1: the file does not begin with a comment that says what it is"));
    }
    let n_lines = text.lines().count();
    let is_source = [".rs", ".py", ".js"].iter().any(|end| name.ends_with(end));
    let may_be_long = LONG_FILES.iter().any(|(file, _)| file == name);
    if is_source && n_lines > MAX_LINES && !may_be_long {
        faults
            .push(format!("{name}: {n_lines} lines; split it, or give a reason in xtask/src/tidy/files.rs"));
    }
    if n_lines <= MAX_LINES && may_be_long {
        faults.push(format!("{name}: short enough now; remove it from xtask/src/tidy/files.rs"));
    }
    faults
}

fn begins_with_header(name: &str, text: &str) -> bool {
    // A script may name its interpreter first.
    let text = match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!/") => rest,
        _ => text,
    };
    match name.rsplit_once('.') {
        Some((_, "rs")) => text.starts_with("//! "),
        Some((_, "py")) => text.starts_with("\"\"\""),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        check(&File { name: name.into(), text: text.into() })
    }

    #[test]
    fn a_file_without_header_is_named() {
        for (name, good, bad) in [
            ("a.rs", "//! A.\n", "fn main() {}\n"),
            ("a.py", "#!/usr/bin/env python3\n\"\"\"A.\"\"\"\n", "import os\n"),
        ] {
            assert_eq!(faults(name, good), [""; 0]);
            assert!(faults(name, bad)[0].starts_with(&format!("{name}:1: ")));
        }
    }

    #[test]
    fn a_long_file_is_named() {
        for (name, header) in [("a.rs", "//! A."), ("a.py", "\"\"\"A.\"\"\""), ("a.js", "// A.")] {
            let text = |n_lines: usize| format!("{header}{}", "\n".repeat(n_lines));
            assert_eq!(faults(name, &text(MAX_LINES)), [""; 0]);
            assert!(faults(name, &text(MAX_LINES + 1))[0].contains("501 lines"));
        }
        assert_eq!(faults("a.md", &"\n".repeat(2000)), [""; 0]);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_named() {
        let Some((name, _)) = LONG_FILES.first() else { return };
        assert!(faults(name, "// A.\n")[0].contains("short enough"));
    }
}
