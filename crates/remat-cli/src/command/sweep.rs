//! `remat sweep`: the same model at several sizes, with and without budgets, measured against each other.
//!
//! Every comma in a model option makes another case; every pair of planner and budget makes another program beside
//! the one that keeps everything, or two where there is a store: without it and with it. A case is written to the folder
//! as soon as it is done, so an interrupted sweep loses at most the case that was running, and `--resume` continues after
//! the last one.

use crate::answer::Answer;
use crate::draw::{Bar, Group, byte_unit, grouped_bars, time_unit};
use crate::environment::Environment;
use crate::files;
use crate::flags::{CostKind, Model, SearchFlags, StepFlags, default_planner, model_parser, planner_parser};
use crate::folder::Folder;
use crate::format::{Align, change, table, timing};
use crate::memory;
use crate::output::{Output, Paint, Report};
use crate::planning::{compile, uses_stores};
use crate::progress::Progress;
use crate::sweep::{Row, SummaryRow};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use remat::pipeline::checkpoint;
use remat::pipeline::{Fit, Prepared, Program};
use remat::report::decisions;
use remat::train::{Performance, Rounds, contest};
use remat_plan::{Budget, Bytes};
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

/// Measures a model at several sizes, with and without budgets.
#[derive(Debug, Args)]
#[command(after_help = "Model options take several values with commas between them: --batch 4,8,16")]
pub(crate) struct Flags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: String,
    /// Budgets for the whole step, with commas between them: 8GiB, or 50% of the peak without recomputation.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50%")]
    budget: Vec<Budget>,
    /// Planners, with commas between them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = default_planner(), value_parser = planner_parser())]
    planner: Vec<String>,
    /// A program checkpointed by hand: modules with commas between them, such as layer1,layer2. Can be given again for
    /// another program.
    #[arg(long, value_name = "MODULES")]
    checkpoint: Vec<String>,
    /// Timed steps of each program in each round.
    #[arg(long, value_name = "N", default_value = "2")]
    steps: NonZeroUsize,
    /// Steps before the timed ones in each round. Steps of many seconds need none.
    #[arg(long, value_name = "N", default_value = "1")]
    warm_up: usize,
    /// Times that all programs take their turn.
    #[arg(long, value_name = "N", default_value = "2")]
    rounds: NonZeroUsize,
    /// Write tables (CSV, JSON) and plots into this folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Keep the cases that the folder already has and continue with the others.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    search: SearchFlags,
    #[command(flatten)]
    step: StepFlags,
}

#[derive(Serialize, Deserialize)]
struct Sweep {
    model: String,
    optimizer: String,
    threads: usize,
    seed: u64,
    n_rounds: usize,
    n_warm_up: usize,
    n_steps: usize,
    /// Where values may be moved to.
    #[serde(default)]
    stores: Vec<String>,
    rows: Vec<Row>,
}

