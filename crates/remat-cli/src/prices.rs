//! The price of the last megabyte and of the next: what one MiB less would cost, and one more would save.
//!
//! In: a plan for a budget, and how to plan. Out: the difference in cost to plans for one MiB less and one MiB more, found by
//! planning again with the same planner and the same limits. These are differences between plans that were found, not
//! between optima: a search that stops early can miss either. Nothing is planned where the answer is known: a plan that
//! leaves a MiB unused costs nothing to shrink by it.

use crate::flags::PlannerFlags;
use crate::format::{change, cost, facts};
use crate::target::{Planned, Target, overhead_percent};
use anyhow::Result;
use remat_plan::{Bytes, Plan};
use serde::Serialize;

/// The step by which the budget is moved.
const STEP: Bytes = Bytes(1 << 20);

/// What a budget is worth at its margin.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Prices {
    step_bytes: Bytes,
    /// What a budget smaller by the step costs more; missing when no plan was found for it.
    less_costs: Option<f64>,
    /// Why no plan was found for less.
    less_refused: Option<String>,
    /// What a budget larger by the step saves.
    more_saves: Option<f64>,
    /// Bytes of the budget that the plan does not use.
    unused_bytes: Bytes,
    #[serde(skip)]
    base_cost: f64,
    #[serde(skip)]
    cost_unit: String,
}

impl Prices {
    /// The prices around a plan whose peak (with addresses, for a model) is `peak`.
    pub(crate) fn of(target: &Target, flags: &PlannerFlags, plan: &Plan, peak: Bytes) -> Result<Prices> {
        let problem = target.problem();
        let unused_bytes = plan.budget_bytes.saturating_sub(peak);
        let (less_costs, less_refused) = if unused_bytes >= STEP {
            (Some(0.0), None)
        } else {
            match target.plan(flags, plan.budget_bytes.saturating_sub(STEP))? {
                Planned::Fits { plan: smaller, .. } => (Some((smaller.cost - plan.cost).max(0.0)), None),
                Planned::Refused(refusal) => {
                    let proof = refusal.proof().map(ToString::to_string);
                    (None, Some(proof.unwrap_or_else(|| format!("none found below {}", refusal.lowest_peak))))
                }
            }
        };
        let is_least = overhead_percent(problem, plan) <= 0.0;
        let more_saves = if is_least {
            Some(0.0)
        } else {
            match target.plan(flags, plan.budget_bytes + STEP)? {
                Planned::Fits { plan: larger, .. } => Some((plan.cost - larger.cost).max(0.0)),
                Planned::Refused(_) => None,
            }
        };
        Ok(Prices {
            step_bytes: STEP,
            less_costs,
            less_refused,
            more_saves,
            unused_bytes,
            base_cost: problem.base_cost(),
            cost_unit: problem.cost_unit.clone(),
        })
    }

    /// Two lines for people.
    pub(crate) fn text(&self) -> String {
        let percent = |price: f64| if self.base_cost > 0.0 { 100.0 * price / self.base_cost } else { 0.0 };
        let less = match (self.less_costs, &self.less_refused) {
            (Some(_), _) if self.unused_bytes >= STEP => {
                format!("costs nothing: {} are unused", self.unused_bytes)
            }
            (Some(price), _) if price > 0.0 => {
                format!("costs {} ({})", cost(price, &self.cost_unit), change(percent(price)))
            }
            (Some(_), _) => "costs nothing".to_owned(),
            (None, why) => format!("has no plan: {}", why.as_deref().unwrap_or("none found")),
        };
        let more = match self.more_saves {
            Some(price) if price > 0.0 => {
                format!("saves {} ({})", cost(price, &self.cost_unit), change(-percent(price)))
            }
            _ => "saves nothing".to_owned(),
        };
        facts([(format!("{STEP} less"), less), (format!("{STEP} more"), more)])
    }
}
