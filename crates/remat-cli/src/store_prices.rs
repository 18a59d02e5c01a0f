//! What a store is worth to a plan: what the step would cost without it, and what faster copies would save ("the price of a
//! GB/s").
//!
//! In: a plan for a budget, and how to plan. Out: the difference in cost to plans without stores and with faster ones, found
//! by planning again with the same planner and the same limits. The plan at hand runs on a faster store too, so nothing that is
//! found there counts unless it is cheaper than that.

use crate::flags::PlannerFlags;
use crate::format::{change, cost, facts};
use crate::moves::{FASTER_PERCENT, factor, speed};
use crate::target::{Planned, Target};
use anyhow::Result;
use remat_plan::{Moves, Plan, Store, Way};
use serde::Serialize;

/// What stores are worth at the margin.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct StorePrices {
    /// What a step costs more without any store; missing when no plan was found.
    without_costs: Option<f64>,
    /// Why no plan was found without.
    without_refused: Option<String>,
    faster: Vec<FasterRow>,
    #[serde(skip)]
    base_cost: f64,
    #[serde(skip)]
    cost_unit: String,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct FasterRow {
    percent: f64,
    /// Out and in, of each store.
    speeds: Vec<(String, Option<f64>, Option<f64>)>,
    /// What the same steps save.
    same_plan_saves: f64,
    /// What a plan for the faster store saves.
    saves: f64,
}

impl StorePrices {
    /// Nothing where the problem has no stores.
    pub(crate) fn of(target: &Target, flags: &PlannerFlags, plan: &Plan) -> Result<Option<StorePrices>> {
        let problem = target.problem();
        if problem.stores.is_empty() {
            return Ok(None);
        }
        let without = target.without_stores()?.plan(flags, plan.budget_bytes)?;
        let (without_costs, without_refused) = match without {
            Planned::Fits { plan: without, .. } => (Some((without.cost - plan.cost).max(0.0)), None),
            Planned::Refused(refusal) => (None, Some(refusal.to_string())),
        };
        let row = |percent: f64| {
            let faster = target.with_faster_copies(factor(percent));
            let same_plan_saves = Moves::saved_by_faster_copies(problem, plan, factor(percent))?;
            let again = match faster.plan(flags, plan.budget_bytes)? {
                Planned::Fits { plan: again, .. } => (plan.cost - again.cost).max(0.0),
                Planned::Refused(_) => 0.0,
            };
            let per_second = |store: &Store, way| {
                let per_byte = store.link(way).cost_per_byte;
                (per_byte > 0.0).then(|| 1.0 / per_byte)
            };
            let speeds = faster.problem().stores.iter();
            let speeds = speeds
                .map(|store| (store.name.clone(), per_second(store, Way::Out), per_second(store, Way::In)));
            let saves = again.max(same_plan_saves);
            Ok(FasterRow { percent, speeds: speeds.collect(), same_plan_saves, saves })
        };
        Ok(Some(StorePrices {
            without_costs,
            without_refused,
            faster: FASTER_PERCENT.into_iter().map(row).collect::<Result<_>>()?,
            base_cost: problem.base_cost(),
            cost_unit: problem.cost_unit.clone(),
        }))
    }

    /// A few lines for people.
    pub(crate) fn text(&self) -> String {
        let unit = &self.cost_unit;
        let percent = |price: f64| if self.base_cost > 0.0 { 100.0 * price / self.base_cost } else { 0.0 };
        let without = match (self.without_costs, &self.without_refused) {
            (Some(price), _) if price > 0.0 => {
                format!("costs {} ({})", cost(price, unit), change(percent(price)))
            }
            (Some(_), _) => "costs nothing".to_owned(),
            (None, why) => format!("has no plan: {}", why.as_deref().unwrap_or("none found")),
        };
        let mut rows = vec![("no store".to_owned(), without)];
        for row in &self.faster {
            let saved = match row.saves {
                saves if saves > 0.0 => {
                    let same = cost(row.same_plan_saves, unit);
                    format!(
                        "saves {} ({}), {same} of it with the same plan",
                        cost(saves, unit),
                        change(-percent(saves))
                    )
                }
                _ => "saves nothing".to_owned(),
            };
            let speeds = row.speeds.iter().filter_map(|(name, out, back)| {
                Some(format!("{name}: out {}, in {}", speed((*out)?), speed((*back)?)))
            });
            let speeds: Vec<String> = speeds.filter(|_| unit == "s").collect();
            let speeds = if speeds.is_empty() { String::new() } else { format!(" ({})", speeds.join("; ")) };
            rows.push((format!("{} % more GB/s", row.percent), format!("{saved}{speeds}")));
        }
        facts(rows)
    }
}
