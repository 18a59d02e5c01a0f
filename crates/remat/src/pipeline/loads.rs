//! Planning a pass whose state rests in a store: what is needed is loaded, used and forgotten.
//!
//! In: a planning problem and the inputs that are stored. Out: a problem without stores in which a node of its own makes each
//! of them, so that every planner can decide when to load and whether to load again; and its plans, as plans of the problem
//! with stores. Nothing is ever written back, so the store keeps what it holds.

use crate::error::{Error, Result};
use remat_plan::{
    Bytes, Node, NodeId, Outcome, Phase, Plan, Problem, ProblemError, Status, Step, StoreId, ValueId,
    simulate_with,
};
use std::collections::{HashMap, HashSet};

/// What a node of the problem with loads is.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Node(NodeId),
    Load(ValueId, StoreId),
}

/// A problem whose stored inputs are loaded.
#[derive(Debug)]
pub(crate) struct Loads {
    /// What planners see.
    pub(crate) problem: Problem,
    origins: Vec<Origin>,
    stored: Vec<(ValueId, StoreId)>,
}

impl Loads {
    /// Puts a load in front of the first reader of every stored input.
    pub(crate) fn of(problem: &Problem, stored: &[(ValueId, StoreId)]) -> Result<Loads> {
        let mut spec = problem.spec().clone();
        let store_of: HashMap<ValueId, StoreId> = stored.iter().copied().collect();
        let is_loaded = |v: &ValueId| store_of.contains_key(v) && !problem.readers(*v).is_empty();
        for &(v, _) in stored.iter().filter(|(v, _)| !is_loaded(v)) {
            // Nobody reads it, so it takes no memory.
            spec.values[v.index()].bytes = Bytes(0);
        }
        spec.inputs.retain(|v| !is_loaded(v));
        spec.outputs.retain(|v| !is_loaded(v));
        spec.nodes.clear();
        spec.stores.clear();
        spec.channels.clear();
        spec.carries.clear();
        let mut origins = Vec::new();
        let mut is_there = HashSet::new();
        for id in problem.node_ids() {
            let node = problem.node(id);
            for &v in node.inputs.iter().filter(|v| is_loaded(v)) {
                if is_there.insert(v) {
                    let store = store_of[&v];
                    let cost = problem.store(store).back.cost(problem.bytes(v));
                    let name = format!("load {}", problem.value(v).name);
                    spec.nodes.push(Node { outputs: vec![v], ..Node::new(name, Phase::Forward, cost) });
                    origins.push(Origin::Load(v, store));
                }
            }
            spec.nodes.push(node.clone());
            origins.push(Origin::Node(id));
        }
        let bug =
            |error: ProblemError| Error::bug("evaluation", error.to_string().lines().map(str::to_owned));
        Ok(Loads { problem: Problem::new(spec).map_err(bug)?, origins, stored: stored.to_vec() })
    }

    /// The outcome for the problem with stores.
    pub(crate) fn carry_back(&self, outcome: Outcome, problem: &Problem) -> Result<Outcome> {
        Ok(match outcome {
            // Time with loads beside nodes is not what was planned, so nothing is proved about it.
            Outcome::Optimal(plan) => {
                let plan = self.plan(plan, problem)?;
                Outcome::Feasible(plan, remat_plan::StopReason::StoresUnused)
            }
            Outcome::Feasible(plan, stop) => Outcome::Feasible(self.plan(plan, problem)?, stop),
            refused @ Outcome::Infeasible { .. } => refused,
        })
    }

    fn plan(&self, plan: Plan, problem: &Problem) -> Result<Plan> {
        let step = |step: &Step| match *step {
            Step::Compute(node) => match self.origins[node.index()] {
                Origin::Node(node) => Step::Compute(node),
                Origin::Load(value, store) => Step::In(value, store),
            },
            other => other,
        };
        let steps: Vec<Step> = plan.steps.iter().map(step).collect();
        let found = simulate_with(problem, &self.stored, &steps);
        let found = found.map_err(|error| Error::bug("evaluation", [error.to_string()]))?;
        let stored = self.stored.clone();
        let plan = Plan {
            status: Status::Feasible,
            peak_bytes: found.peak,
            cost: found.cost,
            lower_bound: None,
            stored,
            steps,
            ..plan
        };
        match remat_plan::check(problem, &plan) {
            faults if faults.is_empty() => Ok(plan),
            faults => Err(Error::bug("evaluation", faults)),
        }
    }
}
