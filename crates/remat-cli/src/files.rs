//! Files in and out, with their path in every error.

use anyhow::{Context as _, Result};
use remat::files;
use remat_plan::{Plan, Problem};
use std::path::Path;

/// Reads a `remat.problem` file, JSON or text.
pub(crate) fn read_problem(path: &Path) -> Result<Problem> {
    Ok(Problem::read(path)?)
}

/// Reads a `remat.plan` file for a problem, JSON or text.
pub(crate) fn read_plan(path: &Path, problem: &Problem) -> Result<Plan> {
    Ok(Plan::read(path, problem)?)
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
