//! Pooling of images `[N, H, W, C]` over windows, and over the whole image.
//!
//! Channels are the innermost dimension, so a window position is a vector operation over channels. Forward writes each
//! output row in one task, backward gathers for each input row in one task: nothing is added across tasks, and there is
//! no workspace. Time O(outputs · window).

mod average;
mod global;
mod max;

pub use crate::settings::pool::{MAX_WINDOW, PoolError, PoolShape};
pub use average::{avg_pool, avg_pool_grad};
pub use global::{global_avg_pool, global_avg_pool_grad};
pub use max::{max_pool, max_pool_grad};

#[cfg(test)]
mod tests;