const TABLE: &str = "sweep.json";
/// Takes the place of a planner where modules are checkpointed by hand.
const BY_HAND: &str = "checkpoint";
/// Follows the name of a program that may move values.
const WITH_STORE: &str = " + store";

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let cases = self.step.cases();
        // Every case is built before the first is measured: a wrong option must not cost an hour.
        let models: Vec<(String, Model)> = cases
            .into_iter()
            .map(|(name, step)| Ok((name, step.build(&self.model, CostKind::Analytic)?)))
            .collect::<Result<_>>()?;
        let mut folder = Folder::create(&self.out)?;
        let mut sweep = self.begin(&models[0].1, &folder)?;
        folder.json("environment.json", &Environment::now())?;
        // Cases come in the order in which they were asked for, also when a resumed sweep adds one in between.
        let place = |case: &str| models.iter().position(|(name, _)| name == case).unwrap_or(usize::MAX);
        for (name, model) in &models {
            if sweep.rows.iter().any(|row| row.case == *name) {
                continue;
            }
            let rows = self.case(name, model).with_context(|| name.clone())?;
            for row in &rows {
                if !out.is_json() {
                    out.text_now(&row.line())?;
                }
            }
            sweep.rows.extend(rows);
            sweep.rows.sort_by_key(|row| place(&row.case));
            folder.json(TABLE, &sweep)?;
        }
        let summary: Vec<SummaryRow> = SummaryRow::of(&sweep.rows);
        folder.csv(&format!("{}_activation_checkpointing_summary.csv", self.model), &summary)?;
        folder.csv("sweep.csv", &sweep.rows.iter().map(Row::flat).collect::<Vec<_>>())?;
        if sweep.rows.len() > 1 {
            draw(&mut folder, &sweep)?;
        }
        out.report(&sweep)?;
        if !out.is_json() {
            out.text(&folder.summary())?;
        }
        let is_right = sweep.rows.iter().all(|row| row.bits_equal != Some(false));
        let mut planned = sweep.rows.iter().filter(|row| row.planner.is_some()).peekable();
        let is_all_refused =
            planned.peek().is_some() && planned.all(|row| row.predicted_peak_bytes.is_none());
        Ok(Answer::of(is_right && !is_all_refused))
    }

    /// The rows of an earlier run with the same settings, or none.
    fn begin(&self, model: &Model, folder: &Folder) -> Result<Sweep> {
        let empty = Sweep {
            model: self.model.clone(),
            optimizer: model.optimizer.name().to_owned(),
            threads: model.n_threads,
            seed: self.search.seed,
            n_rounds: self.rounds.get(),
            n_warm_up: self.warm_up,
            n_steps: self.steps.get(),
            stores: model.stores.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        };
        let path = folder.path(TABLE);
        if !path.exists() {
            return Ok(empty);
        }
        if !self.resume {
            bail!("{} exists: give --resume to continue it, or another folder", path.display());
        }
        let text = files::read_found(&path, files::DESCRIPTION_LIMIT)?;
        let old: Sweep = serde_json::from_str(&text)
            .with_context(|| format!("{} is not the table of a sweep", path.display()))?;
        let counts = |s: &Sweep| (s.n_rounds, s.n_warm_up, s.n_steps);
        let names = |s: &Sweep| (s.model.clone(), s.optimizer.clone(), s.stores.clone());
        let settings = |s: &Sweep| (names(s), s.threads, s.seed, counts(s));
        if settings(&old) != settings(&empty) {
            bail!(
                "{} was measured with other settings (model, optimizer, stores, threads, seed, rounds or steps); give \
                 another folder",
                path.display()
            );
        }
        Ok(old)
    }

    /// Plans and measures one case.
    fn case(&self, name: &str, model: &Model) -> Result<Vec<Row>> {
        let prepared = model.prepare()?;
        let mut rows = vec![Row::keep_all(name, &prepared)];
        let mut programs: Vec<Option<Program>> = vec![Some(prepared.keep_all.clone())];
        let without_stores = prepared.without_stores()?;
        for (planner, with_stores) in self.planners(model) {
            let prepared = if with_stores { &prepared } else { &without_stores };
            for budget in &self.budget {
                let bytes = budget.resolve(prepared.keep_all.peak());
                let begin = Instant::now();
                let fit = compile(prepared, planner, self.search.request(bytes))?;
                let program = format!("{planner} {budget}{}", if with_stores { WITH_STORE } else { "" });
                let mut row = Row::planned(name, &program, planner, bytes, begin.elapsed().as_secs_f64());
                programs.push(match fit {
                    Fit::Fits(program) => {
                        row.fill_plan(prepared, &program, &decisions(prepared, &program))?;
                        Some(*program)
                    }
                    Fit::Refused(refusal) => {
                        row.note = Some(refusal.to_string());
                        None
                    }
                });
                rows.push(row);
            }
        }
        for modules in &self.checkpoint {
            let begin = Instant::now();
            let program = checkpoint(&prepared, &modules.split(',').map(str::trim).collect::<Vec<_>>())?;
            let name_of_program = format!("checkpoint {modules}");
            let seconds = begin.elapsed().as_secs_f64();
            let mut row = Row::planned(name, &name_of_program, BY_HAND, program.peak(), seconds);
            row.fill_plan(&prepared, &program, &decisions(&prepared, &program))?;
            rows.push(row);
            programs.push(Some(program));
        }
        self.measure(model, &prepared, &mut rows, &programs)?;
        Ok(rows)
    }

    /// The planners, each without the stores and, if it uses them, with them; the planner that does nothing but move, with
    /// them only.
    fn planners(&self, model: &Model) -> Vec<(&str, bool)> {
        let mut planners = Vec::new();
        for name in &self.planner {
            let ways = match model.stores.is_empty() || !uses_stores(name) {
                true => &[false][..],
                false if name == "swap" => &[true],
                false => &[false, true],
            };
            planners.extend(ways.iter().map(|&with_stores| (name.as_str(), with_stores)));
        }
        planners
    }

    /// Runs what fits into this machine's memory; the others keep their prediction and say so.
    fn measure(
        &self,
        model: &Model,
        prepared: &Prepared,
        rows: &mut [Row],
        programs: &[Option<Program>],
    ) -> Result<()> {
        let mut running: Vec<(usize, &Program)> = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let Some(program) = program else { continue };
            match memory::check_available(program.peak() + program.host_bytes()) {
                Ok(()) => running.push((index, program)),
                Err(error) => rows[index].note = Some(error.to_string()),
            }
        }
        let rounds =
            Rounds { n_rounds: self.rounds.get(), n_warm_up: self.warm_up, n_steps: self.steps.get() };
        let n_runs = running.len() * rounds.n_rounds * (rounds.n_warm_up + rounds.n_steps);
        let progress = Progress::new("training", n_runs);
        let mut done = 0;
        let contestants: Vec<&Program> = running.iter().map(|&(_, program)| program).collect();
        let seed = self.search.seed;
        let performances = contest(&contestants, seed, model.n_threads, rounds, || {
            done += 1;
            progress.set(done, n_runs);
        })?;
        drop(progress);
        let oracle: Option<Performance> =
            running.first().filter(|(index, _)| *index == 0).map(|_| performances[0].clone());
        for (&(index, _), performance) in running.iter().zip(&performances) {
            rows[index].fill_performance(performance, oracle.as_ref(), prepared.keep_all.peak());
        }
        Ok(())
    }
}

