//! What a step costs: seconds per node, by calculation or by measurement, and the planning problem made from them.

mod accuracy;
mod analytic;
mod cache;
mod calibrate;
mod machine;
mod measured;
mod problem;

pub use accuracy::{Accuracy, OpAccuracy, accuracy};
pub use analytic::analytic;
pub use cache::Origin;
pub use machine::{Machine, Speed};
pub use measured::{Measured, Sample, measure};
pub use problem::{PlanningProblem, problem, shareable};
