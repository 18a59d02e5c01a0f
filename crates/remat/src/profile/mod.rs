//! What a step costs: seconds per node, by calculation or by measurement.

mod analytic;
mod cache;
mod calibrate;
mod disturbance;
mod machine;
mod measured;
mod plausible;
mod store;

pub use analytic::analytic;
pub use cache::Origin;
pub use machine::{Machine, Speed};
pub use measured::{Measured, Sample, measure};
pub use store::{StoreSpeed, Way};
