//! The rows of a sweep: one per case and program, and the summary that compares each program with keeping everything.

use crate::format::seconds;
use crate::moves::Copied;
use crate::slowdown::{self, Slowdown};
use crate::target::overhead_percent;
use remat::pipeline::{Prepared, Program};
use remat::profile::Sample;
use remat::report::{Decision, DecisionRow};
use remat::train::Performance;
use remat_plan::{Bytes, Moves, SimulationError};
use serde::{Deserialize, Serialize};

/// The name of the program that keeps everything.
pub(crate) const KEEP_ALL: &str = "keep all";

/// One program of one case: what was planned, and what was measured if it fitted into the machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) program: String,
    pub(crate) planner: Option<String>,
    pub(crate) budget_bytes: Option<Bytes>,
    pub(crate) predicted_peak_bytes: Option<Bytes>,
    pub(crate) measured_peak_bytes: Option<Bytes>,
    /// Of the peak against keeping everything.
    pub(crate) peak_change_percent: Option<f64>,
    pub(crate) step_seconds: Option<Sample>,
    /// Measured, against keeping everything.
    pub(crate) overhead_percent: Option<f64>,
    /// The overhead is not larger than the spread of single steps.
    pub(crate) overhead_is_within_spread: Option<bool>,
    /// Predicted by the plan.
    pub(crate) planned_overhead_percent: Option<f64>,
    /// How far the plan is above its proved lower bound.
    pub(crate) gap_percent: Option<f64>,
    pub(crate) planning_seconds: Option<f64>,
    /// Predicted time of all recomputations.
    pub(crate) recomputation_seconds: Option<f64>,
    pub(crate) n_recomputes: Option<usize>,
    pub(crate) n_retained: Option<usize>,
    pub(crate) n_recomputed: Option<usize>,
    pub(crate) retained_bytes: Option<Bytes>,
    pub(crate) saved_bytes: Option<Bytes>,
    /// Activations that leave for a store and return.
    #[serde(default)]
    pub(crate) n_moved: Option<usize>,
    #[serde(default)]
    pub(crate) moved_bytes: Option<Bytes>,
    /// What a step copies to and from stores, state included; missing where it copies nothing.
    #[serde(default)]
    pub(crate) copied: Option<Copied>,
    /// Measured, of a step that copies.
    #[serde(default)]
    pub(crate) waiting_seconds: Option<Sample>,
    /// Losses and state match the program that keeps everything, to the bit.
    pub(crate) bits_equal: Option<bool>,
    /// Why something is missing.
    pub(crate) note: Option<String>,
}

impl Row {
    /// The program that keeps everything.
    pub(crate) fn keep_all(case: &str, prepared: &Prepared) -> Row {
        Row {
            case: case.to_owned(),
            program: KEEP_ALL.to_owned(),
            predicted_peak_bytes: Some(prepared.keep_all.peak()),
            ..Row::default()
        }
    }

    /// A program that a planner is asked for.
    pub(crate) fn planned(case: &str, program: &str, planner: &str, budget: Bytes, planning: f64) -> Row {
        Row {
            case: case.to_owned(),
            program: program.to_owned(),
            planner: Some(planner.to_owned()),
            budget_bytes: Some(budget),
            planning_seconds: Some(planning),
            ..Row::default()
        }
    }

    /// Adds what the plan says.
    pub(crate) fn fill_plan(
        &mut self,
        prepared: &Prepared,
        program: &Program,
        decisions: &[DecisionRow],
    ) -> Result<(), SimulationError> {
        let problem = &prepared.problem.problem;
        let plan = program.plan();
        let of = |fate: Decision| decisions.iter().filter(move |row| row.decision == fate);
        let bytes = |fate: Decision| of(fate).map(|row| row.median_mem_size_bytes).sum();
        self.predicted_peak_bytes = Some(program.peak());
        self.peak_change_percent = Some(percent_change(program.peak(), prepared.keep_all.peak()));
        self.planned_overhead_percent = Some(overhead_percent(problem, plan));
        self.gap_percent = plan.lower_bound.filter(|&b| b > 0.0).map(|b| 100.0 * (plan.cost / b - 1.0));
        let computing: f64 = plan.computes().map(|node| problem.node(node).cost).sum();
        self.recomputation_seconds = Some(computing - problem.base_cost());
        self.n_recomputes = Some(program.schedule().n_recomputes());
        self.n_retained = Some(of(Decision::Retained).count());
        self.n_recomputed = Some(of(Decision::Recompute).count());
        self.retained_bytes = Some(bytes(Decision::Retained));
        self.saved_bytes = Some(bytes(Decision::Recompute));
        self.n_moved = Some(of(Decision::Moved).count());
        self.moved_bytes = Some(bytes(Decision::Moved));
        self.copied = Moves::of(problem, plan)?.as_ref().map(Copied::of);
        Ok(())
    }

