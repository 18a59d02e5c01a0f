//! Fused steps with one thing wrong.

use super::attributes::{other_attributes, other_programs, other_stream};
use super::{Artefact, Kind, Mutant, Specimen, mutant, pairs, position};
use crate::fuse::check;
use crate::graph::Graph;
use crate::ids::{Id, NodeId, ValueId};
use crate::op::Op;
use crate::op::fused::Fused;
use crate::step::TrainingStep;
use crate::testing::{Choices, Oracle};

/// All kinds of wrong fused steps.
pub const FUSIONS: &[Kind<TrainingStep>] = &[
    Kind { name: "another attribute", make: |of, c| another_op(of, c, other_attributes) },
    Kind {
        name: "another stream",
        make: |of, c| another_op(of, c, |op| other_stream(op).into_iter().collect()),
    },
    Kind { name: "another program", make: |of, c| another_op(of, c, programs) },
    Kind { name: "another input", make: |of, c| change(of, c, another_input) },
    Kind { name: "swapped inputs", make: |of, c| change(of, c, swapped_inputs) },
    Kind { name: "dropped node", make: |of, c| change(of, c, dropped_node) },
    Kind { name: "swapped nodes", make: |of, c| change(of, c, swapped_nodes) },
    Kind { name: "swapped gradients", make: |of, c| change(of, c, swapped_gradients) },
    Kind { name: "dropped gradient", make: |of, c| change(of, c, |s, _| s.roles.gradients.pop()) },
    Kind { name: "another gradient", make: |of, c| change(of, c, another_gradient) },
    Kind { name: "another loss", make: |of, c| change(of, c, another_loss) },
    Kind { name: "dropped result", make: |of, c| change(of, c, |s, _| s.graph.outputs.pop()) },
    Kind { name: "another optimizer", make: |of, c| change(of, c, another_optimizer) },
    Kind { name: "another source", make: |of, c| change(of, c, another_source) },
];

impl Artefact for TrainingStep {
    const NAME: &'static str = "fusion";
    const KINDS: &'static [Kind<TrainingStep>] = FUSIONS;

    /// As in the pipeline: first the graph verifier, then the checker of fusion.
    fn is_caught(&self, of: &Specimen) -> bool {
        !self.graph.verify().is_empty() || !check(&of.before, self).is_empty()
    }

    fn is_right(&self, of: &Specimen) -> bool {
        let oracles = [&of.before, self].map(|step| Oracle::of(step, 2, 1));
        matches!(oracles, [Ok(before), Ok(after)] if before.difference(&after).is_none())
    }
}

fn change<T: std::fmt::Debug>(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut TrainingStep, &mut Choices) -> Option<T>,
) -> Option<Mutant<TrainingStep>> {
    let mut step = of.prepared.step.clone();
    let changed = edit(&mut step, choices)?;
    if step == of.prepared.step {
        return None;
    }
    mutant(format!("{changed:?}"), step)
}

fn another_op(
    of: &Specimen,
    choices: &mut Choices,
    others: fn(&Op) -> Vec<Op>,
) -> Option<Mutant<TrainingStep>> {
    let mut step = of.prepared.step.clone();
    let nodes: Vec<NodeId> = step.graph.nodes.ids().collect();
    let id = nodes[position(&nodes, choices, |_, &n| !others(&step.graph.nodes[n].op).is_empty())?];
    let list = others(&step.graph.nodes[id].op);
    step.graph.nodes[id].op = list[choices.below(list.len())].clone();
    mutant(step.graph.node_text(&step.graph.nodes[id]), step)
}

fn programs(op: &Op) -> Vec<Op> {
    op.get::<Fused>().into_iter().flat_map(other_programs).map(Op::from).collect()
}

/// Another value of the same type that is made before.
fn another_input(step: &mut TrainingStep, choices: &mut Choices) -> Option<(NodeId, ValueId)> {
    let graph = &mut step.graph;
    let nodes: Vec<NodeId> = graph.nodes.ids().collect();
    let id = nodes[position(&nodes, choices, |_, &n| !graph.nodes[n].inputs.is_empty())?];
    let at = choices.below(graph.nodes[id].inputs.len());
    let input = graph.nodes[id].inputs[at];
    let before: Vec<ValueId> = (0..graph.nodes[id].outputs[0].index()).map(ValueId::new).collect();
    let is_alike = |&v: &ValueId| v != input && graph.values[v].ty == graph.values[input].ty;
    let other = before[position(&before, choices, |_, v| is_alike(v))?];
    graph.nodes[id].inputs[at] = other;
    Some((id, other))
}

