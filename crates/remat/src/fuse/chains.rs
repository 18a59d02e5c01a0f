//! Element-wise nodes whose result only the next one reads become one node.
//!
//! The joined node takes the place of the reader. **Memory.** Between the two places the intermediate value is no
//! longer live, but inputs of the earlier node that would have died there now live on; a pair is joined only if those
//! are not larger than the value that vanishes, or if nothing runs between. So memory does not grow at any moment of
//! any order, and since keeping the vanished value was never better than keeping the result, which has the same size,
//! no plan is lost. While the joined node runs, it holds the inputs of both; a pair is joined only if that is no more
//! than the largest node of the step holds, so the floor of all plans does not rise. A value with a second reader, an output and a parameter's gradient stay values of their own.

use super::draft::{Draft, Uses};
use crate::graph::Node;
use crate::ids::ValueId;
use crate::op::Op;
use crate::op::fused::{Fused, FusedStep, MAX_INPUTS, Operand};

/// Joins all chains, first to last.
pub(super) fn join(draft: &mut Draft<'_>) {
    let mut gone = vec![false; draft.nodes.len()];
    let mut uses = draft.uses();
    let limit = draft.nodes.iter().map(|node| held_while_running(draft, node)).max().unwrap_or(0);
    for at in 0..draft.nodes.len() {
        // A joined node may take in the makers of its new inputs, too.
        while let Some((maker, joined)) = candidate(draft, &uses, &gone, at, limit) {
            gone[maker] = true;
            replace_reader(&mut uses, &draft.nodes[maker], maker, at);
            draft.nodes[at] = joined;
        }
    }
    let mut keep = gone.iter().map(|gone| !gone);
    draft.nodes.retain(|_| keep.next().expect("one flag for each node"));
}

/// The first maker of an input of node `at` that can be joined with it, and the joined node.
fn candidate(draft: &Draft<'_>, uses: &Uses, gone: &[bool], at: usize, limit: u64) -> Option<(usize, Node)> {
    let reader = &draft.nodes[at];
    program(reader)?;
    let joined = |&v: &ValueId| {
        let maker = uses.maker[v].filter(|&maker| maker < at)?;
        let node = &draft.nodes[maker];
        let is_private = uses.readers[v] == [at] && node.outputs.len() == 1 && !draft.is_fixed(v);
        let allowed = is_private
            && node.phase == reader.phase
            && lives_no_longer(draft, uses, gone, maker, at)
            && !replaced_between(draft, gone, maker, at);
        if !allowed {
            return None;
        }
        let joined = merge(draft, node, reader, v)?;
        (held_while_running(draft, &joined) <= limit).then_some((maker, joined))
    };
    reader.inputs.iter().find_map(joined)
}

/// Bytes of everything that a node reads, makes and uses while it runs, permanent storage not counted; an output that
/// may lie on an input is not counted twice.
fn held_while_running(draft: &Draft<'_>, node: &Node) -> u64 {
    if node.op.def().is_view() {
        return 0;
    }
    let bytes = |v: ValueId| draft.ty(v).buffer_bytes().0;
    let root = |i: usize| draft.storage.root[node.inputs[i]];
    let mut roots: Vec<ValueId> =
        (0..node.inputs.len()).map(root).filter(|&v| !draft.is_permanent(v)).collect();
    roots.sort_unstable();
    roots.dedup();
    let (inputs, outputs) = (draft.types(&node.inputs), draft.types(&node.outputs));
    let (mut from, mut onto): (Vec<ValueId>, Vec<usize>) = (Vec::new(), Vec::new());
    for (i, o) in node.op.def().reuse(&inputs) {
        let fits = roots.contains(&root(i)) && bytes(root(i)) == bytes(node.outputs[o]);
        if fits && !from.contains(&root(i)) && !onto.contains(&o) {
            from.push(root(i));
            onto.push(o);
        }
    }
    let consumed: Vec<usize> = node.op.def().consumes(&inputs).iter().map(|pair| pair.1).collect();
    let is_new = |o: &usize| !onto.contains(o) && !consumed.contains(o);
    let made: u64 = (0..node.outputs.len()).filter(is_new).map(|o| bytes(node.outputs[o])).sum();
    roots.into_iter().map(bytes).sum::<u64>() + made + node.op.def().workspace(&inputs, &outputs)
}

