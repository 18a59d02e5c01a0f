//! `remat profile --check`: the profile held against real steps, by kind of op.

use crate::flags::{CostKind, Model};
use crate::format::{Align, count, facts, seconds, share, table, timing};
use crate::output::Paint;
use anyhow::Result;
use remat::pipeline::Prepared;
use remat::profile::{Machine, analytic};
use remat::train::{Accuracy, OpAccuracy, accuracy};
use serde::Serialize;

/// Predicted and measured times side by side.
#[derive(Serialize)]
pub(super) struct Check {
    #[serde(flatten)]
    accuracy: Accuracy,
    /// The prediction from the speeds that are kept, where speeds were also measured between the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_from_kept_speeds: Option<f64>,
}

impl Check {
    /// Runs the steps. An analytic profile is made again from speeds that are measured in between; `step_seconds` is what
    /// it says from the kept ones.
    pub(super) fn run(
        model: &Model,
        prepared: &Prepared,
        n_steps: usize,
        step_seconds: f64,
    ) -> Result<Check> {
        let is_analytic = model.cost == CostKind::Analytic;
        let predict = || {
            if is_analytic {
                Ok(analytic(&prepared.step.graph, &Machine::measure(model.n_threads, |_, _| {})?))
            } else {
                Ok(prepared.seconds.clone())
            }
        };
        let accuracy = accuracy(prepared, model.n_threads, n_steps, predict)?;
        Ok(Check { accuracy, predicted_from_kept_speeds: is_analytic.then_some(step_seconds) })
    }
}

impl Check {
    /// For people.
    pub(super) fn text(&self, paint: Paint) -> String {
        let Accuracy { ops, predicted, nodes, step } = &self.accuracy;
        let against_step =
            |time: f64| format!("{} ({} of the step)", seconds(time), share(time, step.median));
        let mut text = format!("\n{}\n", paint.heading("predicted and measured"));
        let measured = format!("{}, median of {}", timing(*step), step.n_runs);
        let mut rows = vec![("measured step", measured), ("sum of its nodes", against_step(*nodes))];
        match self.predicted_from_kept_speeds {
            None => rows.push(("predicted step", against_step(*predicted))),
            Some(kept) => rows.extend([
                ("predicted, from speeds measured now", against_step(*predicted)),
                ("predicted, from kept speeds", against_step(kept)),
            ]),
        }
        text += &facts(rows);
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
