//! Tidiness that no compiler checks: one file for each check.
//!
//! In: the repository. Out: for each check its faults, with file and line where there is one.

mod dependencies;
mod files;
mod layers;
mod paths;
mod phrases;

pub(crate) use layers::print as print_layers;

use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// A text file of the repository; the name is its path from the root, with `/`.
pub(crate) struct File {
    name: String,
    text: String,
}

/// Finds the faults of a repository; what it prints is for the reader alone.
pub(crate) type Check = fn(&Path) -> Result<Vec<String>>;

/// All checks, by name.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("files", |root| each_file(root, files::check)),
    ("paths", |root| each_file(root, |file| paths::check(file, |path| root.join(path).exists()))),
    ("phrases", |root| Ok(phrases::check(&files_below(root)?))),
    ("layers", layers::check),
    ("dependencies", dependencies::check),
];

fn each_file(root: &Path, check: impl Fn(&File) -> Vec<String>) -> Result<Vec<String>> {
    Ok(files_below(root)?.iter().flat_map(check).collect())
}

/// The text files of the repository in a fixed order; what is built or fetched is not ours to check.
fn files_below(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    collect(root, "", &mut files)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let last = entry.file_name().to_string_lossy().into_owned();
        let name = format!("{prefix}{last}");
        if entry.file_type()?.is_dir() {
            let is_skipped =
                matches!(last.as_str(), "target" | ".git" | ".venv" | "fixtures" | "__pycache__");
            if !is_skipped {
                collect(&entry.path(), &format!("{name}/"), files)?;
            }
        } else if [".rs", ".md", ".toml", ".py", ".js", ".yml"].iter().any(|end| name.ends_with(end)) {
            let text = fs::read_to_string(entry.path()).with_context(|| format!("reading {name}"))?;
            files.push(File { name, text });
        }
    }
    Ok(())
}
