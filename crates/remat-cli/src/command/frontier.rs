//! `remat frontier`: what each amount of memory costs, from the smallest budget to the one that needs no recomputation.

use crate::answer::Answer;
use crate::draw::{self, FrontierCurve};
use crate::flags::{PlannerFlags, StepFlags};
use crate::format::{Align, change, cost, count, facts, table};
use crate::output::{Output, Paint, Report};
use crate::progress::Progress;
use crate::target::{Target, TargetFlags, n_recomputes, overhead_percent};
use crate::{files, folder};
use anyhow::{Context as _, Result};
use clap::Args;
use remat::pipeline::program;
use remat_plan::{Bytes, Frontier, Moves, Plan, Point, Status, Way, frontier};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A curve of more points than this tells nothing more.
const MOST_POINTS: usize = 10_000;

/// Plans many budgets and shows what each amount of memory costs; with a store, also what it costs without.
#[derive(Debug, Args)]
#[command(
    after_help = "--time-limit is for the whole curve. --effort is for each point, and 0.1 unless it is given."
)]
pub(crate) struct Flags {
    #[command(flatten)]
    target: TargetFlags,
    /// Number of budgets, evenly spread from the floor to the peak without recomputation.
    #[arg(long, value_name = "N", default_value_t = 21, allow_negative_numbers = true, value_parser = parse_points)]
    points: usize,
    /// Write the plan of every point into this folder, as `remat.plan/1` JSON named by its budget in bytes.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the curve as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the curve into this file; its name ends in .svg or .png.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

fn parse_points(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (2..=MOST_POINTS).contains(&n) => Ok(n),
        _ => Err(format!("the number of points must be from 2 to {MOST_POINTS}")),
    }
}

#[derive(Serialize)]
struct FrontierReport {
    problem: String,
    planner: String,
    cost_unit: String,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    keep_all_cost: f64,
    points: Vec<PointRow>,
    /// The curve without stores, where there are any.
    without_stores: Option<WithoutStores>,
}

/// What the same budgets cost when nothing is moved. Its floor is higher, so its budgets begin later.
#[derive(Serialize)]
struct WithoutStores {
    floor_bytes: Bytes,
    floor_node: String,
    points: Vec<PointRow>,
}

#[derive(Serialize)]
struct PointRow {
    /// Whether plans may use stores.
    stores: bool,
    budget_bytes: Bytes,
    /// `optimal`, `feasible` or `infeasible`.
    status: Status,
    /// With a plan its peak, otherwise the lowest that was found.
    peak_bytes: Bytes,
    /// The peak with everything at its address, for a model.
    arena_bytes: Option<Bytes>,
    cost: Option<f64>,
    overhead_percent: Option<f64>,
    lower_bound: Option<f64>,
    gap_percent: Option<f64>,
    n_recomputes: Option<usize>,
    /// Bytes that are copied to stores in a step, and how long the step waits for copies.
    moved_bytes: Option<Bytes>,
    waiting: Option<f64>,
    /// Why there is no plan.
    why: Option<String>,
    /// Whether this is a proof that no plan exists.
    is_proof: bool,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let format = self.plot.as_deref().map(draw::Format::of).transpose()?;
        for path in [&self.csv, &self.plot].into_iter().flatten() {
            files::check_writable(path)?;
        }
        let target = self.target.read(&self.step)?;
        if let Some(folder) = &self.out {
            files::create_folder(folder)?;
        }
        let flags = self.planner.at_a_glance_unless_told();
        let has_stores = !target.problem().stores.is_empty();
        // A limit on time is one of the whole command.
        let mut request = flags.request(Bytes::ZERO);
        request.time_limit = request.time_limit.map(|limit| if has_stores { limit / 2 } else { limit });
        let plan = |target: &Target| {
            let progress = Progress::new("planning the curve", self.points);
            let done = |done| progress.set(done, self.points);
            frontier(target.problem(), &flags.planner, self.points, &request, done)
        };
        let curve = plan(&target)?;
        let mut report = FrontierReport::of(&target, &flags.planner, &curve)?;
        if has_stores {
            let without = target.without_stores()?;
            let curve = plan(&without)?;
            report.without_stores = Some(WithoutStores::of(&without, &curve)?);
        }
        // Files first: they are complete even when nothing reads the text.
        if let Some(folder) = &self.out {
            write_plans(folder, &curve)?;
        }
        if let Some(path) = &self.csv {
            let without = report.without_stores.iter().flat_map(|curve| &curve.points);
            let rows: Vec<&PointRow> = report.points.iter().chain(without).collect();
            files::write(path, folder::csv(&rows)?)?;
        }
        if let (Some(path), Some(format)) = (&self.plot, format) {
            let drawn = draw::frontier(&report.curve()).context("drawing the curve")?;
            files::write(path, drawn.bytes(format))?;
        }
        out.report(&report)?;
        Ok(Answer::Yes)
    }
}

