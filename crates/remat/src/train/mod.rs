//! Training: optimizers, batches, the session that runs steps, and the comparison of two sessions.

mod compare;
mod data;
mod optimizer;
mod session;

pub use compare::{Comparison, Side, compare};
pub use data::{Batches, Synthetic, check_indices};
pub use optimizer::{Optimizer, Rule};
pub use session::{Session, StepResult};
