//! `remat report`: one HTML page from the folders that other commands wrote.

use crate::answer::Answer;
use crate::files;
use crate::format::plural;
use crate::loss_log::LossLog;
use crate::output::{Output, Paint, Report};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use remat::report::{Document, page};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes one self-contained HTML page from the folders that other commands wrote.
#[derive(Debug, Args)]
#[command(
    after_help = "Folders come from `profile --out`, `plan --out`, `sweep --out` and `frontier --out`; the output of any \
command with --json can be put beside them."
)]
pub(crate) struct Flags {
    /// Folders, or JSON documents that a command printed.
    #[arg(required = true, value_name = "DIR")]
    sources: Vec<PathBuf>,
    /// Where the page goes.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
}

#[derive(Serialize)]
struct Made {
    page: PathBuf,
    n_bytes: usize,
    documents: Vec<String>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        files::check_writable(&self.out)?;
        let mut documents = Vec::new();
        for source in &self.sources {
            if source.is_dir() {
                for path in files_ending(source, "json")? {
                    documents.extend(document(&path, &files::read_found(&path, files::DOCUMENT_LIMIT)?)?);
                }
                for path in files_ending(source, "csv")? {
                    documents.extend(read_log(&path));
                }
            } else {
                let Some(document) = document(source, &files::read_named(source)?)? else {
                    bail!("{}: it has no `schema` that begins with `remat.`", source.display());
                };
                documents.push(document);
            }
        }
        if documents.is_empty() {
            let folders: Vec<String> = self.sources.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "nothing to report in {}: write results there first, for example `remat profile resnet50 --out {}`",
                folders.join(", "),
                folders[0]
            );
        }
        let text = page(&documents);
        files::write(&self.out, &text)?;
        out.report(&Made {
            page: self.out.clone(),
            n_bytes: text.len(),
            documents: documents.into_iter().map(|document| document.file).collect(),
        })?;
        Ok(Answer::Yes)
    }
}

/// The files of a folder with this ending, by name.
fn files_ending(folder: &Path, wanted: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.extension().is_some_and(|ending| ending == wanted) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A document of ours; `None` for JSON of another kind, such as a trace. Problems are too large to show.
fn document(path: &Path, text: &str) -> Result<Option<Document>> {
    let mut document: Value =
        serde_json::from_str(text).with_context(|| format!("{} is not JSON", path.display()))?;
    let schema = document.get("schema").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !schema.starts_with("remat.") || schema.starts_with("remat.problem/") {
        return Ok(None);
    }
    // The steps of a plan are ids of its problem; the page shows the timeline instead.
    if let Some(fields) = document.as_object_mut().filter(|_| schema.starts_with("remat.plan/")) {
        fields.remove("steps");
    }
    Ok(Some(Document { file: path.display().to_string(), document }))
}

/// The loss log of a run; other tables of the folder are shown through their JSON documents.
fn read_log(path: &Path) -> Option<Document> {
    let log = LossLog::of(path, &files::read_found(path, files::DOCUMENT_LIMIT).ok()?).ok()?;
    let points: Vec<(u64, f32)> = log.rows.iter().map(|row| (row.step, row.loss)).collect();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let document = serde_json::json!({"schema": "remat.loss_log/1", "name": name, "points": points});
    Some(Document { file: path.display().to_string(), document })
}

impl Report for Made {
    const SCHEMA: &'static str = "remat.report/1";

    fn text(&self, paint: Paint) -> String {
        let n = plural(self.documents.len(), "document");
        format!(
            "{}: {} ({} KiB, from {n})\n",
            paint.good("written"),
            self.page.display(),
            self.n_bytes / 1024
        )
    }
}
