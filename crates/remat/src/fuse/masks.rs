//! The mask of a ReLU in front of dropout, read from the other side of the dropout.
//!
//! `d = dropout(r)`, `r = relu(x)`: backward asks where `r > 0` to pass on `g = dropout(dy)`. Where an element was
//! dropped, `g` is zero and the answer does not matter; where it was kept, `d` is `r` times a factor above zero. So
//! `relu_grad(d, g)` has the bits of `relu_grad(r, g)`, and since `d` is kept for the next layer's gradient anyway,
//! `r` need not be.

use super::draft::Draft;
use crate::op::dropout::Dropout;
use crate::op::relu::ReluGrad;

/// Lets `relu_grad` read the output of dropout instead of its input where both drop the same elements.
pub(super) fn drop_relu_outputs(draft: &mut Draft<'_>) {
    let uses = draft.uses();
    for at in 0..draft.nodes.len() {
        let node = &draft.nodes[at];
        let (true, &[relu, gradient]) = (node.op.is::<ReluGrad>(), &node.inputs[..]) else { continue };
        let maker = uses.maker[gradient].map(|maker| &draft.nodes[maker].op);
        let Some(dropped) = maker.and_then(|op| op.get::<Dropout>()) else { continue };
        // A probability of one drops everything and its factor is zero; then nothing is gained.
        let same = |reader: &&usize| {
            draft.nodes[**reader].op.get::<Dropout>().is_some_and(|d| d == dropped && d.p < 1.0)
        };
        let earlier = uses.readers[relu].iter().take_while(|&&reader| reader < at);
        let Some(&dropout) = earlier.clone().find(same) else { continue };
        let kept = draft.nodes[dropout].outputs[0];
        // The output of dropout must be alive here for another reason, or nothing is saved.
        if uses.readers[kept]
            .last()
            .is_some_and(|&last| last > dropout && draft.nodes[last].phase == node.phase)
        {
            draft.nodes[at].inputs[0] = kept;
        }
    }
}
