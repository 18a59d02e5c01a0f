//! Batch norm as two nodes: statistics, and an element-wise rest; and its gradient joined with the gradient of a ReLU.
//!
//! The rest can be joined with what follows (`chains.rs`), and a recompute of the normalised values starts from the
//! kept statistics instead of making them again. No value is added and none lives longer: the statistics are outputs
//! of the norm already, and backward reads them.

use super::draft::{Draft, Uses};
use crate::graph::Node;
use crate::op::Op;
use crate::op::batch_norm::{BatchNorm, BatchNormGrad};
use crate::op::batch_norm_split::{BatchNormApply, BatchNormReluGrad, BatchStats};
use crate::op::relu::{Relu, ReluGrad};

/// Puts `batch_stats` and `batch_norm_apply` in the place of every `batch_norm`.
pub(super) fn split(draft: &mut Draft<'_>) {
    let mut nodes = Vec::with_capacity(draft.nodes.len());
    for node in std::mem::take(&mut draft.nodes) {
        let (Some(norm), &[x, weight, bias], &[y, mean, var]) =
            (node.op.get::<BatchNorm>(), &node.inputs[..], &node.outputs[..])
        else {
            nodes.push(node);
            continue;
        };
        let apply = BatchNormApply { eps: norm.eps }.into();
        let stats =
            Node { op: BatchStats {}.into(), inputs: vec![x], outputs: vec![mean, var], ..node.clone() };
        nodes.push(stats);
        nodes.push(Node { op: apply, inputs: vec![x, mean, var, weight, bias], outputs: vec![y], ..node });
    }
    draft.nodes = nodes;
}

/// Puts one `batch_norm_relu_grad` in the place of a `relu_grad` whose result only a `batch_norm_grad` reads, where
/// the ReLU directly follows that norm.
///
/// The gradient of the ReLU's output lives on until the joined node, as long as the value that vanishes did; the
/// ReLU's output is read once less. The bias is read there, too; its update follows, since it needs the node's
/// result.
pub(super) fn join_relu_gradients(draft: &mut Draft<'_>) {
    let uses = draft.uses();
    let joined: Vec<(usize, usize, Node)> =
        (0..draft.nodes.len()).filter_map(|at| relu_in_front(draft, &uses, at)).collect();
    let mut gone = vec![false; draft.nodes.len()];
    for (relu_grad, at, node) in joined {
        gone[relu_grad] = true;
        draft.nodes[at] = node;
    }
    let mut keep = gone.iter().map(|gone| !gone);
    draft.nodes.retain(|_| keep.next().expect("one flag for each node"));
}

/// If node `at` is the gradient of a norm that a ReLU follows: the node of the ReLU's gradient, `at`, and the
/// node that replaces both.
fn relu_in_front(draft: &Draft<'_>, uses: &Uses, at: usize) -> Option<(usize, usize, Node)> {
    let node = &draft.nodes[at];
    let (Some(grad), &[x, dy, weight, mean, var]) = (node.op.get::<BatchNormGrad>(), &node.inputs[..]) else {
        return None;
    };
    let maker = uses.maker[dy].filter(|_| uses.readers[dy] == [at] && !draft.is_fixed(dy))?;
    let (true, &[z, dz]) = (draft.nodes[maker].op.is::<ReluGrad>(), &draft.nodes[maker].inputs[..]) else {
        return None;
    };
    let relu = &draft.nodes[uses.maker[z]?];
    let (true, &[y]) = (relu.op.is::<Relu>(), &relu.inputs[..]) else { return None };
    let apply = &draft.nodes[uses.maker[y]?];
    let (apply_op, &bias) = (apply.op.get::<BatchNormApply>()?, apply.inputs.get(4)?);
    if apply.inputs[..4] != [x, mean, var, weight] || apply_op.eps != grad.eps {
        return None;
    }
    let op: Op = BatchNormReluGrad { eps: grad.eps }.into();
    let inputs = vec![x, dz, weight, bias, mean, var];
    let fits = op.def().infer(&draft.types(&inputs)).is_ok();
    fits.then(|| (maker, at, Node { op, inputs, ..node.clone() }))
}
