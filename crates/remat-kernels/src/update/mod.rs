//! What follows backward: sums and norms of gradients, and the optimizers.

pub mod gradient;
pub mod optimizer;
