//! Facts derived from a graph: which storage a value lies in, when it is live, and how memory grows and falls.

mod liveness;
mod memory;
mod storage;

pub use liveness::Liveness;
pub use memory::{MemoryCurve, MemoryPoint};
pub use storage::Storage;
