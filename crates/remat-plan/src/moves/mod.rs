//! What a plan moves to stores and back: which values and when, how much of the copying is hidden, and what it makes room for.
//!
//! In: a problem, a valid plan and its simulation. Out: plain data; [`text`] has its form for people. Copying is hidden as far as
//! nodes run meanwhile; the rest is time in which the program waits, which is what the plan costs beyond its computes.

mod away;
mod text;

use crate::ids::{StoreId, ValueId};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::simulate::{Simulation, SimulationError, simulate_with};
use crate::spec::Way;
use crate::units::Bytes;
use away::stretches;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a plan copies to and from stores.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Moves {
    /// Each direction of each store that copies anything.
    pub links: Vec<LinkUse>,
    /// All copies together.
    pub copying: f64,
    /// How long the program waits for copies, also at its end.
    pub waiting: f64,
    /// The part of the copying that takes place while nodes run, in percent.
    pub hidden_percent: f64,
    /// Values that are in a store when the step begins and when it ends.
    pub n_resting: usize,
    /// Their bytes.
    pub resting_bytes: Bytes,
    /// Everything that is copied, the largest first.
    pub values: Vec<MovedValue>,
    /// The unit of all costs.
    pub cost_unit: String,
}

/// One direction of one store.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LinkUse {
    /// Name of the store.
    pub store: String,
    /// `out` or `in`.
    pub way: String,
    /// Copies in a step.
    pub n_copies: usize,
    /// Their bytes.
    pub bytes: Bytes,
    /// What they take together.
    pub busy: f64,
    /// Bytes that it moves per unit of cost, beside what any copy takes; nothing where bytes cost nothing.
    pub bytes_per_cost: Option<f64>,
}

/// A value that is copied to a store, from one, or both.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MovedValue {
    /// The value.
    #[serde(skip)]
    pub id: ValueId,
    /// Its name.
    pub value: String,
    /// The module that made it, if known.
    pub module: Option<String>,
    /// Its size.
    pub bytes: Bytes,
    /// Name of the store.
    pub store: String,
    /// When it is copied out, the first time.
    pub out: Option<(f64, f64)>,
    /// When it is copied in, the last time.
    #[serde(rename = "in")]
    pub back: Option<(f64, f64)>,
    /// How often it is copied in.
    pub n_in: usize,
    /// Whether it is in the store when the step begins or ends.
    pub rests: bool,
    /// The tightest stretch over which it is not in memory.
    pub away: Option<Away>,
    /// How long the program waits for copies of it.
    pub waited: f64,
    /// What running its maker once more would take, where that is allowed.
    pub maker_cost: Option<f64>,
}

/// A stretch of steps over which a value is in a store only.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Away {
    /// The step that frees its memory; zero where the value begins in the store.
    pub from_step: usize,
    /// The step that copies it in; the number of steps where it ends in the store.
    pub to_step: usize,
    /// The step in between with the most memory.
    pub tightest_step: usize,
    /// The name of the node that runs or the value that is copied there.
    pub tightest_name: String,
    /// Memory there in the plan.
    pub used_bytes: Bytes,
    /// By how much the budget would be exceeded there if the value stayed in memory.
    pub excess_if_kept_bytes: Bytes,
}

impl Moves {
    /// What a plan copies; nothing where it copies nothing. Fails where the plan is not valid.
    pub fn of(problem: &Problem, plan: &Plan) -> Result<Option<Moves>, SimulationError> {
        if !plan.uses_stores() {
            return Ok(None);
        }
        Ok(Some(Moves::of_simulated(problem, plan, &simulate_with(problem, &plan.stored, &plan.steps)?)))
    }

