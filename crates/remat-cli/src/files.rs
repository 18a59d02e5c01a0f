//! Files in and out, with their path in every error.
//!
//! A file that is written appears complete or not at all: it is written beside its place, flushed to the disk and
//! renamed. Readers see the old file or the new one.

use anyhow::{Context as _, Result};
use remat_plan::{Plan, Problem};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Reads a `remat.problem/1` file.
pub(crate) fn read_problem(path: &Path) -> Result<Problem> {
    Problem::from_json(&read(path)?).with_context(|| path.display().to_string())
}

/// Reads a `remat.plan/1` file for a problem.
pub(crate) fn read_plan(path: &Path, problem: &Problem) -> Result<Plan> {
    Plan::from_json(&read(path)?, problem).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Replaces a file of text, whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    write_bytes(path, text.as_bytes())
}

/// Replaces a file, whole or not at all.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path);
    let written = create(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first failure is the one to report; a left-over file is only untidy.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(|| format!("writing {}", path.display()))
}

/// Fails now rather than after minutes of work when a file cannot be written later.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    let probe = || -> std::io::Result<()> {
        if path.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let temporary = beside(path);
        create(&temporary)?;
        fs::remove_file(temporary)
    };
    probe().with_context(|| format!("writing {}", path.display()))
}

/// A name in the same folder that no other process uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
