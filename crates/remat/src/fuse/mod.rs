//! Fusion: fewer passes over memory, with the same bits.
//!
//! In: a training step. Out: the same step with fewer nodes, each of which does more while its data is near. Four
//! rewrites, in this order:
//!
//! 1. `loss`: a classifier's loss and its gradients share the logits.
//! 2. `masks`: a ReLU in front of dropout is differentiated from what dropout kept, so its own output can go.
//! 3. `batch_norm`: batch norm becomes statistics and an element-wise rest; the gradient of a ReLU behind it finds
//!    its mask in the input of the norm.
//! 4. `chains`: element-wise nodes whose result only the next one reads become one
//!    [`Fused`](crate::op::fused::Fused) node.
//!
//! It stands after autodiff, so backward chains are covered and no gradient of a fused node is needed. What it must
//! not do: make a value live longer at the cost of memory, or take a value away from another reader. Each rewrite
//! states why it does not. Time O(nodes + edges), plus for each join the nodes between its two places, which are few.

mod batch_norm;
mod chains;
mod check;
mod draft;
mod fault;
mod loss;
mod masks;

pub use check::check;
pub use fault::{Asked, FusionFault};

use crate::step::TrainingStep;
use draft::Draft;

/// Fuses what can be fused in a verified training step. [`check`](fn@check) shows that the result computes the same.
pub fn fuse(step: &TrainingStep) -> TrainingStep {
    let mut draft = Draft::of(step);
    loss::join_gradients(&mut draft);
    masks::drop_relu_outputs(&mut draft);
    batch_norm::split(&mut draft);
    batch_norm::join_relu_gradients(&mut draft);
    chains::join(&mut draft);
    draft.finish()
}
