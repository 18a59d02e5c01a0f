//! The loss of a classifier and its gradients in one node, so that the logits are computed once.
//!
//! `linear_cross_entropy` is the end of the forward and its gradient the beginning of the backward; each computes all
//! logits, since nothing keeps them. Where nothing but constants is between the two, one node does both: the
//! gradients exist as early as before, the `lse` of each row no longer has to wait, and a third of the gradient's
//! products is saved.

use super::draft::Draft;
use crate::op::constant::Constant;
use crate::op::linear_cross_entropy::{
    LinearCrossEntropy, LinearCrossEntropyGrad, LinearCrossEntropyWithGrad,
};

/// Puts one `linear_cross_entropy_with_grad` in the place of every such pair, behind the constants.
pub(super) fn join_gradients(draft: &mut Draft<'_>) {
    let mut at = 0;
    while at < draft.nodes.len() {
        if draft.nodes[at].op.is::<LinearCrossEntropy>() {
            join_at(draft, at);
        }
        at += 1;
    }
}

fn join_at(draft: &mut Draft<'_>, at: usize) {
    let following = &draft.nodes[at + 1..];
    let n_constants = following.iter().take_while(|node| node.op.is::<Constant>()).count();
    let Some(grad) = following.get(n_constants) else { return };
    let forward = &draft.nodes[at];
    let n = forward.inputs.len();
    let is_pair = grad.op.is::<LinearCrossEntropyGrad>()
        && grad.inputs[..n] == forward.inputs[..]
        && grad.inputs[n] == forward.outputs[1];
    if !is_pair {
        return;
    }
    let mut joined = grad.clone();
    joined.op = LinearCrossEntropyWithGrad {}.into();
    joined.inputs.remove(n);
    joined.outputs.splice(0..0, forward.outputs.iter().copied());
    draft.nodes[at + 1 + n_constants] = joined;
    draft.nodes.remove(at);
}
