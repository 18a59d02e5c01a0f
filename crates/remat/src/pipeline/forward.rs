//! A pass without training, for evaluation and inference.

use super::loads::Loads;
use super::{Fit, Place, Target, fit};
use crate::error::{Error, Result};
use crate::ids::ValueId;
use crate::problem;
use crate::profile::StoreSpeed;
use crate::step::ForwardPass;
use crate::store::Setup;
use remat_plan::{Bytes, Request, StoreId, memory_floor};

/// Share of the usual work that planning a pass may do: it runs rarely, so a cheap plan is good enough.
const EFFORT: f64 = 0.1;

/// State that rests in stores while a pass runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resting<'a> {
    /// The stores.
    pub(crate) stores: &'a [Setup],
    /// Sources, and the store of each.
    pub(crate) sources: &'a [(ValueId, StoreId)],
}

/// Compiles a pass for an arena of at most `budget` bytes: as it is where that fits, else with recomputation. What rests in a
/// store is loaded when it is needed.
pub(crate) fn compile_forward(
    pass: &ForwardPass,
    budget: Bytes,
    place: Place<'_>,
    resting: Resting<'_>,
) -> Result<Fit> {
    // Relative work is all the planner needs here.
    let work = pass.graph.nodes.iter().map(|node| {
        let cost = node.op.def().cost(&pass.graph.input_types(node), &pass.graph.output_types(node));
        cost.flops as f64 + cost.bytes as f64
    });
    // A store has room for what rests in it and for nothing else of a pass.
    let stores = if resting.sources.is_empty() { &[] } else { resting.stores };
    let speeds = stores.iter().map(|setup| (setup.clone(), StoreSpeed::nominal()));
    let problem = problem::with_stores(&pass.graph, &work.collect(), &speeds.collect::<Vec<_>>())?;
    let loads = match resting.sources {
        [] => None,
        sources => {
            let id = |source: ValueId| problem.value_of.iter().position(|&v| v == source);
            let stored =
                sources.iter().map(|&(source, store)| Some((remat_plan::ValueId::new(id(source)?), store)));
            let bug = || Error::bug("evaluation", ["state that rests in a store is no source of the pass"]);
            let stored: Vec<_> = stored.collect::<Option<_>>().ok_or_else(bug)?;
            Some(Loads::of(&problem.problem, &stored)?)
        }
    };
    let loads = loads.as_ref();
    let target = Target { graph: &pass.graph, roles: &pass.roles, problem: &problem, stores, loads };
    let floor = memory_floor(loads.map_or(&problem.problem, |loads| &loads.problem));
    let request = Request { effort: Some(EFFORT), ..Request::new(budget) };
    let kept = fit(&target, &floor, "save-all", &request, place)?;
    if matches!(kept, Fit::Fits(_)) { Ok(kept) } else { fit(&target, &floor, "best", &request, place) }
}
