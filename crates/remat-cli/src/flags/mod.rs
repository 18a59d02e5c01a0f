//! Groups of flags that several commands share: what was typed, with methods that say what it means.

mod duration;
mod model_options;
mod planner;
mod step;

pub(crate) use duration::parse_duration;
pub(crate) use model_options::{ModelOptions, model_parser};
pub(crate) use planner::{PlannerFlags, SearchFlags, default_planner, planner_parser};
pub(crate) use step::{CostKind, Model, StepFlags};
