//! What a step and its plan look like, as plain data: rows for tables and CSV files, the timeline for charts, traces
//! for other people's viewers.
//!
//! Nothing here decides or measures anything; every function reads earlier stages' data. Files, plots and pages are
//! made of these rows by the command line.

mod activations;
mod copies;
mod decisions;
mod documents;
mod export;
mod modules;
mod nodes;
mod page;
pub mod palette;
mod timeline;

pub use activations::{ActivationRow, activations};
pub use copies::{CopyRow, copies};
pub use decisions::{Decision, DecisionRow, decisions};
pub use documents::{Decisions, Timelines, documents};
pub use export::{chrome_trace, memory_snapshot};
pub use modules::{ModuleRow, modules};
pub use nodes::{NodeRow, nodes};
pub use page::{Document, page};
pub use timeline::{Life, Timeline, TimelineRun, TimelineWait};