    /// Adds what was measured.
    pub(crate) fn fill_performance(
        &mut self,
        performance: &Performance,
        oracle: Option<&Performance>,
        keep_all_peak: Bytes,
    ) {
        self.measured_peak_bytes = Some(performance.measured_peak);
        self.step_seconds = Some(performance.time);
        self.waiting_seconds = self.copied.map(|_| performance.stalls);
        if self.budget_bytes.is_some() {
            self.peak_change_percent = Some(percent_change(performance.measured_peak, keep_all_peak));
            self.bits_equal = oracle.map(|oracle| performance.has_the_bits_of(oracle));
            let slowdown = oracle.map(|oracle| Slowdown::of(performance.time, oracle.time));
            self.overhead_percent = slowdown.map(|slowdown| slowdown.percent);
            self.overhead_is_within_spread = slowdown.map(|slowdown| slowdown.is_within_spread);
        }
    }

    /// Measured if it ran, else predicted.
    pub(crate) fn peak(&self) -> Option<Bytes> {
        self.measured_peak_bytes.or(self.predicted_peak_bytes)
    }

    /// The measured overhead for people.
    pub(crate) fn overhead(&self) -> Option<String> {
        let is_within_spread = self.overhead_is_within_spread.unwrap_or(false);
        self.overhead_percent.map(|percent| slowdown::text(percent, is_within_spread))
    }

    /// One line while the sweep runs.
    pub(crate) fn line(&self) -> String {
        let peak = self.peak().map_or_else(|| "no plan".to_owned(), |peak| format!("peak {peak}"));
        let time = self.step_seconds.map_or_else(String::new, |t| format!(", {} a step", seconds(t.median)));
        let overhead = self.overhead().map_or_else(String::new, |text| format!(", {text}"));
        let note = self.note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
        let copied = self.copied.map_or_else(String::new, |copied| format!("; moved {}", copied.text()));
        format!("{}, {}: {peak}{time}{overhead}{copied}{note}\n", self.case, self.program)
    }

    /// The row without nested fields, for CSV.
    pub(crate) fn flat(&self) -> FlatRow<'_> {
        FlatRow {
            case: &self.case,
            program: &self.program,
            budget_bytes: self.budget_bytes,
            predicted_peak_bytes: self.predicted_peak_bytes,
            measured_peak_bytes: self.measured_peak_bytes,
            peak_change_percent: self.peak_change_percent,
            step_median_s: self.step_seconds.map(|t| t.median),
            step_spread_s: self.step_seconds.map(|t| t.spread),
            n_timed_steps: self.step_seconds.map(|t| t.n_runs),
            overhead_percent: self.overhead_percent,
            overhead_is_within_spread: self.overhead_is_within_spread,
            planned_overhead_percent: self.planned_overhead_percent,
            gap_percent: self.gap_percent,
            planning_s: self.planning_seconds,
            n_recomputes: self.n_recomputes,
            moved_out_bytes: self.copied.map(|c| c.out_bytes),
            moved_in_bytes: self.copied.map(|c| c.in_bytes),
            resting_bytes: self.copied.map(|c| c.resting_bytes),
            copying_s: self.copied.map(|c| c.copying_seconds),
            planned_waiting_s: self.copied.map(|c| c.planned_waiting_seconds),
            waiting_median_s: self.waiting_seconds.map(|t| t.median),
            bits_equal: self.bits_equal,
            note: self.note.as_deref(),
        }
    }
}

fn percent_change(new: Bytes, old: Bytes) -> f64 {
    100.0 * (new.0 as f64 / old.0.max(1) as f64 - 1.0)
}

/// A row of `sweep.csv`.
#[derive(Serialize)]
pub(crate) struct FlatRow<'a> {
    case: &'a str,
    program: &'a str,
    budget_bytes: Option<Bytes>,
    predicted_peak_bytes: Option<Bytes>,
    measured_peak_bytes: Option<Bytes>,
    peak_change_percent: Option<f64>,
    step_median_s: Option<f64>,
    step_spread_s: Option<f64>,
    n_timed_steps: Option<usize>,
    overhead_percent: Option<f64>,
    overhead_is_within_spread: Option<bool>,
    planned_overhead_percent: Option<f64>,
    gap_percent: Option<f64>,
    planning_s: Option<f64>,
    n_recomputes: Option<usize>,
    moved_out_bytes: Option<Bytes>,
    moved_in_bytes: Option<Bytes>,
    resting_bytes: Option<Bytes>,
    copying_s: Option<f64>,
    planned_waiting_s: Option<f64>,
    waiting_median_s: Option<f64>,
    bits_equal: Option<bool>,
    note: Option<&'a str>,
}

