//! `remat plan`: which values to keep, to recompute and to move, so that a step fits a budget.

use crate::answer::Answer;
use crate::draw::memory_over_ranks;
use crate::environment::Environment;
use crate::files;
use crate::flags::{PlannerFlags, StepFlags};
use crate::folder::Folder;
use crate::format::{change, cost, count, facts, seconds};
use crate::moves::MovesReport;
use crate::output::{Output, Paint, Report};
use crate::planning::uses_stores;
use crate::target::{Planned, Target, TargetFlags, n_recomputes, overhead_percent};
use anyhow::Result;
use clap::Args;
use remat::pipeline::{Prepared, Program, Refusal};
use remat::report::{self, Decisions, Timeline, Timelines};
use remat_plan::{Budget, Bytes, PLAN_SCHEMA, PLANNERS, Plan, Status};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Plans a model or a problem file for a budget and says whether it fits.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    target: TargetFlags,
    /// Memory for the whole step: 8GiB, 8GB, 123456789B, or 50% of the peak without recomputation.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    budget: Budget,
    /// Write the plan: a name that ends in .json or .txt gets the `remat.plan/1` document alone, as JSON or as text (an
    /// infeasible answer too), any other is a folder for the plan, its decisions, graphs before and after, the timeline and traces.
    #[arg(long, value_name = "FILE|DIR")]
    out: Option<PathBuf>,
    /// Write the planning problem as `remat.problem/1`: text where the name ends in .txt, JSON otherwise.
    #[arg(long, value_name = "FILE")]
    problem_out: Option<PathBuf>,
    #[command(flatten)]
    planner: PlannerFlags,
    #[command(flatten)]
    step: StepFlags,
}

/// The plan file's fields, so that the document is itself a plan, and what was learned beside them.
#[derive(Serialize)]
struct PlanReport {
    #[serde(flatten)]
    plan: Plan,
    fits: bool,
    floor_bytes: Bytes,
    floor_node: String,
    keep_all_peak_bytes: Bytes,
    keep_all_cost: f64,
    arena_bytes: Option<Bytes>,
    n_nodes: usize,
    n_recomputes: usize,
    overhead_percent: f64,
    planning_seconds: f64,
    /// What is copied to and from stores; missing where the plan uses none.
    moves: Option<MovesReport>,
    /// Why there is no plan, where there is none.
    why: Option<String>,
    /// Whether that is a proof that no plan exists.
    is_proof: bool,
    #[serde(skip)]
    cost_unit: String,
    #[serde(skip)]
    has_stores: bool,
    #[serde(skip)]
    refusal: Option<Refusal>,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let (file, folder) = match &self.out {
            Some(path) if is_document(path) => (Some(path), None),
            path => (None, path.as_deref()),
        };
        for path in [file, self.problem_out.as_ref()].into_iter().flatten() {
            files::check_writable(path)?;
        }
        let mut folder = folder.map(Folder::create).transpose()?;
        let target = self.target.read(&self.step)?;
        let budget = self.budget.resolve(target.keep_all_peak());
        let begin = Instant::now();
        let planned = target.plan(&self.planner, budget)?;
        let report = PlanReport::of(&target, &planned, begin.elapsed().as_secs_f64())?;
        // Files first: they are complete even when nothing reads the text.
        if let Some(path) = &self.problem_out {
            files::write(path, target.problem().to_form_of(path))?;
        }
        if let Some(path) = file {
            files::write(path, report.plan.to_form_of(path, target.problem()))?;
        }
        if let Some(folder) = &mut folder {
            folder.json("plan.json", &report)?;
            folder.write("problem.json", target.problem().to_json())?;
            folder.json("environment.json", &Environment::now())?;
            if let (Target::Model(prepared), Planned::Fits { program: Some(program), .. }) =
                (&target, &planned)
            {
                write_program(folder, prepared, program)?;
            }
        }
        out.report(&report)?;
        if let Some(folder) = folder.filter(|_| !out.is_json()) {
            out.text(&folder.summary())?;
        }
        Ok(Answer::of(report.fits))
    }
}

/// Whether a name stands for one document and not for a folder.
fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json" || ending == "txt")
}

/// What a plan makes of a model's step, for other programs and for the report.
fn write_program(folder: &mut Folder, prepared: &Prepared, program: &Program) -> Result<()> {
    let rows = report::decisions(prepared, program);
    folder.csv("ac_decisions.csv", &rows)?;
    folder.json("decisions.json", &Decisions { rows })?;
    folder.write("before.dot", prepared.step.graph.to_dot())?;
    folder.write("after.dot", program.schedule().graph.to_dot())?;
    let budget = program.plan().budget_bytes;
    let after = Timeline::planned(prepared, program);
    let name = &prepared.step.graph.name;
    let title = format!("{name}: memory over the step within {budget}");
    folder.picture("memory_timeline_planned", &memory_over_ranks(&title, &after, Some(budget))?)?;
    folder.write("trace_planned.json", report::chrome_trace(&after, name))?;
    folder.write("memory_snapshot_planned.pickle", report::memory_snapshot(&after, program.peak().0))?;
    folder.json("timeline.json", &Timelines::of(prepared, program))
}