fn swapped_inputs(step: &mut TrainingStep, choices: &mut Choices) -> Option<NodeId> {
    let nodes: Vec<NodeId> = step.graph.nodes.ids().collect();
    let id = nodes[position(&nodes, choices, |_, &n| step.graph.nodes[n].inputs.len() > 1)?];
    step.graph.nodes[id].inputs.rotate_left(1);
    Some(id)
}

/// The graph with other nodes, if everything that they read is there.
fn with_nodes(step: &mut TrainingStep, keep: &[NodeId]) -> Option<()> {
    let graph = &step.graph;
    let is_source = |v: ValueId| graph.values[v].producer.is_none();
    let makes = |v: ValueId, before: &[NodeId]| before.iter().any(|&n| graph.nodes[n].outputs.contains(&v));
    for (at, &id) in keep.iter().enumerate() {
        if !graph.nodes[id].inputs.iter().all(|&v| is_source(v) || makes(v, &keep[..at])) {
            return None;
        }
    }
    let roles = &step.roles;
    let asked = graph.outputs.iter().chain([&roles.loss]).chain(roles.gradients.iter().map(|pair| &pair.1));
    if !asked.copied().all(|v| makes(v, keep)) {
        return None;
    }
    let (new, renamed) = graph.with_nodes(keep.iter().map(|&id| graph.nodes[id].clone()).collect());
    let roles = roles.renamed(|v| renamed[v].expect("what has a role was found above"));
    *step = TrainingStep { graph: new, roles };
    Some(())
}

/// A node that nothing in the graph reads: an update, or a dead end.
fn dropped_node(step: &mut TrainingStep, choices: &mut Choices) -> Option<NodeId> {
    let graph: &Graph = &step.graph;
    let is_read = |v: &ValueId| graph.nodes.iter().any(|node| node.inputs.contains(v));
    let mut nodes: Vec<NodeId> = graph.nodes.ids().collect();
    let at = position(&nodes, choices, |_, &n| !graph.nodes[n].outputs.iter().any(is_read))?;
    let dropped = nodes.remove(at);
    with_nodes(step, &nodes).map(|()| dropped)
}

fn swapped_nodes(step: &mut TrainingStep, choices: &mut Choices) -> Option<usize> {
    let mut nodes: Vec<NodeId> = step.graph.nodes.ids().collect();
    let at = choices.below(pairs(nodes.len())?);
    nodes.swap(at, at + 1);
    with_nodes(step, &nodes).map(|()| at)
}

fn swapped_gradients(step: &mut TrainingStep, choices: &mut Choices) -> Option<usize> {
    let gradients = &mut step.roles.gradients;
    let at = choices.below(pairs(gradients.len())?);
    let moved = gradients[at].1;
    gradients[at].1 = gradients[at + 1].1;
    gradients[at + 1].1 = moved;
    Some(at)
}

fn another_gradient(step: &mut TrainingStep, choices: &mut Choices) -> Option<ValueId> {
    let at = position(&step.roles.gradients, choices, |_, _| true)?;
    let values: Vec<ValueId> = step.graph.values.ids().collect();
    step.roles.gradients[at].1 = values[choices.below(values.len())];
    Some(step.roles.gradients[at].1)
}

fn another_loss(step: &mut TrainingStep, choices: &mut Choices) -> Option<ValueId> {
    let values: Vec<ValueId> = step.graph.values.ids().collect();
    let is_scalar = |v: ValueId| step.graph.values[v].ty.numel() == 1;
    step.roles.loss = values[position(&values, choices, |_, &v| is_scalar(v) && v != step.roles.loss)?];
    Some(step.roles.loss)
}

fn another_optimizer(step: &mut TrainingStep, choices: &mut Choices) -> Option<()> {
    let optimizer = step.roles.optimizer.as_mut()?;
    match choices.below(3) {
        0 => optimizer.learning_rate *= 2.0,
        1 => optimizer.micro_batches += 1,
        _ => optimizer.clip_norm = optimizer.clip_norm.map_or(Some(1.0), |_| None),
    }
    Some(())
}

fn another_source(step: &mut TrainingStep, choices: &mut Choices) -> Option<usize> {
    let sources = &mut step.graph.sources;
    let at = position(sources, choices, |_, _| true)?;
    match choices.below(3) {
        0 => sources[at].name.push('\''),
        1 => sources[at].init = crate::graph::Init::Constant(0.375),
        _ => {
            let other = (at + 1) % sources.len();
            let moved = sources[at].name.clone();
            sources[at].name = sources[other].name.clone();
            sources[other].name = moved;
        }
    }
    Some(at)
}
