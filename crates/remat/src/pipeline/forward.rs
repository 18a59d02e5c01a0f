//! A pass without training, for evaluation and inference.

use super::{Fit, Place, Target, fit};
use crate::error::Result;
use crate::problem::problem;
use crate::step::ForwardPass;
use remat_plan::{Bytes, Request, memory_floor};

/// Share of the usual work that planning a pass may do: it runs rarely, so a cheap plan is good enough.
const EFFORT: f64 = 0.1;

/// Compiles a pass for an arena of at most `budget` bytes: as it is where that fits, else with recomputation.
pub(crate) fn compile_forward(pass: &ForwardPass, budget: Bytes, place: Place<'_>) -> Result<Fit> {
    // Relative work is all the planner needs here.
    let work = pass.graph.nodes.iter().map(|node| {
        let cost = node.op.def().cost(&pass.graph.input_types(node), &pass.graph.output_types(node));
        cost.flops as f64 + cost.bytes as f64
    });
    let problem = problem(&pass.graph, &work.collect())?;
    let target = Target { graph: &pass.graph, roles: &pass.roles, problem: &problem };
    let floor = memory_floor(&problem.problem);
    let request = Request { effort: Some(EFFORT), ..Request::new(budget) };
    let kept = fit(&target, &floor, "save-all", &request, place)?;
    if matches!(kept, Fit::Fits(_)) { Ok(kept) } else { fit(&target, &floor, "best", &request, place) }
}
