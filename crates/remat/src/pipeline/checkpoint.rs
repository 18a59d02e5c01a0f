//! Checkpointing by hand, for people who know which blocks they want.
//!
//! In: a prepared step and module paths. Out: the program in which everything made inside one of these modules is
//! dropped after forward and recomputed in backward from what enters the module, as `torch.utils.checkpoint` does around
//! a block: same bits, dropout included, and its peak is known before it runs. No budget decides; compare it with what
//! [`compile`](crate::pipeline::compile) finds for the same peak.
//!
//! ```
//! use remat::model::{Options, find};
//! use remat::pipeline::{Costs, checkpoint, prepare};
//! use remat::profile::Machine;
//!
//! let model = find("resnet18")?;
//! let forward = model.build(&Options::new().with("batch", 4).with("image", 64))?.into_graph();
//! let prepared = prepare(&forward, &model.optimizer, Costs::Analytic(Machine::nominal(1)), |_, _| {})?;
//! let program = checkpoint(&prepared, &["layer1", "layer2"])?;
//! assert!(program.peak() < prepared.keep_all.peak());
//! # Ok::<(), remat::Error>(())
//! ```

use super::{Prepared, Program, program};
use crate::error::{Error, Result};
use remat_plan::Bytes;

/// Checkpoints each of the named modules with everything below it.
pub fn checkpoint(prepared: &Prepared, modules: &[&str]) -> Result<Program> {
    let problem = &prepared.problem.problem;
    let plan = remat_plan::checkpoint(problem, modules)?;
    let faults = remat_plan::check(problem, &plan);
    if !faults.is_empty() {
        let faults = faults.iter().map(ToString::to_string).collect();
        return Err(Error::Bug { stage: "checkpoint", faults });
    }
    program(prepared, &plan, Bytes(0))
}
