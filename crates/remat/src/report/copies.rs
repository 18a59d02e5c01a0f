//! Copies to and from stores: when the plan says they take place, and when they did.

use crate::exec::CopyTime;
use remat_plan::{Bytes, Plan, Problem, SimulationError, Way, simulate_with};
use serde::{Deserialize, Serialize};

/// One copy of a step. Times are seconds since the beginning of the step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyRow {
    /// Name of the value.
    pub value: String,
    /// Name of the store.
    pub store: String,
    /// `out` or `in`.
    pub way: String,
    /// Its size.
    pub bytes: Bytes,
    /// When it begins and ends in the plan.
    pub planned: (f64, f64),
    /// When it began and ended, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<(f64, f64)>,
}

impl CopyRow {
    /// The channel that it goes through, for people.
    pub fn channel(&self) -> String {
        let direction = if self.way == Way::Out.to_string() { "to" } else { "from" };
        format!("{direction} {}", self.store)
    }
}

/// All copies of a plan, in the order in which they are begun. `measured` are those of one run of its program, or empty.
pub fn copies(
    problem: &Problem,
    plan: &Plan,
    measured: &[CopyTime],
) -> Result<Vec<CopyRow>, SimulationError> {
    let planned = simulate_with(problem, &plan.stored, &plan.steps)?.transfers;
    // A schedule begins its copies in the order of the plan.
    let mut measured: Vec<&CopyTime> = measured.iter().collect();
    measured.sort_by_key(|copy| copy.step);
    let is_complete = measured.len() == planned.len()
        && measured.iter().zip(&planned).all(|(measured, planned)| measured.way == planned.way);
    let row = |(number, transfer): (usize, &remat_plan::Transfer)| {
        let measured = measured.get(number).filter(|_| is_complete);
        CopyRow {
            value: problem.value(transfer.value).name.clone(),
            store: problem.store(transfer.store).name.clone(),
            way: transfer.way.to_string(),
            bytes: problem.bytes(transfer.value),
            planned: (transfer.start, transfer.end),
            measured: measured.map(|copy| (copy.start.as_secs_f64(), copy.end.as_secs_f64())),
        }
    };
    Ok(planned.iter().enumerate().map(row).collect())
}
