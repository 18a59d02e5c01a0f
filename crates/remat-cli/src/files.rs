//! Files in and out, with their path in every error.

pub(crate) use remat::files::{DESCRIPTION_LIMIT, DOCUMENT_LIMIT};

use anyhow::{Context as _, Result};
use remat::files;
use remat_plan::{Bytes, Plan, Problem};
use std::path::Path;

/// Reads a `remat.problem` file, JSON or text.
pub(crate) fn read_problem(path: &Path) -> Result<Problem> {
    Ok(Problem::read(path)?)
}

/// Reads a `remat.plan` file for a problem, JSON or text.
pub(crate) fn read_plan(path: &Path, problem: &Problem) -> Result<Plan> {
    Ok(Plan::read(path, problem)?)
}

/// Text of a file that the user named, which may be a pipe such as `<(command)`.
pub(crate) fn read_named(path: &Path) -> Result<String> {
    files::read_text(path, DOCUMENT_LIMIT).with_context(|| reading(path))
}

/// Text of a file that is there because of its place, where nobody expects to wait for a pipe.
pub(crate) fn read_found(path: &Path, limit: Bytes) -> Result<String> {
    files::read_regular_text(path, limit).with_context(|| reading(path))
}

fn reading(path: &Path) -> String {
    format!("reading {}", path.display())
}

/// Replaces a file, whole or not at all.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    files::replace_bytes(path, contents).with_context(|| format!("writing {}", path.display()))
}

/// Fails now rather than after minutes of work when a file cannot be written later.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    files::check_replaceable(path).with_context(|| format!("writing {}", path.display()))
}

/// Makes a folder and the folders above it.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    files::create_folder(path).with_context(|| format!("making the folder {}", path.display()))
}
