//! What a compared step copies to and from stores: as planned, and as measured in its last step.

use crate::format::{plural, seconds};
use crate::moves::MovesReport;
use anyhow::Result;
use remat::pipeline::{Prepared, Program};
use remat::profile::Sample;
use remat::report::{CopyRow, copies};
use remat::train::Side;
use remat_plan::{Bytes, Way};
use serde::Serialize;

/// What a step copies, as planned and as measured in the last step.
#[derive(Serialize)]
pub(super) struct Moved {
    out: Direction,
    #[serde(rename = "in")]
    back: Direction,
    /// How long the program waits for copies in a step.
    planned_wait_seconds: f64,
    wait_seconds: Sample,
    /// The part of the copying that takes place while nodes run.
    planned_hidden_percent: f64,
    hidden_percent: f64,
    /// Every copy, in the order in which they are begun.
    copies: Vec<CopyRow>,
    /// What the plan says in full.
    planned: MovesReport,
}

#[derive(Serialize)]
struct Direction {
    n_copies: usize,
    bytes: Bytes,
    /// How long the channel is busy.
    planned_seconds: f64,
    seconds: f64,
}

impl Direction {
    fn of(rows: &[CopyRow], way: Way) -> Direction {
        let rows: Vec<&CopyRow> = rows.iter().filter(|row| row.way == way.to_string()).collect();
        let seconds = |(start, end): (f64, f64)| end - start;
        Direction {
            n_copies: rows.len(),
            bytes: rows.iter().map(|row| row.bytes).sum(),
            planned_seconds: rows.iter().map(|row| seconds(row.planned)).sum(),
            seconds: rows.iter().filter_map(|row| row.measured).map(seconds).sum(),
        }
    }

    fn text(&self, name: &str) -> String {
        let (planned, measured) = (seconds(self.planned_seconds), seconds(self.seconds));
        let values = plural(self.n_copies, "value");
        format!("{values} {name} ({}, {measured}; planned {planned})", self.bytes)
    }
}

impl Moved {
    /// Nothing where the program copies nothing.
    pub(super) fn of(prepared: &Prepared, program: &Program, side: &Side) -> Result<Option<Moved>> {
        let (problem, plan) = (&prepared.problem.problem, program.plan());
        let Some(planned) = MovesReport::of(problem, plan)? else { return Ok(None) };
        let copies = copies(problem, plan, &side.copies)?;
        let (out, back) = (Direction::of(&copies, Way::Out), Direction::of(&copies, Way::In));
        let copying = out.seconds + back.seconds;
        // Waits of the median step against copies of the last: never less than nothing is hidden.
        let shown = if copying > 0.0 { (side.stalls.median / copying).min(1.0) } else { 0.0 };
        Ok(Some(Moved {
            out,
            back,
            planned_wait_seconds: planned.moves.waiting,
            wait_seconds: side.stalls,
            planned_hidden_percent: planned.moves.hidden_percent,
            hidden_percent: 100.0 * (1.0 - shown),
            copies,
            planned,
        }))
    }

    /// Two lines for people.
    pub(super) fn text(&self) -> String {
        let (waits, planned) = (seconds(self.wait_seconds.median), seconds(self.planned_wait_seconds));
        let (out, back) = (self.out.text("out"), self.back.text("in"));
        let (hidden, planned_hidden) = (self.hidden_percent, self.planned_hidden_percent);
        format!(
            "moved: {out}, {back}; a step waits {waits} for them (planned {planned}), {hidden:.1} % of the copying is \
             hidden (planned {planned_hidden:.1} %)\na faster store {}\n",
            self.planned.faster()
        )
    }
}