fn write_plans(folder: &Path, curve: &Frontier) -> Result<()> {
    for plan in curve.points.iter().filter_map(|point| point.plan.as_ref()) {
        files::write(&folder.join(format!("{}.json", plan.budget_bytes.0)), plan.to_json())?;
    }
    Ok(())
}

impl FrontierReport {
    fn of(target: &Target, planner: &str, curve: &Frontier) -> Result<FrontierReport> {
        let problem = target.problem();
        Ok(FrontierReport {
            problem: problem.name.clone(),
            planner: planner.to_owned(),
            cost_unit: problem.cost_unit.clone(),
            floor_bytes: curve.floor,
            floor_node: target.floor().node_name.clone(),
            keep_all_peak_bytes: curve.keep_all_peak,
            keep_all_cost: curve.base_cost,
            points: PointRow::all(target, curve)?,
            without_stores: None,
        })
    }

    fn curve(&self) -> FrontierCurve {
        let percent = |cost: f64| {
            if self.keep_all_cost > 0.0 { 100.0 * (cost / self.keep_all_cost - 1.0) } else { 0.0 }
        };
        let known = |rows: &[PointRow], value: fn(&PointRow) -> Option<f64>| {
            rows.iter()
                .filter_map(|row| Some((row.budget_bytes, percent(value(row)?).max(0.0))))
                .collect::<Vec<_>>()
        };
        let without = self.without_stores.as_ref();
        FrontierCurve {
            title: format!("{}: what memory costs (planner: {})", self.problem, self.planner),
            floor: self.floor_bytes,
            keep_all: self.keep_all_peak_bytes,
            plans: known(&self.points, |row| row.cost),
            bounds: known(&self.points, |row| row.lower_bound),
            without_stores: without.map(|curve| known(&curve.points, |row| row.cost)),
        }
    }
}

impl WithoutStores {
    fn of(target: &Target, curve: &Frontier) -> Result<WithoutStores> {
        Ok(WithoutStores {
            floor_bytes: curve.floor,
            floor_node: target.floor().node_name.clone(),
            points: PointRow::all(target, curve)?,
        })
    }
}

impl PointRow {
    fn all(target: &Target, curve: &Frontier) -> Result<Vec<PointRow>> {
        curve.points.iter().map(|point| PointRow::of(target, point)).collect()
    }

    fn of(target: &Target, point: &Point) -> Result<PointRow> {
        let problem = target.problem();
        let plan = point.plan.as_ref();
        let arena_bytes = match (target, plan) {
            (Target::Model(prepared), Some(plan)) => Some(program(prepared, plan, point.budget)?.peak()),
            _ => None,
        };
        let moves = plan.map(|plan| Moves::of(problem, plan)).transpose()?.flatten();
        Ok(PointRow {
            stores: !problem.stores.is_empty(),
            budget_bytes: point.budget,
            status: plan.map_or(Status::Infeasible, |plan| plan.status),
            peak_bytes: point.lowest_peak,
            arena_bytes,
            cost: plan.map(|plan| plan.cost),
            overhead_percent: plan.map(|plan| overhead_percent(problem, plan)),
            lower_bound: point.lower_bound,
            gap_percent: point.gap_percent(),
            n_recomputes: plan.map(|plan: &Plan| n_recomputes(problem, plan)),
            moved_bytes: plan.map(|_| moves.as_ref().map_or(Bytes::ZERO, |moves| moves.bytes(Way::Out))),
            waiting: plan.map(|_| moves.as_ref().map_or(0.0, |moves| moves.waiting)),
            why: point.why.as_ref().map(ToString::to_string),
            is_proof: point.why.as_ref().is_some_and(remat_plan::Why::is_proof),
        })
    }

