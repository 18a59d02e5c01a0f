//! The log of a training run: CSV with one row per step. Losses are printed so that reading gives the same bits.
//!
//! Each row is handed to the operating system whole. A resumed run keeps the rows up to its checkpoint and drops the rest,
//! so each step appears once.

use crate::files;
use anyhow::{Context as _, Result, bail};
use remat_plan::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is known about a step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) step: u64,
    pub(crate) loss: f32,
    pub(crate) learning_rate: f64,
    /// Norm of all gradients before clipping.
    pub(crate) grad_norm: Option<f32>,
    pub(crate) seconds: f64,
    /// Tokens, images or examples per second.
    pub(crate) per_second: f64,
    pub(crate) peak_bytes: Bytes,
    /// Loss on held-out data, after the steps that are evaluated.
    pub(crate) eval_loss: Option<f32>,
    pub(crate) eval_accuracy: Option<f32>,
}

const N_COLUMNS: usize = 9;

/// The first line; `unit` is what is counted per second.
fn header(unit: &str) -> [String; N_COLUMNS] {
    let rate = format!("{unit}_per_second");
    let names = ["step", "loss", "learning_rate", "grad_norm", "seconds", &rate, "peak_bytes", "eval_loss"];
    let [step, loss, learning_rate, norm, seconds, rate, peak, eval_loss] = names.map(str::to_owned);
    [step, loss, learning_rate, norm, seconds, rate, peak, eval_loss, "eval_accuracy".to_owned()]
}

impl Row {
    fn cells(&self) -> [String; N_COLUMNS] {
        let known = |x: Option<f32>| x.map_or_else(String::new, |x| x.to_string());
        [
            self.step.to_string(),
            self.loss.to_string(),
            self.learning_rate.to_string(),
            known(self.grad_norm),
            format!("{:.6}", self.seconds),
            format!("{:.1}", self.per_second),
            self.peak_bytes.0.to_string(),
            known(self.eval_loss),
            known(self.eval_accuracy),
        ]
    }
}

fn lines<R: IntoIterator<Item: AsRef<[u8]>>>(rows: impl IntoIterator<Item = R>) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row)?;
    }
    writer.into_inner().context("writing rows")
}

/// A log that a run writes.
#[derive(Debug)]
pub(crate) struct LossWriter {
    path: PathBuf,
    file: File,
}

impl LossWriter {
    /// Opens a log whose rows up to `step` stay; 0 starts over. `unit` is what is counted per second.
    pub(crate) fn open(path: &Path, step: u64, unit: &str) -> Result<LossWriter> {
        let header = header(unit);
        let mut kept = lines([&header])?;
        if step > 0 && path.exists() {
            let text = files::read_found(path, files::DOCUMENT_LIMIT)?;
            // A row without its line break was torn by a crash.
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(whole.as_bytes());
            let is_ours = reader.headers().is_ok_and(|found| found.iter().eq(&header));
            anyhow::ensure!(
                is_ours,
                "{} is not the log of such a run: its first line is not `{}`",
                path.display(),
                header.join(",")
            );
            for row in reader.records() {
                let row = row.with_context(|| format!("reading {}", path.display()))?;
                let number = row.get(0).and_then(|number| number.parse::<u64>().ok());
                if row.len() == N_COLUMNS && number.is_some_and(|number| number <= step) {
                    kept.extend(lines([&row])?);
                }
            }
        }
        files::write(path, kept)?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.with_context(|| format!("writing {}", path.display()))?;
        Ok(LossWriter { path: path.to_owned(), file })
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: &Row) -> Result<()> {
        let written = self.file.write_all(&lines([row.cells()])?);
        written.with_context(|| format!("writing {}", self.path.display()))
    }

    /// Makes what was added durable: before a checkpoint that builds on it.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync_data().with_context(|| format!("writing {}", self.path.display()))
    }
}

/// A log in memory; columns beyond these are not looked at.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LossLog {
    /// In order of the file.
    pub(crate) rows: Vec<LossRow>,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub(crate) struct LossRow {
    /// From 1.
    pub(crate) step: u64,
    /// Before the update.
    pub(crate) loss: f32,
}

impl LossLog {
    /// Reads a log that the user named; an error names the file and the line.
    pub(crate) fn read(path: &Path) -> Result<LossLog> {
        LossLog::of(path, &files::read_named(path)?)
    }

    /// The log in the text of a file.
    pub(crate) fn of(path: &Path, text: &str) -> Result<LossLog> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<LossRow> = reader.deserialize().collect::<Result<_, _>>().with_context(|| {
            format!("{} is not a loss log (CSV with the columns step and loss)", path.display())
        })?;
        if rows.is_empty() {
            bail!("{}: the log has no steps", path.display());
        }
        Ok(LossLog { rows })
    }

    /// The first step that both logs have and in which their losses differ in a bit.
    pub(crate) fn first_difference(&self, other: &LossLog) -> Option<(u64, f32, f32)> {
        let theirs: std::collections::HashMap<u64, f32> =
            other.rows.iter().map(|row| (row.step, row.loss)).collect();
        self.rows.iter().find_map(|row| {
            let loss = *theirs.get(&row.step)?;
            (loss.to_bits() != row.loss.to_bits()).then_some((row.step, row.loss, loss))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64) -> Row {
        Row {
            step,
            loss: 0.1,
            learning_rate: 1e-3,
            grad_norm: None,
            seconds: 0.5,
            per_second: 64.0,
            peak_bytes: Bytes(4096),
            eval_loss: Some(0.25),
            eval_accuracy: None,
        }
    }

    #[test]
    fn rows_after_the_checkpoint_and_torn_rows_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loss.csv");
        let mut log = LossWriter::open(&path, 0, "tokens").unwrap();
        (1..=4).for_each(|step| log.add(&row(step)).unwrap());
        assert_eq!(LossLog::read(&path).unwrap().rows[3], LossRow { step: 4, loss: 0.1 });
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "5,0.1").unwrap();
        let mut log = LossWriter::open(&path, 2, "tokens").unwrap();
        log.add(&row(3)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[3], "3,0.1,0.001,,0.500000,64.0,4096,0.25,");
        // A fresh run starts over; another file is not overwritten by a resumed run.
        LossWriter::open(&path, 0, "tokens").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        std::fs::write(&path, "my notes\n").unwrap();
        assert!(LossWriter::open(&path, 2, "tokens").unwrap_err().to_string().contains("is not the log"));
    }

    fn read(text: &str) -> Result<LossLog> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        LossLog::read(file.path())
    }

    #[test]
    fn one_bit_is_a_difference_and_missing_steps_are_none() {
        let nearly = f32::from_bits(2.5f32.to_bits() + 1);
        let a = read("step,loss,seconds\n1,3.25,0.1\n2,2.5,0.1\n3,2,0.1\n").unwrap();
        let b = read(&format!("loss,step\n{nearly},2\n3.25,1\n")).unwrap();
        assert_eq!(a.first_difference(&a), None);
        assert_eq!(a.first_difference(&b), Some((2, 2.5, nearly)));
    }

    #[test]
    fn other_files_are_refused_with_their_place() {
        for text in ["", "step,loss\n", "a,b\n1,2\n", "step,loss\n1,many\n"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
