//! Which planner is asked, and how hard it may try.

use super::parse_duration;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use remat_plan::{Bytes, PLANNERS, Request};
use std::time::Duration;

/// Flags of commands that plan.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct PlannerFlags {
    /// The planner to use.
    #[arg(long, value_name = "NAME", default_value = default_planner(), value_parser = planner_parser())]
    pub(crate) planner: String,
    #[command(flatten)]
    search: SearchFlags,
}

/// How hard a planner may try.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct SearchFlags {
    /// Stop searching after this time, for example 10s; the best plan so far is used.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time_limit: Option<Duration>,
    /// How much to search: 2 is twice the default amount of work. Unlike a time limit it is the same everywhere.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = parse_effort)]
    effort: Option<f64>,
    /// Seed of everything random: searches, and where something is trained, weights and data.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

impl SearchFlags {
    /// The request for a budget.
    pub(crate) fn request(&self, budget: Bytes) -> Request {
        let SearchFlags { time_limit, effort, seed, .. } = *self;
        Request { time_limit, effort, seed, ..Request::new(budget) }
    }

    /// The same for a first impression: a tenth of the work.
    pub(crate) fn at_a_glance(&self) -> SearchFlags {
        SearchFlags { effort: Some(0.1 * self.effort.unwrap_or(1.0)), ..self.clone() }
    }
}

impl PlannerFlags {
    /// The request for a budget.
    pub(crate) fn request(&self, budget: Bytes) -> Request {
        self.search.request(budget)
    }

    /// Seed of everything random.
    pub(crate) fn seed(&self) -> u64 {
        self.search.seed
    }

    /// The same for a first impression: a tenth of the work.
    pub(crate) fn at_a_glance(&self) -> PlannerFlags {
        PlannerFlags { search: self.search.at_a_glance(), ..self.clone() }
    }

    /// The same with a tenth of the default work where neither work nor time was limited: for commands that plan often.
    pub(crate) fn at_a_glance_unless_told(&self) -> PlannerFlags {
        let is_limited = self.search.effort.is_some() || self.search.time_limit.is_some();
        if is_limited { self.clone() } else { self.at_a_glance() }
    }

    /// The same limits for another planner.
    pub(crate) fn with_planner(&self, planner: &str) -> PlannerFlags {
        PlannerFlags { planner: planner.to_owned(), ..self.clone() }
    }
}

/// The planner that is asked unless another is named.
pub(crate) fn default_planner() -> &'static str {
    const PREFERRED: &str = "best";
    if PLANNERS.iter().any(|planner| planner.name == PREFERRED) { PREFERRED } else { "mu-two" }
}

/// Accepts the names of the planners; help and completion come from the table.
pub(crate) fn planner_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(
        PLANNERS.iter().map(|planner| PossibleValue::new(planner.name).help(planner.summary)),
    )
}

fn parse_effort(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(effort) if effort > 0.0 && effort.is_finite() => Ok(effort),
        _ => Err("the effort must be a number above zero".to_owned()),
    }
}