    /// The fields of a row of the table, after the budget.
    fn words(&self, unit: &str) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let quality = match (self.status, self.is_proof) {
            (Status::Optimal, _) => "optimal".to_owned(),
            (Status::Feasible, _) => or_dash(self.gap_percent.map(|gap| format!("{gap:.2} %"))),
            (Status::Infeasible, true) => "impossible".to_owned(),
            (Status::Infeasible, false) => "none found".to_owned(),
        };
        let plan_peak = self.cost.map(|_| self.peak_bytes.to_string());
        vec![
            or_dash(plan_peak),
            or_dash(self.arena_bytes.map(|bytes| bytes.to_string())),
            or_dash(self.cost.map(|price| cost(price, unit))),
            or_dash(self.overhead_percent.map(change)),
            or_dash(self.n_recomputes.map(count)),
            or_dash(self.moved_bytes.map(|bytes| bytes.to_string())),
            or_dash(self.waiting.map(|waiting| cost(waiting, unit))),
            quality,
        ]
    }
}

impl Report for FrontierReport {
    const SCHEMA: &'static str = "remat.frontier/1";

    fn text(&self, paint: Paint) -> String {
        let unit = &self.cost_unit;
        let head = facts([
            ("planner", self.planner.clone()),
            ("floor of every plan", format!("{}, set by {}", self.floor_bytes, self.floor_node)),
            ("peak without recomputation", self.keep_all_peak_bytes.to_string()),
            ("cost without recomputation", cost(self.keep_all_cost, unit)),
        ]);
        let title = paint.heading(&format!("what memory costs for {}", self.problem));
        let Some(without) = &self.without_stores else {
            return format!("{title}\n{head}{}", points_text(&self.points, unit));
        };
        let floor = format!("{}, set by {}", without.floor_bytes, without.floor_node);
        let other = format!("\n{}", paint.heading("the same without stores"));
        format!(
            "{title}\n{head}{}{other}\n{}{}",
            points_text(&self.points, unit),
            facts([("floor of every plan", floor)]),
            points_text(&without.points, unit)
        )
    }
}

/// The points of one curve, without the columns that would be empty.
fn points_text(points: &[PointRow], unit: &str) -> String {
    let has_arena = points.iter().any(|row| row.arena_bytes.is_some());
    let has_stores = points.iter().any(|row| row.stores);
    let columns = [
        ("budget", Align::Right, true),
        ("peak", Align::Right, true),
        ("with addresses", Align::Right, has_arena),
        ("cost of a step", Align::Right, true),
        ("overhead", Align::Right, true),
        ("recomputed", Align::Right, true),
        ("moved out", Align::Right, has_stores),
        ("waits", Align::Right, has_stores),
        ("above the bound", Align::Right, true),
    ];
    let shown: Vec<_> = columns.iter().filter(|column| column.2).map(|column| (column.0, column.1)).collect();
    let rows = points.iter().map(|row| {
        let words = std::iter::once(row.budget_bytes.to_string()).chain(row.words(unit));
        words.zip(&columns).filter(|(_, column)| column.2).map(|(word, _)| word).collect()
    });
    let refused = points.iter().rfind(|row| row.why.is_some());
    let refused = refused.map_or_else(String::new, |row| {
        let why = row.why.as_deref().unwrap_or_default();
        format!("no plan at {}: {why}\n", row.budget_bytes)
    });
    table(&shown, rows) + &refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_at_least_two_points() {
        assert_eq!(parse_points("2"), Ok(2));
        for text in ["0", "1", "-3", "many", "1000000"] {
            assert!(parse_points(text).unwrap_err().contains("from 2 to"), "{text}");
        }
    }
}
