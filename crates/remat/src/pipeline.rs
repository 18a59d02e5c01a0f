//! The whole way on one screen: model to training step to profile to plan to schedule to layout.

use crate::autodiff::{TrainingStep, training_step};
use crate::error::{Error, Result};
use crate::fuse::fuse;
use crate::graph::Graph;
use crate::ids::{IdVec, NodeId};
use crate::layout::{self, Layout};
use crate::profile::{self, Machine, PlanningProblem};
use crate::rewrite::{self, Schedule};
use crate::train::Optimizer;
use remat_plan::{Bytes, Floor, Outcome, Plan, Request, Why, memory_floor, solve};
use std::time::Instant;

/// Where the planner's costs come from.
#[derive(Clone, PartialEq, Debug)]
pub enum Costs {
    /// Flops and bytes against these speeds.
    Analytic(Machine),
    /// Every op is run alone with this many threads.
    Measured(usize),
}

/// A training step that is ready to be planned for any budget.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Forward, backward and optimizer.
    pub step: TrainingStep,
    /// Seconds per node.
    pub seconds: IdVec<NodeId, f64>,
    /// What the planners see.
    pub problem: PlanningProblem,
    /// The step without recomputation.
    pub keep_all: Program,
    /// No plan needs less than this.
    pub floor: Floor,
}

/// A step that fits: what to run and where everything lies.
#[derive(Clone, Debug)]
pub struct Program {
    /// The checked plan.
    pub plan: Plan,
    /// The plan carried out on the graph.
    pub schedule: Schedule,
    /// Places in the arena.
    pub layout: Layout,
}

impl Program {
    /// The predicted peak of the step, to the byte: the size of the arena.
    pub fn peak(&self) -> Bytes {
        self.layout.arena
    }
}

/// The answer to "make it fit".
#[derive(Clone, Debug)]
pub enum Fit {
    /// It fits.
    Fits(Box<Program>),
    /// It does not, and why.
    Refused(Refusal),
}

/// Why a budget was refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// What was asked for.
    pub budget: Bytes,
    /// Who tried.
    pub planner: String,
    /// The smallest peak that this planner reached.
    pub lowest_peak: Bytes,
    /// No plan needs less than this.
    pub floor: Bytes,
    /// The node that sets the floor.
    pub floor_node: String,
    /// What the planner said about this very budget: a proof, or that it gave up. Nothing where only fragmentation
    /// stood in the way.
    pub why: Option<Why>,
}

impl Refusal {
    /// The proof that no plan fits, if there is one.
    pub fn proof(&self) -> Option<&Why> {
        self.why.as_ref().filter(|why| why.is_proof())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refusal { budget, planner, lowest_peak, floor, floor_node, .. } = self;
        if budget < floor {
            write!(
                f,
                "budget {budget} is below the floor of {floor}, set by {floor_node}: no plan can fit; "
            )?;
            write!(f, "raise the budget or make the batch smaller")
        } else if self.proof().is_some() {
            write!(
                f,
                "budget {budget} is too small for every plan, although the floor is {floor}, set by {floor_node}; "
            )?;
            write!(f, "the lowest peak found is {lowest_peak}: ask for that or make the batch smaller")
        } else {
            write!(f, "budget {budget} is too small: `{planner}` never got below {lowest_peak} ")?;
            write!(
                f,
                "(the floor is {floor}, set by {floor_node}); ask for {lowest_peak} or try another planner"
            )
        }
    }
}

/// Differentiates, fuses, verifies and profiles a model. `progress` is told how many of how many nodes are measured.
pub fn prepare(
    forward: &Graph,
    optimizer: &Optimizer,
    costs: Costs,
    progress: impl FnMut(usize, usize),
) -> Result<Prepared> {
    let step = verified(training_step(forward, optimizer)?, "autodiff")?;
    prepare_step(verified(fuse(&step), "fusion")?, costs, progress)
}

fn verified(step: TrainingStep, stage: &'static str) -> Result<TrainingStep> {
    let faults = step.graph.verify();
    if faults.is_empty() { Ok(step) } else { Err(Error::Bug { stage, faults }) }
}

