//! The log of a training run: CSV with one line per step. Losses are printed so that reading gives the same bits.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::Path;

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
    /// Reads a log; an error names the file and the line.
    pub(crate) fn read(path: &Path) -> Result<LossLog> {
        let mut reader =
            csv::Reader::from_path(path).with_context(|| format!("reading {}", path.display()))?;
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