    /// The same where the simulation of the plan is at hand.
    pub(crate) fn of_simulated(problem: &Problem, plan: &Plan, result: &Simulation) -> Moves {
        let mut links: BTreeMap<(StoreId, Way), LinkUse> = BTreeMap::new();
        for transfer in &result.transfers {
            let store = problem.store(transfer.store);
            let per_byte = store.link(transfer.way).cost_per_byte;
            let link = links.entry((transfer.store, transfer.way)).or_insert_with(|| LinkUse {
                store: store.name.clone(),
                way: transfer.way.to_string(),
                n_copies: 0,
                bytes: Bytes::ZERO,
                busy: 0.0,
                bytes_per_cost: (per_byte > 0.0).then(|| 1.0 / per_byte),
            });
            link.n_copies += 1;
            link.bytes += problem.bytes(transfer.value);
            link.busy += transfer.end - transfer.start;
        }
        let copying: f64 = links.values().map(|link| link.busy).sum();
        let computing: f64 = plan.computes().map(|node| problem.node(node).cost).sum();
        // Rounding may leave less than nothing of a difference of sums.
        let waiting = (result.cost - computing).clamp(0.0, copying);
        Moves {
            links: links.into_values().collect(),
            copying,
            waiting,
            hidden_percent: if copying > 0.0 { 100.0 * (1.0 - waiting / copying) } else { 100.0 },
            n_resting: plan.stored.len(),
            resting_bytes: plan.stored.iter().map(|&(value, _)| problem.bytes(value)).sum(),
            values: moved_values(problem, plan, result),
            cost_unit: problem.cost_unit.clone(),
        }
    }

    /// What the same steps save in a step when stores move `factor` times as many bytes in the same time.
    pub fn saved_by_faster_copies(
        problem: &Problem,
        plan: &Plan,
        factor: f64,
    ) -> Result<f64, SimulationError> {
        let faster = simulate_with(&problem.with_faster_copies(factor), &plan.stored, &plan.steps)?;
        let now = simulate_with(problem, &plan.stored, &plan.steps)?;
        Ok((now.cost - faster.cost).max(0.0))
    }

    /// Bytes that are copied in one direction.
    pub fn bytes(&self, way: Way) -> Bytes {
        self.links.iter().filter(|link| link.way == way.to_string()).map(|link| link.bytes).sum()
    }
}

/// One entry for each value and store, the largest first.
fn moved_values(problem: &Problem, plan: &Plan, result: &Simulation) -> Vec<MovedValue> {
    let mut found: BTreeMap<(ValueId, StoreId), MovedValue> = BTreeMap::new();
    let carried: BTreeMap<ValueId, ValueId> = problem.carries.iter().copied().collect();
    let resting: BTreeSet<(ValueId, StoreId)> = (plan.stored.iter())
        .flat_map(|&(value, store)| [Some(value), carried.get(&value).copied()].map(|v| Some((v?, store))))
        .flatten()
        .collect();
    for transfer in &result.transfers {
        let (id, store) = (transfer.value, transfer.store);
        let moved = found.entry((id, store)).or_insert_with(|| MovedValue {
            id,
            value: problem.value(id).name.clone(),
            module: problem.producer(id).and_then(|node| problem.node(node).module.clone()),
            bytes: problem.bytes(id),
            store: problem.store(store).name.clone(),
            out: None,
            back: None,
            n_in: 0,
            rests: resting.contains(&(id, store)),
            away: None,
            waited: 0.0,
            maker_cost: problem
                .producer(id)
                .filter(|&node| problem.node(node).recompute)
                .map(|node| problem.node(node).cost),
        });
        let times = Some((transfer.start, transfer.end));
        match transfer.way {
            Way::Out => moved.out = moved.out.or(times),
            Way::In => {
                moved.back = times;
                moved.n_in += 1;
            }
        }
    }
    let mut waited: BTreeMap<ValueId, f64> = BTreeMap::new();
    for wait in &result.waits {
        *waited.entry(wait.value).or_default() += wait.end - wait.start;
    }
    let mut away = stretches(problem, plan, result);
    let mut values: Vec<MovedValue> = found.into_values().collect();
    for moved in &mut values {
        // A value in two stores is in the list twice, and is waited for once.
        moved.waited = waited.remove(&moved.id).unwrap_or(0.0);
        moved.away = away.remove(&moved.id);
    }
    values.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.id.cmp(&b.id)));
    values
}
