//! Problems and plans from and to files: JSON or text.
//!
//! Reading tells the two apart by their beginning, `{` or the name of the format; what begins otherwise is wrong in either
//! form, and the name of the file decides which one the message is about. Writing goes by the name of the file: `.txt` is
//! text, everything else JSON. Errors name the file.

use crate::files::{self, DOCUMENT_LIMIT};
use crate::plan::{Plan, PlanError};
use crate::problem::{Problem, ProblemError};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a file could not be read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file system says no.
    #[error("{action} {}: {error}", path.display())]
    Io {
        /// `reading` or `writing`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The content is no problem.
    #[error("{}: {error}", path.display())]
    Problem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ProblemError,
    },
    /// The content is no plan for the problem.
    #[error("{}: {error}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: PlanError,
    },
}

impl Problem {
    /// Reads `remat.problem/1` in either form.
    pub fn parse(text: &str) -> Result<Problem, ProblemError> {
        if is_json(text, false) { Problem::from_json(text) } else { Problem::from_text(text) }
    }

    /// Reads a problem file in either form. It may be a pipe, which is waited for, and has [`DOCUMENT_LIMIT`] bytes at most.
    pub fn read(path: impl AsRef<Path>) -> Result<Problem, FileError> {
        let path = path.as_ref();
        let text = load(path)?;
        let is_json = is_json(&text, !is_text_name(path));
        let read = if is_json { Problem::from_json(&text) } else { Problem::from_text(&text) };
        read.map_err(|error| FileError::Problem { path: path.into(), error })
    }

    /// The problem in the form that the name of a file asks for.
    pub fn to_form_of(&self, path: impl AsRef<Path>) -> String {
        if is_text_name(path.as_ref()) { self.to_text() } else { self.to_json() }
    }

    /// Writes a problem file, whole or not at all: text where the name ends in `.txt`, JSON otherwise.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        store(path.as_ref(), &self.to_form_of(path.as_ref()))
    }
}

impl Plan {
    /// Reads `remat.plan/1` in either form.
    pub fn parse(text: &str, problem: &Problem) -> Result<Plan, PlanError> {
        if is_json(text, false) { Plan::from_json(text, problem) } else { Plan::from_text(text, problem) }
    }

    /// Reads a plan file in either form. It may be a pipe, which is waited for, and has [`DOCUMENT_LIMIT`] bytes at most.
    pub fn read(path: impl AsRef<Path>, problem: &Problem) -> Result<Plan, FileError> {
        let path = path.as_ref();
        let text = load(path)?;
        let is_json = is_json(&text, !is_text_name(path));
        let read = if is_json { Plan::from_json(&text, problem) } else { Plan::from_text(&text, problem) };
        read.map_err(|error| FileError::Plan { path: path.into(), error })
    }

    /// The plan in the form that the name of a file asks for.
    pub fn to_form_of(&self, path: impl AsRef<Path>, problem: &Problem) -> String {
        if is_text_name(path.as_ref()) { self.to_text(problem) } else { self.to_json() }
    }

    /// Writes a plan file, whole or not at all: text where the name ends in `.txt`, JSON otherwise.
    pub fn write(&self, path: impl AsRef<Path>, problem: &Problem) -> Result<(), FileError> {
        store(path.as_ref(), &self.to_form_of(path.as_ref(), problem))
    }
}

/// `otherwise` decides about what begins like neither form.
fn is_json(text: &str, otherwise: bool) -> bool {
    let start = text.trim_start();
    start.starts_with('{') || (otherwise && !start.starts_with("remat."))
}

fn is_text_name(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("txt"))
}

fn load(path: &Path) -> Result<String, FileError> {
    files::read_text(path, DOCUMENT_LIMIT).map_err(|error| FileError::Io {
        action: "reading",
        path: path.into(),
        error,
    })
}

fn store(path: &Path, text: &str) -> Result<(), FileError> {
    files::replace_bytes(path, text).map_err(|error| FileError::Io {
        action: "writing",
        path: path.into(),
        error,
    })
}
