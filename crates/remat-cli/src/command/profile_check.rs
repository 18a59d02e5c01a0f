//! `remat profile --check`: the profile held against real steps, by kind of op.

use crate::flags::Model;
use crate::format::{Align, count, facts, seconds, share, table};
use crate::output::Paint;
use anyhow::Result;
use remat::pipeline::Prepared;
use remat::profile::{Accuracy, OpAccuracy, accuracy};
use serde::Serialize;

/// Predicted and measured times side by side.
#[derive(Serialize)]
pub(super) struct Check {
    #[serde(flatten)]
    accuracy: Accuracy,
}

impl Check {
    /// Runs the steps.
    pub(super) fn run(model: &Model, prepared: &Prepared, n_steps: usize) -> Result<Check> {
        let accuracy = accuracy(prepared, &model.optimizer, model.n_threads, n_steps)?;
        Ok(Check { accuracy })
    }
}

impl Check {
    /// For people.
    pub(super) fn text(&self, paint: Paint) -> String {
        let Accuracy { ops, predicted, nodes, step } = &self.accuracy;
        let against_step =
            |time: f64| format!("{} ({} of the step)", seconds(time), share(time, step.median));
        let mut text = format!("\n{}\n", paint.heading("predicted and measured"));
        text += &facts([
            (
                "measured step",
                format!("{} ± {}, median of {}", seconds(step.median), seconds(step.spread), step.n_runs),
            ),
            ("sum of its nodes", against_step(*nodes)),
            ("predicted step", against_step(*predicted)),
        ]);
        let columns = [
            ("op", Align::Left),
            ("nodes", Align::Right),
            ("measured", Align::Right),
            ("share", Align::Right),
            ("predicted", Align::Right),
            ("predicted / measured", Align::Right),
        ];
        let row = |row: &OpAccuracy| {
            vec![
                row.op.clone(),
                count(row.n_nodes),
                seconds(row.measured),
                share(row.measured, *nodes),
                seconds(row.predicted),
                format!("{:.2}", row.predicted / row.measured.max(1e-12)),
            ]
        };
        text + &table(&columns, ops.iter().map(row))
    }
}
