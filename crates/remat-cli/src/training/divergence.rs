//! Numbers that are no longer finite: training cannot recover from them.

use super::Training;
use crate::format::number;
use crate::loss_log::Row;
use std::fmt;

/// What was found not to be finite, and after which step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Divergence {
    /// The loss of a step.
    Loss(u64, f32),
    /// The norm of a step's gradients.
    Gradients(u64),
    /// Parameters, statistics or optimizer state after a step.
    State(u64),
}

impl Divergence {
    /// What a step shows.
    pub(crate) fn of(row: &Row) -> Option<Divergence> {
        if !row.loss.is_finite() {
            return Some(Divergence::Loss(row.step, row.loss));
        }
        row.grad_norm.filter(|norm| !norm.is_finite()).map(|_| Divergence::Gradients(row.step))
    }

    /// What to tell the user when it ends the run.
    pub(crate) fn message(self, report: &Training) -> String {
        let rate = number(report.learning_rate);
        let mut message =
            format!("{self}; try a smaller --lr (it is {rate}) or --clip-norm; --on-nan continue trains on");
        if let Some(path) = &report.checkpoint {
            message += &format!("; the last finite checkpoint is {}", path.display());
        }
        message
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Divergence::Loss(step, loss) => write!(f, "the loss of step {step} is {loss}"),
            Divergence::Gradients(step) => write!(f, "the gradients of step {step} are not finite"),
            Divergence::State(step) => write!(f, "the state after step {step} is not finite"),
        }
    }
}
