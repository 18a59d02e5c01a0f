//! What a step costs: seconds per node, by calculation or by measurement, and the planning problem made from them.

mod analytic;
mod machine;
mod measured;
mod problem;

pub use analytic::analytic;
pub use machine::Machine;
pub use measured::{Measured, Sample, measure};
pub use problem::{PlanningProblem, problem, shareable};
