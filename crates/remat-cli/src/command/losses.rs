//! `remat losses`: several loss logs on one axis, and whether they are equal to the last bit.

use crate::answer::Answer;
use crate::draw::{Curve, Format, Picture, curves};
use crate::files;
use crate::format::{Align, plural, table};
use crate::loss_log::LossLog;
use crate::output::{Output, Paint, Report};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Draws loss logs on one axis and compares them to the last bit.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when two logs differ in a step that both have.")]
pub(crate) struct Flags {
    /// Logs that `remat train --log` wrote: CSV with the columns step and loss.
    #[arg(required = true, value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Draw them into this file; its name ends in .svg or .png.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Compared {
    logs: Vec<LogRow>,
    equal: bool,
    /// The first step in which two logs differ.
    difference: Option<String>,
}

#[derive(Serialize)]
struct LogRow {
    file: PathBuf,
    n_steps: usize,
    first_loss: Option<f32>,
    last_loss: Option<f32>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let format = self.plot.as_deref().map(Format::of).transpose()?;
        if let Some(path) = &self.plot {
            files::check_writable(path)?;
        }
        let logs: Vec<LossLog> = self.logs.iter().map(|path| LossLog::read(path)).collect::<Result<_>>()?;
        if let (Some(path), Some(format)) = (&self.plot, format) {
            files::write(path, draw(&self.logs, &logs)?.bytes(format))?;
        }
        let difference = logs[1..].iter().zip(&self.logs[1..]).find_map(|(log, path)| {
            let (step, a, b) = logs[0].first_difference(log)?;
            let (first, second) = (self.logs[0].display(), path.display());
            Some(format!("step {step}: {a} in {first}, {b} in {second}"))
        });
        let row = |(log, path): (&LossLog, &PathBuf)| LogRow {
            file: path.clone(),
            n_steps: log.rows.len(),
            first_loss: log.rows.first().map(|row| row.loss),
            last_loss: log.rows.last().map(|row| row.loss),
        };
        let rows = logs.iter().zip(&self.logs).map(row).collect();
        out.report(&Compared { logs: rows, equal: difference.is_none(), difference: difference.clone() })?;
        Ok(Answer::of(difference.is_none()))
    }
}

/// The curves, each named after its file; one that is equal to the first says so.
fn draw(paths: &[PathBuf], logs: &[LossLog]) -> Result<Picture> {
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    let line = |(index, log): (usize, &LossLog)| {
        let is_copy =
            index > 0 && logs[0].rows.len() == log.rows.len() && logs[0].first_difference(log).is_none();
        let name = &names[index];
        Curve {
            name: if is_copy { format!("{name} (identical to {})", names[0]) } else { name.clone() },
            points: log.rows.iter().map(|row| (row.step as f64, f64::from(row.loss))).collect(),
        }
    };
    let lines: Vec<Curve> = logs.iter().enumerate().map(line).collect();
    curves("training loss", "step", "loss", &lines)
}

impl Report for Compared {
    const SCHEMA: &'static str = "remat.losses/1";

    fn text(&self, paint: Paint) -> String {
        let columns =
            [("log", Align::Left), ("steps", Align::Right), ("first", Align::Right), ("last", Align::Right)];
        let shown = |loss: Option<f32>| loss.map_or_else(|| "-".to_owned(), |loss| loss.to_string());
        let row = |row: &LogRow| {
            vec![
                row.file.display().to_string(),
                row.n_steps.to_string(),
                shown(row.first_loss),
                shown(row.last_loss),
            ]
        };
        let mut text = table(&columns, self.logs.iter().map(row));
        if self.logs.len() > 1 {
            text += &match &self.difference {
                None => format!(
                    "equal to the last bit: {} ({})\n",
                    paint.good("yes"),
                    plural(self.logs.len(), "log")
                ),
                Some(difference) => format!("equal to the last bit: {}; {difference}\n", paint.bad("no")),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss_log::LossRow;

    #[test]
    fn an_equal_curve_says_so() {
        let log =
            |loss: f32| LossLog { rows: vec![LossRow { step: 1, loss: 2.0 }, LossRow { step: 2, loss }] };
        let paths = ["a.csv", "b.csv", "c.csv"].map(PathBuf::from);
        let svg = draw(&paths, &[log(1.0), log(1.0), log(1.5)]).unwrap().svg;
        assert!(svg.contains("b (identical to a)"));
        assert!(!svg.contains("c (identical"));
    }
}
