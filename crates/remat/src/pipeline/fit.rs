//! Planning until the arena fits: plan, rewrite, lay out, and again with less where addresses need more than bytes.
//!
//! A plan promises bytes in use; the layout needs addresses, and fragmentation can make them more. So a plan that meets
//! its budget may come out too large. Then the planner is asked for as much less, a few times. One loop serves training,
//! in an arena of its own, and evaluation, which lies around the state of training.

use super::loads::Loads;
use super::{Fit, Program, Refusal};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ids::ValueId;
use crate::layout;
use crate::problem::PlanningProblem;
use crate::rewrite;
use crate::step::Roles;
use crate::store::Setup;
use remat_plan::{Bytes, Floor, Outcome, Plan, Problem, ProblemError, Request, memory_floor, solve};
use std::collections::HashSet;
use std::time::Instant;

/// The work that each attempt may do, as a share of what was asked for. The first attempt learns at little cost by how much
/// fragmentation exceeds the budget, and later ones that came out too large are made again with less.
const SHARES: [f64; 7] = [0.1, 1.0, 0.5, 0.25, 0.25, 0.25, 0.25];
/// Of a time limit, the share of what is left that an attempt may take, so that something is left for the next.
const TIME_SHARE: f64 = 0.7;

/// A graph that can be planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// What is computed.
    pub(crate) graph: &'a Graph,
    /// What its values are for.
    pub(crate) roles: &'a Roles,
    /// What the planners see of it.
    pub(crate) problem: &'a PlanningProblem,
    /// The stores of the problem.
    pub(crate) stores: &'a [Setup],
    /// Where state rests in a store for good, how it is loaded.
    pub(crate) loads: Option<&'a Loads>,
}

/// Where buffers may lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// In an arena of their own.
    Anywhere,
    /// Around sources that have a place already.
    Around(&'a [(ValueId, u64)]),
}

impl Target<'_> {
    fn solve(&self, planner: &str, request: &Request) -> Result<Outcome> {
        match self.loads {
            None => Ok(solve(&self.problem.problem, planner, request)?),
            Some(loads) => loads.carry_back(solve(&loads.problem, planner, request)?, &self.problem.problem),
        }
    }

    /// The program that recomputes nothing, in an arena that need not be smaller than `enough`.
    pub(crate) fn keep_all(&self, enough: Bytes) -> Result<Program> {
        let outcome = solve(&self.problem.problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
        let bug = || Error::Bug { stage: "save-all", faults: vec!["no plan".into()] };
        self.carry_out(outcome.plan().ok_or_else(bug)?, enough, Place::Anywhere)
    }

    /// The floor if everything that depends on the batch took no memory: parameters, their gradients and the optimizer.
    fn floor_of_any_batch(&self) -> Result<Bytes> {
        let gradients: HashSet<ValueId> =
            self.roles.gradients.iter().map(|&(_, gradient)| gradient).collect();
        let mut spec = self.problem.problem.spec().clone();
        for (value, id) in spec.values.iter_mut().zip(&self.problem.value_of) {
            if !self.graph.values[*id].kind.is_state() && !gradients.contains(id) {
                value.bytes = Bytes(0);
            }
        }
        for node in &mut spec.nodes {
            node.workspace_bytes = Bytes(0);
        }
        let bug = |error: ProblemError| Error::Bug { stage: "floor", faults: vec![error.to_string()] };
        Ok(memory_floor(&Problem::new(spec).map_err(bug)?).bytes)
    }

    /// Carries a plan out and lays it out in an arena that need not be smaller than `enough`. Every stage's result has
    /// passed its checker.
    pub(super) fn carry_out(&self, plan: &Plan, enough: Bytes, place: Place<'_>) -> Result<Program> {
        let schedule = rewrite::apply(self.graph, self.problem, plan)?;
        let layout = match place {
            Place::Anywhere => layout::assign(&schedule, enough)?,
            Place::Around(placed) => layout::assign_around(&schedule, placed, enough)?,
        };
        if layout.used != plan.peak_bytes {
            let fault =
                format!("the plan's peak is {} bytes, its buffers need {}", plan.peak_bytes.0, layout.used.0);
            return Err(Error::Bug { stage: "layout", faults: vec![fault] });
        }
        Ok(Program::of_checked(self.roles.clone(), plan.clone(), schedule, layout, self.stores))
    }
}

/// Finds a program whose arena is at most `request.budget`, or says why there is none.
pub(crate) fn fit(
    target: &Target<'_>,
    floor: &Floor,
    planner: &str,
    request: &Request,
    place: Place<'_>,
) -> Result<Fit> {
    let budget = request.budget;
    let mut fitting: Option<Program> = None;
    let mut lowest: Option<Bytes> = None;
    let mut refused = None;
    let mut asked = budget;
    // What was asked for that is too little for the planner, and the least that gave too large an arena.
    let (mut too_little, mut too_much) = (Bytes(0), budget);
    let begin = Instant::now();
    for index in 0..SHARES.len() {
        let is_scout = index == 0;
        match target.solve(planner, &attempt(request, asked, index, begin))? {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
                let program = target.carry_out(&plan, budget, place)?;
                let peak = program.peak();
                lowest = Some(lowest.map_or(peak, |l| l.min(peak)));
                if peak <= budget {
                    let is_best = fitting.as_ref().is_none_or(|f| program.plan().cost < f.plan().cost);
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
                too_much = asked;
                asked = Bytes(program.plan().peak_bytes.0.saturating_sub(peak.0 - budget.0));
                if asked <= too_little {
                    asked = Bytes(too_little.0.midpoint(too_much.0));
                }
            }
            Outcome::Infeasible { lowest_peak, why } => {
                if is_scout && budget >= floor.bytes {
                    continue;
                }
                if asked == budget {
                    refused = Some(why);
                }
                if asked < too_much && lowest.is_some() && budget >= floor.bytes {
                    // Something between is enough for the planner and leaves room for what is wasted.
                    too_little = asked;
                    asked = Bytes(too_little.0.midpoint(too_much.0));
                    continue;
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
        return Ok(Fit::Fits(Box::new(program.within(budget))));
    }
    let lowest_peak = lowest.unwrap_or(asked).max(floor.bytes);
    Ok(Fit::Refused(Refusal {
        budget,
        planner: planner.to_owned(),
        lowest_peak,
        floor: floor.bytes,
        floor_node: floor.node_name.clone(),
        floor_of_any_batch: target.floor_of_any_batch()?,
        why: refused,
    }))
}

/// What the planner is asked in one attempt.
fn attempt(request: &Request, asked: Bytes, index: usize, begin: Instant) -> Request {
    let (is_scout, share) = (index == 0, SHARES[index]);
    let time_left = request.time_limit.map(|limit| limit.saturating_sub(begin.elapsed()));
    Request {
        budget: asked,
        time_limit: time_left.map(|left| left.mul_f64(if is_scout { share } else { TIME_SHARE })),
        // A time limit alone means no limit of work.
        effort: match (request.effort, request.time_limit) {
            (None, Some(_)) => None,
            (effort, _) => Some(share * effort.unwrap_or(1.0)),
        },
        ..request.clone()
    }
}