/// Whether moving node `from` down to `to` keeps no more bytes alive between the two than it saves.
fn lives_no_longer(draft: &Draft<'_>, uses: &Uses, gone: &[bool], from: usize, to: usize) -> bool {
    let runs = |at: usize| !gone[at] && !draft.nodes[at].op.def().is_view();
    if !(from + 1..to).any(runs) {
        return true;
    }
    let mut roots: Vec<ValueId> = draft.nodes[from].inputs.iter().map(|&v| draft.storage.root[v]).collect();
    roots.sort_unstable();
    roots.dedup();
    let dies_between = |root: &ValueId| last_reader(draft, uses, *root).is_none_or(|last| last < to);
    let longer: u64 =
        roots.iter().filter(|root| dies_between(root)).map(|&v| draft.ty(v).buffer_bytes().0).sum();
    longer <= draft.ty(draft.nodes[from].outputs[0]).buffer_bytes().0
}

/// The last node that reads a storage, through any view.
fn last_reader(draft: &Draft<'_>, uses: &Uses, root: ValueId) -> Option<usize> {
    if draft.is_permanent(root) {
        return Some(usize::MAX);
    }
    let direct = uses.readers[root].last().copied()?;
    let is_view = |&&at: &&usize| draft.nodes[at].op.def().is_view();
    let views = uses.readers[root].iter().filter(is_view);
    let through_views = views.filter_map(|&at| last_reader(draft, uses, draft.nodes[at].outputs[0]));
    Some(through_views.max().map_or(direct, |last| last.max(direct)))
}

/// Whether an update between the two places replaces state that node `from` reads.
fn replaced_between(draft: &Draft<'_>, gone: &[bool], from: usize, to: usize) -> bool {
    let reads = |v: ValueId| draft.nodes[from].inputs.iter().any(|&x| draft.storage.root[x] == v);
    draft.nodes[from + 1..to].iter().zip(&gone[from + 1..to]).filter(|(_, gone)| !**gone).any(|(node, _)| {
        let consumes = node.op.def().consumes(&draft.types(&node.inputs));
        consumes.iter().any(|&(i, _)| reads(draft.storage.root[node.inputs[i]]))
    })
}

/// A node as a program, if it works element by element.
fn program(node: &Node) -> Option<Fused> {
    if let Some(fused) = node.op.get::<Fused>() {
        return Some(fused.clone());
    }
    node.op.def().element_wise()?;
    let x = (0..node.inputs.len()).map(Operand::Input).collect();
    Some(Fused { steps: vec![FusedStep { op: node.op.clone(), x }] })
}

/// `maker` and `reader` as one node, if the type rule of fused nodes accepts it. `value` is what passes between them.
fn merge(draft: &Draft<'_>, maker: &Node, reader: &Node, value: ValueId) -> Option<Node> {
    let (first, second) = (program(maker)?, program(reader)?);
    let mut inputs: Vec<ValueId> = Vec::new();
    let mut input = |v: ValueId| match inputs.iter().position(|&known| known == v) {
        Some(known) => Operand::Input(known),
        None => {
            inputs.push(v);
            Operand::Input(inputs.len() - 1)
        }
    };
    let made = first.steps.len() - 1;
    let mut steps = Vec::new();
    for step in first.steps {
        let operand = |&x: &Operand| match x {
            Operand::Input(i) => input(maker.inputs[i]),
            Operand::Step(_) => x,
        };
        let x = step.x.iter().map(operand).collect();
        steps.push(FusedStep { x, ..step });
    }
    for step in second.steps {
        let operand = |&x: &Operand| match x {
            Operand::Input(i) if reader.inputs[i] == value => Operand::Step(made),
            Operand::Input(i) => input(reader.inputs[i]),
            Operand::Step(s) => Operand::Step(s + made + 1),
        };
        let x = step.x.iter().map(operand).collect();
        steps.push(FusedStep { x, ..step });
    }
    let op: Op = Fused { steps }.into();
    let fits = inputs.len() <= MAX_INPUTS && op.def().infer(&draft.types(&inputs)).is_ok();
    fits.then(|| Node { op, inputs, ..reader.clone() })
}

/// The inputs of a node that was joined with a later one are now read there.
fn replace_reader(uses: &mut Uses, node: &Node, from: usize, to: usize) {
    for &v in &node.inputs {
        let readers = &mut uses.readers[v];
        readers.retain(|&reader| reader != from && reader != to);
        let place = readers.partition_point(|&reader| reader < to);
        readers.insert(place, to);
    }
    for &v in &node.outputs {
        uses.maker[v] = None;
    }
}
