//! `remat losses`: several loss logs on one axis, and whether they are equal to the last bit.

use crate::draw::{Curve, Format, Picture, curves};
use crate::format::{Align, plural, table};
use crate::loss_log::LossLog;
use crate::output::{Output, Paint, Report};
use crate::{Answer, files};
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
            files::write_bytes(path, self.draw(&logs)?.bytes(format))?;
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

    fn draw(&self, logs: &[LossLog]) -> Result<Picture> {
        let line = |(index, (log, path)): (usize, (&LossLog, &PathBuf))| Curve {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            points: log.rows.iter().map(|row| (row.step as f64, f64::from(row.loss))).collect(),
            // Equal curves lie on each other; the dashes of the later ones let the first show through.
            dashed: index > 0,
        };
        let lines: Vec<Curve> = logs.iter().zip(&self.logs).enumerate().map(line).collect();
        curves("training loss", "step", "loss", &lines)
    }
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