impl Report for Decisions {
    const SCHEMA: &'static str = Decisions::SCHEMA;

    /// People read the report or the table of `explain`.
    fn text(&self, _: Paint) -> String {
        String::new()
    }
}

impl PlanReport {
    fn of(target: &Target, planned: &Planned, planning_seconds: f64) -> Result<PlanReport> {
        let problem = target.problem();
        let plan = planned.to_plan(problem);
        let fits = planned.fits();
        let (arena_bytes, refusal) = match planned {
            Planned::Fits { program, .. } => (program.as_ref().map(|program| program.peak()), None),
            Planned::Refused(refusal) => (None, Some(refusal.clone())),
        };
        Ok(PlanReport {
            fits,
            floor_bytes: target.floor().bytes,
            floor_node: target.floor().node_name.clone(),
            keep_all_peak_bytes: target.keep_all_peak(),
            keep_all_cost: problem.base_cost(),
            arena_bytes,
            n_nodes: problem.nodes.len(),
            n_recomputes: if fits { n_recomputes(problem, &plan) } else { 0 },
            overhead_percent: if fits { overhead_percent(problem, &plan) } else { 0.0 },
            planning_seconds,
            cost_unit: problem.cost_unit.clone(),
            has_stores: !problem.stores.is_empty(),
            why: refusal.as_ref().and_then(|refusal| refusal.why.as_ref()).map(ToString::to_string),
            is_proof: refusal.as_ref().is_some_and(|refusal| refusal.proof().is_some()),
            refusal,
            moves: if fits { MovesReport::of(problem, &plan)? } else { None },
            plan,
        })
    }

    /// Why stores that are there are not used.
    fn nothing_moved(&self) -> String {
        if uses_stores(&self.plan.planner) {
            return "nothing".to_owned();
        }
        let others: Vec<&str> =
            PLANNERS.iter().filter(|planner| planner.uses_stores).map(|p| p.name).collect();
        format!(
            "nothing: `{}` does not use stores; these planners do: {}",
            self.plan.planner,
            others.join(", ")
        )
    }

    fn quality(&self) -> String {
        match (self.plan.status, self.plan.lower_bound) {
            (Status::Optimal, _) => "optimal: no plan within the budget costs less".to_owned(),
            (_, Some(bound)) if bound > 0.0 => {
                format!("at most {:.2} % above the cheapest plan", 100.0 * (self.plan.cost / bound - 1.0))
            }
            _ => "feasible".to_owned(),
        }
    }
}

impl Report for PlanReport {
    const SCHEMA: &'static str = PLAN_SCHEMA;

    fn schema(&self) -> &'static str {
        self.plan.schema()
    }

    fn text(&self, paint: Paint) -> String {
        let PlanReport { plan, floor_bytes, floor_node, keep_all_peak_bytes, .. } = self;
        if let Some(refusal) = &self.refusal {
            let why = refusal.why.as_ref().map_or_else(String::new, |why| format!("{why}\n"));
            return format!("{}: {refusal}\n{why}", paint.bad("does not fit"));
        }
        let peak = self.arena_bytes.unwrap_or(plan.peak_bytes);
        let first = format!(
            "{}: peak {peak} within the budget of {}; the floor is {floor_bytes}, set by {floor_node}\n",
            paint.good("fits"),
            plan.budget_bytes,
        );
        let unit = &self.cost_unit;
        let price = format!("{} instead of {}", cost(plan.cost, unit), cost(self.keep_all_cost, unit));
        let mut rows = vec![
            ("problem", format!("{}, {} nodes", plan.problem, count(self.n_nodes))),
            ("planner", format!("{}, {}", plan.planner, seconds(self.planning_seconds))),
            ("peak without recomputation", keep_all_peak_bytes.to_string()),
            ("recomputed nodes", count(self.n_recomputes)),
        ];
        rows.extend(self.moves.iter().flat_map(MovesReport::facts));
        if self.has_stores && self.moves.is_none() {
            rows.push(("moved", self.nothing_moved()));
        }
        rows.push(("cost of a step", format!("{price} ({})", change(self.overhead_percent))));
        rows.push(("quality", self.quality()));
        first + &facts(rows)
    }
}
