//! From a model to something that can run: training step, profile, plan, schedule, layout, on one screen.
//!
//! [`prepare`] does what no budget changes; [`compile`] plans for a budget. What execution, training and reports read is
//! the result of this stage, a [`Program`], which is why it comes before them.

mod checkpoint;
mod fit;
mod forward;
mod loads;
mod program;

pub use checkpoint::checkpoint;
pub(crate) use fit::{Place, Target, fit};
pub(crate) use forward::{Resting, compile_forward};
pub use program::Program;

use crate::error::{Error, Result};
use crate::fuse;
use crate::graph::Graph;
use crate::ids::{IdVec, NodeId};
use crate::problem::{self, PlanningProblem};
use crate::profile::{self, Machine, StoreSpeed};
use crate::step::{Optimizer, TrainingStep, training_step};
use crate::store::Setup;
use remat_plan::{Bytes, Floor, Plan, Request, Why, memory_floor};

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
    /// The same before fusion, unless nothing was fused.
    pub before_fusion: Option<TrainingStep>,
    /// Seconds per node.
    pub seconds: IdVec<NodeId, f64>,
    /// What the planners see.
    pub problem: PlanningProblem,
    /// The stores that plans may use: those of the problem.
    pub stores: Vec<Setup>,
    /// The step without recomputation.
    pub keep_all: Program,
    /// No plan needs less than this.
    pub floor: Floor,
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
    /// The planner that was asked.
    pub planner: String,
    /// The smallest peak that this planner reached.
    pub lowest_peak: Bytes,
    /// No plan needs less than this.
    pub floor: Bytes,
    /// The node that sets the floor.
    pub floor_node: String,
    /// What parameters, their gradients and the optimizer need, however small the batch; zero where it is not known.
    pub floor_of_any_batch: Bytes,
    /// What the planner said about this very budget: a proof, or that it gave up. Nothing where only fragmentation
    /// stood in the way.
    pub why: Option<Why>,
}

impl Refusal {
    /// The proof that no plan fits, if there is one.
    pub fn proof(&self) -> Option<&Why> {
        self.why.as_ref().filter(|why| why.is_proof())
    }

    /// What helps beside a larger budget. A smaller batch does not when parameters and optimizer need all of it.
    fn advice(&self, larger: &str) -> String {
        let Refusal { budget, floor_of_any_batch, .. } = self;
        if budget >= floor_of_any_batch {
            return format!("{larger} or make the batch smaller");
        }
        format!(
            "parameters, their gradients and the optimizer's state alone need {floor_of_any_batch}, and neither \
             recomputation nor a smaller batch changes that; {larger}, give a store that they can rest in, or use a smaller \
             model or an optimizer with less state"
        )
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let (floor, lowest_peak) = (refusal.floor, refusal.lowest_peak);
        Error::DoesNotFit { message: refusal.to_string(), floor, lowest_peak }
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
            write!(f, "{}", self.advice("raise the budget"))
        } else if self.proof().is_some() {
            write!(
                f,
                "budget {budget} is too small for every plan, although the floor is {floor}, set by {floor_node}; "
            )?;
            write!(f, "the lowest peak found is {lowest_peak}: {}", self.advice("ask for that"))
        } else {
            // Two sizes that read alike are told apart by their bytes.
            let lowest_peak = match lowest_peak.to_string() {
                same if same == budget.to_string() => format!("{}B", lowest_peak.0),
                other => other,
            };
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
    let fused = verified(fuse::fuse(&step), "fusion")?;
    let faults = fuse::check(&step, &fused);
    if !faults.is_empty() {
        return Err(Error::bug("fusion", faults.iter().map(|fault| fault.with_names(&fused.graph))));
    }
    Ok(Prepared { before_fusion: Some(step), ..prepare_step(fused, costs, progress)? })
}

fn verified(step: TrainingStep, stage: &'static str) -> Result<TrainingStep> {
    let faults = step.graph.verify();
    if faults.is_empty() {
        return Ok(step);
    }
    Err(Error::bug(stage, faults.iter().map(|fault| fault.with_names(&step.graph))))
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
    let problem = problem::problem(&step.graph, &seconds)?;
    let floor = memory_floor(&problem.problem);
    let target =
        Target { graph: &step.graph, roles: &step.roles, problem: &problem, stores: &[], loads: None };
    let keep_all = target.keep_all(Bytes(0))?;
    Ok(Prepared { step, before_fusion: None, seconds, problem, stores: Vec::new(), keep_all, floor })
}

/// Plans for `request.budget`, carries the plan out and lays it out. What is returned fits, to the byte; where nothing
/// has to be recomputed, it is the step that keeps everything.
pub fn compile(prepared: &Prepared, planner: &str, request: &Request) -> Result<Fit> {
    let fit = fit(&prepared.target(), &prepared.floor, planner, request, Place::Anywhere)?;
    Ok(match fit {
        Fit::Fits(found)
            if found.schedule().n_recomputes() == 0 && prepared.keep_all.peak() < found.peak() =>
        {
            Fit::Fits(Box::new(prepared.keep_all.clone().answering(found.plan())))
        }
        fit => fit,
    })
}

/// Carries out a plan that was made for this step, in an arena that need not be smaller than `enough`.
pub fn program(prepared: &Prepared, plan: &Plan, enough: Bytes) -> Result<Program> {
    prepared.target().carry_out(plan, enough, Place::Anywhere)
}

impl Prepared {
    /// The step before fusion with everything kept: what every other program of it must compute, to the bit.
    pub fn oracle(&self) -> Result<Program> {
        let TrainingStep { graph, roles } = self.before_fusion.as_ref().unwrap_or(&self.step);
        // Nothing is chosen, so costs do not matter, and any packing will do.
        let seconds = IdVec::filled(graph.nodes.len(), 1.0);
        let problem = &problem::problem(graph, &seconds)?;
        Target { graph, roles, problem, stores: &[], loads: None }.keep_all(Bytes(u64::MAX))
    }

    /// The same step with stores that plans may use, each with its speeds.
    pub fn with_stores(self, stores: &[(Setup, StoreSpeed)]) -> Result<Prepared> {
        let problem = problem::with_stores(&self.step.graph, &self.seconds, stores)?;
        let floor = memory_floor(&problem.problem);
        let stores = stores.iter().map(|(setup, _)| setup.clone()).collect();
        Ok(Prepared { problem, floor, stores, ..self })
    }

    /// The same step as if it had no stores.
    pub fn without_stores(&self) -> Result<Prepared> {
        let problem = problem::problem(&self.step.graph, &self.seconds)?;
        let floor = memory_floor(&problem.problem);
        Ok(Prepared { problem, floor, stores: Vec::new(), ..self.clone() })
    }

    /// What can be planned for any budget.
    fn target(&self) -> Target<'_> {
        Target {
            graph: &self.step.graph,
            roles: &self.step.roles,
            problem: &self.problem,
            stores: &self.stores,
            loads: None,
        }
    }
}
