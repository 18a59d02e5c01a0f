//! Tidiness that the compiler does not check.
//!
//! - Every Rust file begins with a header that says what it is.
//! - No Rust file is longer than [`MAX_LINES`] lines, except those with a reason in [`LONG_FILES`].
//! - Every path that a document or a comment names exists.
//! - No file names a folder of somebody's machine.
//!
//! In: the repository. Out: every fault with its file and line.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this holds more than one concept.
const MAX_LINES: usize = 600;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Where named paths may begin.
const ROOTS: [&str; 8] = ["crates/", "docs/", "bench/", "examples/", "xtask/", "python/", ".ci/", ".cargo/"];

/// Beginnings of paths that exist on one machine only. Assembled here, so that this file does not contain them.
fn machine_paths() -> Vec<String> {
    ["home", "Users", "root", "work"].map(|folder| format!("/{folder}/")).into()
}

/// All faults of the repository below `root`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut faults = Vec::new();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
        if name.ends_with(".rs") {
            faults.extend(rust_faults(&name, &text));
        }
        let is_there = |named: &str| root.join(named).exists();
        faults.extend(path_faults(&name, &text, is_there));
    }
    Ok(faults)
}

/// Text files of the repository; what is built or fetched is not ours to check.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            let is_skipped =
                matches!(name.as_str(), "target" | ".git" | ".venv" | "fixtures" | "__pycache__");
            if !is_skipped {
                collect(&path, files)?;
            }
        } else if [".rs", ".md", ".toml", ".py"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    Ok(())
}

fn rust_faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//! ") {
        faults.push(format!("{name}:1: the file does not begin with a `//!` header"));
    }
    let n_lines = text.lines().count();
    if n_lines > MAX_LINES && !LONG_FILES.iter().any(|(file, _)| *file == name) {
        faults.push(format!("{name}: {n_lines} lines; split it, or give a reason in xtask/src/tidy.rs"));
    }
    faults
}

/// Documents may name any file; in code only comments do.
fn path_faults(name: &str, text: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let is_document = name.ends_with(".md");
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        if let Some(found) = machine_paths().iter().find(|path| names_machine_path(line, path)) {
            faults.push(format!("{place}: names a folder of one machine, `{found}`"));
        }
        if is_document || line.trim_start().starts_with("//") {
            let missing = named_paths(line).into_iter().filter(|path| !is_there(path));
            faults.extend(missing.map(|path| format!("{place}: names `{path}`, which does not exist")));
        }
    }
    faults
}

/// A folder counts only where a path begins, not inside another path.
fn names_machine_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')'))
    })
}

/// Words that look like a path inside the repository. Patterns and placeholders are not paths.
fn named_paths(line: &str) -> Vec<&str> {
    let is_boundary = |c: char| c.is_whitespace() || "`\"'()[]<>,;:!|".contains(c);
    line.split(is_boundary)
        .map(|word| word.split('#').next().unwrap_or(word).trim_end_matches(['.', '/']))
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .filter(|word| !word.contains(['*', '{', '$', '=', '…']) && !word.contains("..."))
        .filter(|word| !word.chars().any(char::is_uppercase) || word.contains('.'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_header_or_with_too_many_lines_is_named() {
        assert_eq!(rust_faults("a.rs", "//! A.\n"), [""; 0]);
        assert!(rust_faults("a.rs", "fn main() {}\n")[0].starts_with("a.rs:1:"));
        let long = format!("//! A.\n{}", "\n".repeat(MAX_LINES));
        assert!(rust_faults("a.rs", &long)[0].contains("601 lines"));
    }

    #[test]
    fn documents_name_only_what_exists() {
        let text = "See `crates/a/src/lib.rs`, [b](docs/b.md#part) and crates/*/tests.\nAnd docs/none.md.\n";
        let faults = path_faults("README.md", text, |path| path != "docs/none.md");
        assert_eq!(faults, ["README.md:2: names `docs/none.md`, which does not exist"]);
        let code = "let x = \"docs/none.md\";\n// docs/none.md\n";
        assert_eq!(path_faults("a.rs", code, |_| false).len(), 1);
    }

    #[test]
    fn folders_of_a_machine_are_found_and_relative_ones_are_not() {
        let home = format!("see /{}/me/x", "home");
        let inside = format!("see target/{}/x", "home");
        assert_eq!(path_faults("a.md", &home, |_| true).len(), 1);
        assert_eq!(path_faults("a.md", &inside, |_| true).len(), 0);
    }
}
