//! What `remat train` is made of: data, logs, and how a run ends.
//!
//! The order of events in a step is what makes a crash harmless: a row of the log is written before the checkpoint of the
//! same step, and flushed to the disk first; a run that goes on cuts the log back to the step of its checkpoint.

mod data;
mod events;
mod flags;
mod log;
mod report;
mod signals;

pub(crate) use data::{Data, DataFlags, batch_size};
pub(crate) use events::Events;
pub(crate) use flags::{EvaluationFlags, OptimizationFlags, RecordFlags};
pub(crate) use log::{LossLog, Row};
pub(crate) use report::{Training, line, row, scalars};
pub(crate) use signals::Signals;

/// The exit code of a run that a signal stopped, as shells report an interrupt.
pub(crate) const STOPPED: u8 = 130;