/// Profiles a verified training step as it is, for example one that was not fused.
pub fn prepare_step(
    step: TrainingStep,
    costs: Costs,
    progress: impl FnMut(usize, usize),
) -> Result<Prepared> {
    let seconds = match costs {
        Costs::Analytic(machine) => profile::analytic(&step.graph, &machine),
        Costs::Measured(n_threads) => profile::measure(&step.graph, n_threads, progress)?.seconds(),
    };
    let problem = profile::problem(&step.graph, &seconds)?;
    let floor = memory_floor(&problem.problem);
    let outcome = solve(&problem.problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
    let plan =
        outcome.plan().ok_or_else(|| Error::Bug { stage: "save-all", faults: vec!["no plan".into()] })?;
    let keep_all = program(&step.graph, &problem, plan, Bytes(0))?;
    Ok(Prepared { step, seconds, problem, keep_all, floor })
}

/// The work that each attempt may do, as a share of what was asked for. Addresses can need more than the bytes in use;
/// the first attempt learns by how much, at little cost, and later ones that came out too large are made again with less.
const SHARES: [f64; 7] = [0.1, 1.0, 0.5, 0.25, 0.25, 0.25, 0.25];
/// Of a time limit, the share of what is left that an attempt may take, so that something is left for the next.
const TIME_SHARE: f64 = 0.7;

/// Plans for `request.budget`, carries the plan out and lays it out. What is returned fits, to the byte.
pub fn compile(prepared: &Prepared, planner: &str, request: &Request) -> Result<Fit> {
    let Prepared { step, problem, floor, .. } = prepared;
    let budget = request.budget;
    let mut fitting: Option<Program> = None;
    let mut lowest: Option<Bytes> = None;
    let mut refused = None;
    let mut asked = budget;
    let begin = Instant::now();
    for (index, share) in SHARES.into_iter().enumerate() {
        let is_scout = index == 0;
        let time_left = request.time_limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        let attempt = Request {
            budget: asked,
            time_limit: time_left.map(|left| left.mul_f64(if is_scout { share } else { TIME_SHARE })),
            // A time limit alone means no limit of work.
            effort: match (request.effort, request.time_limit) {
                (None, Some(_)) => None,
                (effort, _) => Some(share * effort.unwrap_or(1.0)),
            },
            seed: request.seed,
        };
        match solve(&problem.problem, planner, &attempt)? {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
                let program = program(&step.graph, problem, &plan, budget)?;
                let peak = program.peak();
                lowest = Some(lowest.map_or(peak, |l| l.min(peak)));
                if peak <= budget {
                    let is_best = fitting.as_ref().is_none_or(|f| program.plan.cost < f.plan.cost);
                    fitting = if is_best { Some(program) } else { fitting };
                    if is_scout {
                        continue;
                    }
                    break;
                }
                if asked > budget {
                    break;
                }
                // Fragmentation: ask for less by what it was too much. The next plan's may differ; then there is another.
                asked = Bytes(program.plan.peak_bytes.0.saturating_sub(peak.0 - budget.0));
            }
            Outcome::Infeasible { lowest_peak, why } => {
                if is_scout && budget >= floor.bytes {
                    continue;
                }
                if asked == budget {
                    refused = Some(why);
                }
                if lowest.is_some() || lowest_peak <= asked || budget < floor.bytes {
                    lowest = lowest.or(Some(lowest_peak));
                    break;
                }
                // What the planner can reach is known in bytes in use; the arena says what to ask for.
                asked = lowest_peak;
            }
        }
    }
    if let Some(program) = fitting {
        let plan = Plan { budget_bytes: budget, ..program.plan };
        return Ok(Fit::Fits(Box::new(Program { plan, ..program })));
    }
    let lowest_peak = lowest.unwrap_or(asked).max(floor.bytes);
    let (floor, floor_node) = (floor.bytes, floor.node_name.clone());
    let planner = planner.to_owned();
    Ok(Fit::Refused(Refusal { budget, planner, lowest_peak, floor, floor_node, why: refused }))
}

/// Carries a plan out and lays it out in an arena that need not be smaller than `enough`. Every stage's result has
/// passed its checker.
pub fn program(graph: &Graph, problem: &PlanningProblem, plan: &Plan, enough: Bytes) -> Result<Program> {
    let schedule = rewrite::apply(graph, problem, plan)?;
    let layout = layout::assign(&schedule, enough)?;
    if layout.used != plan.peak_bytes {
        let fault =
            format!("the plan's peak is {} bytes, its buffers need {}", plan.peak_bytes.0, layout.used.0);
        return Err(Error::Bug { stage: "layout", faults: vec![fault] });
    }
    Ok(Program { plan: plan.clone(), schedule, layout })
}
