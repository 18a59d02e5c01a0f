//! What `remat train` is made of: data, the loop, and how a run ends.

mod data;
mod divergence;
mod events;
mod flags;
mod report;
mod run;
mod signals;

pub(crate) use data::{Data, DataFlags, batch_size};
pub(crate) use divergence::Divergence;
pub(crate) use events::Events;
pub(crate) use flags::{EvaluationFlags, OptimizationFlags, RecordFlags};
pub(crate) use report::{Training, line, row, scalars};
pub(crate) use run::{HeldOut, Run};
pub(crate) use signals::Signals;
