//! What is planned: a model of ours, or a problem file from anywhere.
//!
//! A model is planned by the whole pipeline, down to addresses, so its peak is what execution will use. Of a problem
//! file nothing is known but sizes; its peak is the sum of what is live.

use crate::files;
use crate::flags::{CostKind, PlannerFlags, StepFlags, model_parser};
use crate::planning::{self, compile};
use anyhow::{Result, bail};
use clap::Args;
use remat::pipeline::{Fit, Prepared, Program, Refusal};
use remat_plan::{Bytes, Floor, Outcome, Plan, Problem, Request, Status, memory_floor, solve};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A model or a file.
#[derive(Clone, PartialEq, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetFlags {
    /// The model; `remat models` lists them.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: Option<String>,
    /// Plan the `remat.problem` of this file, JSON or text, instead of a model.
    #[arg(long, value_name = "FILE")]
    problem: Option<PathBuf>,
}

/// A planning problem with where it comes from.
#[derive(Debug)]
pub(crate) enum Target {
    /// A training step that can be run.
    Model(Box<Prepared>),
    /// A problem file.
    File {
        /// The problem.
        problem: Box<Problem>,
        /// Its peak when nothing is recomputed.
        keep_all_peak: Bytes,
        /// No plan needs less.
        floor: Floor,
        /// How long reading took; writing a plan takes about as long.
        read_in: Duration,
    },
}

/// A planner's answer for one budget.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    /// A checked plan.
    Fits {
        /// The plan.
        plan: Plan,
        /// The plan carried out and laid out, for a model.
        program: Option<Box<Program>>,
    },
    /// No plan was found.
    Refused(Refusal),
}

impl TargetFlags {
    /// Builds and profiles the model, or reads the file.
    pub(crate) fn read(&self, step: &StepFlags) -> Result<Target> {
        match (&self.model, &self.problem) {
            (Some(model), _) => {
                Ok(Target::Model(Box::new(step.build(model, CostKind::Analytic)?.prepare()?)))
            }
            (None, Some(path)) => {
                if let Some(flag) = step.first_typed() {
                    bail!("--{flag} is an option of models; it cannot be used with --problem");
                }
                let begin = Instant::now();
                let problem = Box::new(files::read_problem(path)?);
                let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
                let keep_all_peak = everything.to_plan(&problem, "save-all", Bytes(u64::MAX)).peak_bytes;
                let floor = memory_floor(&problem);
                Ok(Target::File { problem, keep_all_peak, floor, read_in: begin.elapsed() })
            }
            (None, None) => bail!("name a model or give --problem FILE"),
        }
    }
}

impl Target {
    /// What the planners see.
    pub(crate) fn problem(&self) -> &Problem {
        match self {
            Target::Model(prepared) => &prepared.problem.problem,
            Target::File { problem, .. } => problem,
        }
    }

    /// The peak when nothing is recomputed: what a budget in percent is a share of.
    pub(crate) fn keep_all_peak(&self) -> Bytes {
        match self {
            Target::Model(prepared) => prepared.keep_all.peak(),
            Target::File { keep_all_peak, .. } => *keep_all_peak,
        }
    }

    /// No plan has a lower peak.
    pub(crate) fn floor(&self) -> &Floor {
        match self {
            Target::Model(prepared) => &prepared.floor,
            Target::File { floor, .. } => floor,
        }
    }

    /// The same without stores: everything stays in memory or is computed again.
    pub(crate) fn without_stores(&self) -> Result<Target> {
        match self {
            Target::Model(prepared) => Ok(Target::Model(Box::new(prepared.without_stores()?))),
            Target::File { problem, .. } => Ok(self.with_problem(problem.without_stores())),
        }
    }

    /// The same with stores that move `factor` times as many bytes in the same time.
    pub(crate) fn with_faster_copies(&self, factor: f64) -> Target {
        self.with_problem(self.problem().with_faster_copies(factor))
    }

    /// The same with another problem of the same nodes and values.
    fn with_problem(&self, other: Problem) -> Target {
        match self {
            Target::Model(prepared) => {
                let mut prepared = prepared.clone();
                prepared.floor = memory_floor(&other);
                prepared.problem.problem = other;
                Target::Model(prepared)
            }
            Target::File { keep_all_peak, read_in, .. } => {
                let floor = memory_floor(&other);
                let (keep_all_peak, read_in) = (*keep_all_peak, *read_in);
                Target::File { problem: Box::new(other), keep_all_peak, floor, read_in }
            }
        }
    }

    /// Asks the planner.
    pub(crate) fn plan(&self, flags: &PlannerFlags, budget: Bytes) -> Result<Planned> {
        let mut request = flags.request(budget);
        let planner = &flags.planner;
        match self {
            Target::Model(prepared) => Ok(match compile(prepared, planner, request)? {
                Fit::Fits(program) => Planned::Fits { plan: program.plan().clone(), program: Some(program) },
                Fit::Refused(refusal) => Planned::Refused(refusal),
            }),
            Target::File { problem, floor, read_in, .. } => Ok({
                // A limit on time is one of the whole command.
                request.time_limit = request.time_limit.map(|limit| limit.saturating_sub(2 * *read_in));
                match planning::solve(problem, planner, request)? {
                    Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
                        Planned::Fits { plan, program: None }
                    }
                    Outcome::Infeasible { lowest_peak, why } => Planned::Refused(Refusal {
                        budget,
                        planner: planner.clone(),
                        lowest_peak,
                        floor: floor.bytes,
                        floor_node: floor.node_name.clone(),
                        floor_of_any_batch: Bytes::ZERO,
                        why: Some(why),
                    }),
                }
            }),
        }
    }
}

impl Planned {
    /// Whether there is a plan.
    pub(crate) fn fits(&self) -> bool {
        matches!(self, Planned::Fits { .. })
    }

    /// The answer in the form of the file format: an infeasible answer has no steps.
    pub(crate) fn to_plan(&self, problem: &Problem) -> Plan {
        match self {
            Planned::Fits { plan, .. } => plan.clone(),
            Planned::Refused(refusal) => Plan {
                problem: problem.name.clone(),
                planner: refusal.planner.clone(),
                status: Status::Infeasible,
                budget_bytes: refusal.budget,
                peak_bytes: refusal.lowest_peak,
                cost: 0.0,
                lower_bound: None,
                stored: Vec::new(),
                steps: Vec::new(),
            },
        }
    }
}

/// How many nodes a plan runs beyond once each.
pub(crate) fn n_recomputes(problem: &Problem, plan: &Plan) -> usize {
    plan.computes().count().saturating_sub(problem.nodes.len())
}

/// Extra cost of a plan in percent of running every node once.
pub(crate) fn overhead_percent(problem: &Problem, plan: &Plan) -> f64 {
    let base = problem.base_cost();
    if base > 0.0 { 100.0 * (plan.cost / base - 1.0) } else { 0.0 }
}
