//! A folder of results: files are written atomically, and the folder is made when it is missing.

use crate::draw::Picture;
use crate::files;
use crate::format::plural;
use crate::output::{Paint, Report};
use anyhow::{Context as _, Result};
use remat::report::Timelines;
use remat_plan::Shown;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A folder that exists and can be written to.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    written: Vec<String>,
}

impl Folder {
    /// Makes the folder, and fails now rather than after minutes of work when nothing can be written into it.
    pub(crate) fn create(path: &Path) -> Result<Folder> {
        files::create_folder(path)?;
        files::check_writable(&path.join("probe"))?;
        Ok(Folder { path: path.to_owned(), written: Vec::new() })
    }

    /// The path of a file of this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What was written, for people.
    pub(crate) fn summary(&self) -> String {
        let n_files = plural(self.written.len(), "file");
        format!("\n{n_files} in {}: {}\n", self.path.display(), self.written.join(", "))
    }

    /// Any bytes.
    pub(crate) fn write(&mut self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        files::write(&self.path(name), bytes)?;
        if !self.written.iter().any(|written| written == name) {
            self.written.push(name.to_owned());
        }
        Ok(())
    }

    /// Rows with a header line of their field names.
    pub(crate) fn csv<R: Serialize>(&mut self, name: &str, rows: &[R]) -> Result<()> {
        self.write(name, csv(rows).with_context(|| format!("writing {name}"))?)
    }

    /// A report in its JSON form.
    pub(crate) fn json<R: Report>(&mut self, name: &str, report: &R) -> Result<()> {
        self.write(name, crate::output::json(report)?)
    }

    /// A drawing as `NAME.svg` and `NAME.png`.
    pub(crate) fn picture(&mut self, name: &str, picture: &Picture) -> Result<()> {
        self.write(&format!("{name}.svg"), &picture.svg)?;
        self.write(&format!("{name}.png"), &picture.png)
    }
}

/// Rows as CSV with a header line of their field names.
pub(crate) fn csv<R: Serialize>(rows: &[R]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().context("ending the table")?;
    let text = String::from_utf8(bytes).context("writing text")?;
    Ok(Shown::lines(&text).into_owned().into_bytes())
}

impl Report for Timelines {
    const SCHEMA: &'static str = Timelines::SCHEMA;

    /// A timeline has no form for people but its picture.
    fn text(&self, _: Paint) -> String {
        String::new()
    }
}