/// A row of the summary: one program against keeping everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct SummaryRow {
    case: String,
    program: String,
    initial_peak_memory_bytes: Option<Bytes>,
    final_peak_memory_bytes: Option<Bytes>,
    memory_reduction_bytes: Option<i64>,
    memory_reduction_percent: Option<f64>,
    initial_time_s: Option<f64>,
    final_time_s: Option<f64>,
    time_overhead_s: Option<f64>,
    time_overhead_percent: Option<f64>,
    recomputation_time_s: Option<f64>,
    retained_activations: Option<usize>,
    retained_activations_percent: Option<f64>,
    recomputed_activations: Option<usize>,
    recomputed_activations_percent: Option<f64>,
    retained_memory_bytes: Option<Bytes>,
    saved_memory_bytes: Option<Bytes>,
    moved_activations: Option<usize>,
    moved_activations_percent: Option<f64>,
    moved_memory_bytes: Option<Bytes>,
    waiting_time_s: Option<f64>,
}

impl SummaryRow {
    /// The programs with a budget, each against the program of its case that keeps everything.
    pub(crate) fn of(rows: &[Row]) -> Vec<SummaryRow> {
        let base = |case: &str| rows.iter().find(|row| row.case == case && row.program == KEEP_ALL);
        let budgeted = rows.iter().filter(|row| row.budget_bytes.is_some());
        budgeted.filter_map(|row| Some(SummaryRow::against(row, base(&row.case)?))).collect()
    }

    fn against(row: &Row, base: &Row) -> SummaryRow {
        let time = |row: &Row| row.step_seconds.map(|t| t.median);
        let (before, after) = (time(base), time(row));
        let share = |part: Option<usize>| {
            let all = row.n_retained? + row.n_recomputed? + row.n_moved.unwrap_or(0);
            Some(100.0 * part? as f64 / all.max(1) as f64)
        };
        SummaryRow {
            case: row.case.clone(),
            program: row.program.clone(),
            initial_peak_memory_bytes: base.peak(),
            final_peak_memory_bytes: row.peak(),
            memory_reduction_bytes: base.peak().zip(row.peak()).map(|(a, b)| a.0 as i64 - b.0 as i64),
            memory_reduction_percent: row.peak_change_percent.map(|p| -p),
            initial_time_s: before,
            final_time_s: after,
            time_overhead_s: before.zip(after).map(|(a, b)| b - a),
            time_overhead_percent: row.overhead_percent,
            recomputation_time_s: row.recomputation_seconds,
            retained_activations: row.n_retained,
            retained_activations_percent: share(row.n_retained),
            recomputed_activations: row.n_recomputed,
            recomputed_activations_percent: share(row.n_recomputed),
            retained_memory_bytes: row.retained_bytes,
            saved_memory_bytes: row.saved_bytes,
            moved_activations: row.n_moved,
            moved_activations_percent: share(row.n_moved),
            moved_memory_bytes: row.moved_bytes,
            waiting_time_s: row.copied.map(|copied| copied.planned_waiting_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_compares_with_the_program_of_the_same_case() {
        let time = |median| Some(Sample { median, spread: 0.0, n_runs: 3 });
        let keep = |case: &str, peak, median| Row {
            case: case.into(),
            program: KEEP_ALL.into(),
            measured_peak_bytes: Some(Bytes(peak)),
            step_seconds: time(median),
            ..Row::default()
        };
        let half = Row {
            case: "batch 8".into(),
            program: "best 50%".into(),
            budget_bytes: Some(Bytes(50)),
            measured_peak_bytes: Some(Bytes(48)),
            peak_change_percent: Some(-52.0),
            step_seconds: time(2.2),
            overhead_percent: Some(10.0),
            n_retained: Some(1),
            n_recomputed: Some(3),
            ..Row::default()
        };
        let rows = [keep("batch 4", 50, 1.0), keep("batch 8", 100, 2.0), half];
        let [summary] = &SummaryRow::of(&rows)[..] else { panic!("one program has a budget") };
        assert_eq!(summary.memory_reduction_bytes, Some(52));
        assert_eq!(summary.initial_time_s, Some(2.0));
        assert_eq!(summary.recomputed_activations_percent, Some(75.0));
    }
}