fn draw(folder: &mut Folder, sweep: &Sweep) -> Result<()> {
    let (mut cases, mut programs): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for row in &sweep.rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
        if !programs.contains(&row.program) {
            programs.push(row.program.clone());
        }
    }
    let (shared, names) = apart(&cases);
    let groups = |bar: &dyn Fn(&Row) -> Bar| -> Vec<Group> {
        let find = |case: &str, program: &String| {
            sweep.rows.iter().find(|row| row.case == case && row.program == *program)
        };
        let group = |(case, name): (&&str, &String)| {
            let bars = programs.iter().map(|program| find(case, program).map_or_else(Bar::default, bar));
            Group { name: name.clone(), bars: bars.collect() }
        };
        cases.iter().zip(&names).map(group).collect()
    };
    // A change that rounds to nothing has no sign of its own.
    let label = |row: &Row, percent: Option<f64>| {
        let percent = percent.filter(|_| row.budget_bytes.is_some());
        percent.map_or_else(String::new, |p| format!("{:+.0} %", p.round() + 0.0))
    };
    let (unit, scale) = byte_unit(sweep.rows.iter().filter_map(Row::peak).max().unwrap_or(Bytes(0)));
    let scaled = |bytes: Bytes| bytes.0 as f64 / scale;
    let peaks = groups(&|row: &Row| Bar {
        value: row.peak().map(scaled),
        label: label(row, row.peak_change_percent),
        spread: None,
        // What is checkpointed by hand has no budget but its own peak.
        budget: row.budget_bytes.filter(|_| row.planner.as_deref() != Some(BY_HAND)).map(scaled),
    });
    let title = format!("{}: peak memory of a training step", sweep.model);
    let y_label = format!("peak memory ({unit})");
    folder.picture("peak_memory", &grouped_bars(&title, &shared, &y_label, &programs, &peaks)?)?;
    let slowest = sweep.rows.iter().filter_map(|row| Some(row.step_seconds?.median)).fold(0.0, f64::max);
    let (unit, scale) = time_unit(slowest);
    let times = groups(&|row: &Row| Bar {
        value: row.step_seconds.map(|time| time.median / scale),
        label: label(row, row.overhead_percent),
        spread: row.step_seconds.map(|time| time.spread / scale),
        budget: None,
    });
    let title = format!("{}: time of a training step", sweep.model);
    let y_label = format!("time of a step ({unit})");
    folder.picture("step_time", &grouped_bars(&title, &shared, &y_label, &programs, &times)?)
}

/// What all cases have in common, and what sets each apart: `batch 4, image 64` and `batch 8, image 64` are `batch 4` and
/// `batch 8` with `image 64`.
fn apart(cases: &[&str]) -> (String, Vec<String>) {
    let parts = |case: &str| -> Vec<String> { case.split(", ").map(str::to_owned).collect() };
    let is_shared = |part: &String| cases.len() > 1 && cases.iter().all(|case| parts(case).contains(part));
    let shared: Vec<String> =
        cases.first().map_or_else(Vec::new, |case| parts(case)).into_iter().filter(is_shared).collect();
    let own =
        |case: &&str| parts(case).into_iter().filter(|part| !is_shared(part)).collect::<Vec<_>>().join(", ");
    (shared.join(", "), cases.iter().map(own).collect())
}

impl Report for Sweep {
    const SCHEMA: &'static str = "remat.sweep/1";

    fn text(&self, paint: Paint) -> String {
        let columns = [
            ("case", Align::Left),
            ("program", Align::Left),
            ("peak", Align::Right),
            ("change", Align::Right),
            ("time of a step", Align::Right),
            ("overhead", Align::Right),
            ("planned", Align::Right),
            ("bits", Align::Right),
        ];
        let copies = self.rows.iter().any(|row| row.copied.is_some());
        let columns = columns.into_iter().chain(copies.then_some(("moved in a step", Align::Left)));
        let columns: Vec<_> = columns.collect();
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let row = |row: &Row| {
            let mut cells = vec![
                row.case.clone(),
                row.program.clone(),
                dash(row.peak().map(|peak| peak.to_string())),
                dash(row.peak_change_percent.map(change)),
                dash(row.step_seconds.map(timing)),
                dash(row.overhead()),
                dash(row.planned_overhead_percent.map(change)),
                dash(row.bits_equal.map(|equal| if equal { "equal" } else { "DIFFERENT" }.to_owned())),
            ];
            cells.extend(copies.then(|| dash(row.copied.map(|copied| copied.text()))));
            cells
        };
        format!("{}\n{}", paint.heading(&self.model), table(&columns, self.rows.iter().map(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_named_by_what_sets_them_apart() {
        let (shared, names) = apart(&["batch 4, image 64", "batch 8, image 64"]);
        assert_eq!((shared.as_str(), names), ("image 64", vec!["batch 4".to_owned(), "batch 8".to_owned()]));
        assert_eq!(apart(&["batch 4"]), (String::new(), vec!["batch 4".to_owned()]));
    }
}
