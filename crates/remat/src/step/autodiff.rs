//! Reverse-mode differentiation of a graph, and the optimizer's updates as nodes of the same graph.
//!
//! In: a forward graph whose only output is a scalar loss. Out: a new graph with the backward nodes and one update
//! node per parameter. The walk knows no particular op: each op adds its own backward nodes, and gradients that meet
//! are added. O(nodes + edges).
//!
//! **Order.** Backward nodes follow in reverse order of their forward nodes. An update comes as early as it can:
//! after its gradient and after the last reader of the old parameter, so a gradient dies as soon as it is used
//! instead of living to the end of the step.

use super::{Optimizer, Roles, TrainingStep, updates};
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Kind, Phase};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::op::GradArgs;
use crate::op::add::Add;
use crate::op::constant::Constant;

/// Differentiates `forward` and appends the updates of `optimizer`.
pub fn training_step(forward: &Graph, optimizer: &Optimizer) -> Result<TrainingStep> {
    let step = updates::append(differentiate(forward)?, optimizer)?;
    let order = updates_as_early_as_possible(&step.graph);
    let nodes = order.into_iter().map(|id| step.graph.nodes[id].clone()).collect();
    let (graph, renamed) = step.graph.with_nodes(nodes);
    let new = |v: ValueId| renamed[v].expect("every node is in the new order");
    Ok(TrainingStep { roles: step.roles.renamed(new), graph })
}

/// Appends the backward nodes of the graph's only output. The result is a training step without updates.
pub fn differentiate(forward: &Graph) -> Result<TrainingStep> {
    let loss = match forward.outputs[..] {
        [loss] if forward.values[loss].ty.numel() == 1 => loss,
        _ => {
            let message = "a graph to differentiate has one output, a scalar loss".to_owned();
            return Err(Error::Type { op: "loss", scope: forward.name.clone(), message });
        }
    };
    let needs = needs_gradient(forward);
    let mut b = Builder::extend(forward.clone(), Phase::Backward);
    let mut gradient = IdVec::<ValueId, Option<ValueId>>::filled(forward.values.len(), None);
    let one = Constant { value: 1.0, shape: forward.values[loss].ty.shape().to_vec() };
    gradient[loss] = Some(b.at_scope("loss", |b| b.add(one, &[]))?);

    for node in forward.nodes.ids().rev().map(|id| &forward.nodes[id]) {
        let dy: Vec<Option<ValueId>> = node.outputs.iter().map(|&v| gradient[v]).collect();
        let wants: Vec<bool> = node.inputs.iter().map(|&v| needs[v]).collect();
        if dy.iter().all(Option::is_none) || !wants.contains(&true) {
            continue;
        }
        if node.op.def().differentiable_outputs().is_none() {
            return Err(Error::NoGradient { op: node.op.name(), scope: node.scope.clone() });
        }
        let args = GradArgs { x: &node.inputs, y: &node.outputs, dy: &dy, wants: &wants };
        b.at_scope(&node.scope, |b| -> Result<()> {
            let dx = node.op.def().grad(b, &args)?;
            for ((&x, dx), &wanted) in node.inputs.iter().zip(dx).zip(&wants) {
                let Some(dx) = dx.filter(|_| wanted) else { continue };
                gradient[x] = Some(match gradient[x] {
                    None => dx,
                    Some(other) => b.add(Add {}, &[other, dx])?,
                });
            }
            Ok(())
        })?;
    }
    let is_trained = |v: &ValueId| forward.values[*v].kind == Kind::Parameter;
    let parameters = forward.sources.iter().map(|s| s.value).filter(is_trained);
    let gradients = parameters.filter_map(|p| gradient[p].map(|g| (p, g))).collect();
    Ok(TrainingStep { graph: b.finish(), roles: Roles { gradients, ..Roles::of_loss(loss) } })
}

/// Which values the loss's gradient must pass through to reach a parameter.
fn needs_gradient(graph: &Graph) -> IdVec<ValueId, bool> {
    let mut needs: IdVec<ValueId, bool> = graph.values.iter().map(|v| v.kind == Kind::Parameter).collect();
    for node in graph.nodes.iter() {
        let any = node.inputs.iter().any(|&v| needs[v]);
        // Statistics and indices are constants: a gradient never flows into them.
        for &position in node.op.def().differentiable_outputs().unwrap_or(&[]) {
            needs[node.outputs[position]] = any;
        }
        if node.op.def().differentiable_outputs().is_none()
            && node.op.def().consumes(&graph.input_types(node)).is_empty()
        {
            for &v in &node.outputs {
                needs[v] = any;
            }
        }
    }
    needs
}

/// The order in which every optimizer node comes just after its last dependency.
fn updates_as_early_as_possible(graph: &Graph) -> Vec<NodeId> {
    let mut last_reader: IdVec<ValueId, Option<NodeId>> = IdVec::filled(graph.values.len(), None);
    let (others, updates): (Vec<NodeId>, Vec<NodeId>) =
        graph.nodes.ids().partition(|&n| graph.nodes[n].phase != Phase::Optimizer);
    for &n in &others {
        for &v in graph.nodes[n].inputs.iter().chain(&graph.nodes[n].outputs) {
            last_reader[v] = Some(n);
        }
    }
    // An update is ready once its gradient is made and every reader of the old state has run. What an update reads
    // may itself be made by an optimizer node, which then comes earlier or at the same place.
    let mut place: IdVec<NodeId, Option<NodeId>> = graph.nodes.ids().map(Some).collect();
    let mut ready: IdVec<NodeId, Vec<NodeId>> = IdVec::filled(graph.nodes.len(), Vec::new());
    for update in updates {
        let made = |v: ValueId| graph.values[v].producer.and_then(|(node, _)| place[node]);
        let after = graph.nodes[update].inputs.iter().filter_map(|&v| last_reader[v].max(made(v))).max();
        let after = after.expect("an update reads a gradient, which a backward node makes");
        place[update] = Some(after);
        ready[after].push(update);
    }
    others.iter().flat_map(|&n| std::iter::once(n).chain(ready[n].iter().copied())).collect()
}
