//! The forward pass without training: what evaluation and inference run.
//!
//! In: a forward graph. Out: a graph of its own with the same parameters, in which every node is what its op says it is
//! in evaluation: nothing is dropped, and norms use the running statistics instead of those of the batch. The walk knows no
//! particular op.

use super::Roles;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, InEvaluation, Kind, Node, Source};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::op::accuracy::Accuracy;
use std::collections::HashMap;

/// A forward pass as it runs without training, with what its values are for.
#[derive(Clone, PartialEq, Debug)]
pub struct ForwardPass {
    /// The nodes.
    pub graph: Graph,
    /// What its values are for.
    pub roles: Roles,
}

/// The forward graph as evaluation runs it. State of `training` that the model does not have (that of the optimizer)
/// becomes a source that no node reads, so that the layout knows it is there.
pub fn evaluation_pass(forward: &Graph, training: &Graph) -> Result<ForwardPass> {
    let is_foreign = |source: &&Source| {
        training.values[source.value].kind.is_state()
            && !forward.sources.iter().any(|s| s.name == source.name)
    };
    let beside = training.sources.iter().filter(is_foreign).map(|source| (training, source));
    let mut walk = Walk::new(forward, beside, "evaluation");
    let compares = compares(forward);
    let mut accuracy = None;
    for (id, node) in forward.nodes.enumerate() {
        let inputs = walk.add(node)?;
        if compares == Some(id) {
            accuracy = walk.add_accuracy(node, &inputs)?;
        }
    }
    let loss = walk.new_id(forward.outputs[0])?;
    walk.b.output(loss);
    accuracy.into_iter().for_each(|value| walk.b.output(value));
    walk.finish(Roles { accuracy, ..Roles::of_loss(loss) })
}

/// The forward graph up to what it predicts: `wanted`, where the model says so, else what the node that compares
/// predictions with the truth is given. Labels are not read.
pub fn prediction_pass(forward: &Graph, wanted: Option<ValueId>) -> Result<ForwardPass> {
    let mut walk = Walk::new(forward, std::iter::empty(), "prediction");
    let compares = compares(forward);
    for (id, node) in forward.nodes.enumerate() {
        let prediction = match wanted {
            Some(wanted) => walk.renamed[wanted],
            None if compares == Some(id) => Some(walk.add_prediction(node)?),
            None => None,
        };
        if let Some(prediction) = prediction {
            return walk.finish_at(prediction);
        }
        walk.add(node)?;
    }
    match wanted.and_then(|wanted| walk.renamed[wanted]) {
        Some(prediction) => walk.finish_at(prediction),
        None => {
            let message = "no op of the model says what it compares with the truth (`OpDef::prediction`); name the \
                           prediction with `Loss::predicting`";
            Err(Error::Type { op: "loss", scope: forward.name.clone(), message: message.to_owned() })
        }
    }
}

/// The node that compares predictions with the truth: the first where a model has several.
fn compares(forward: &Graph) -> Option<NodeId> {
    let predicts = |node: &Node| node.op.def().prediction(node.inputs.len()).is_some();
    forward.nodes.enumerate().find(|(_, node)| predicts(node)).map(|(id, _)| id)
}

struct Walk<'a> {
    forward: &'a Graph,
    b: Builder,
    renamed: IdVec<ValueId, Option<ValueId>>,
    /// The running statistic that belongs to each statistic of a batch.
    running: HashMap<ValueId, ValueId>,
}

impl<'a> Walk<'a> {
    fn new(
        forward: &'a Graph,
        beside: impl Iterator<Item = (&'a Graph, &'a Source)>,
        what: &str,
    ) -> Walk<'a> {
        let mut b = Builder::new(format!("{what} of {}", forward.name));
        let mut renamed = IdVec::<ValueId, Option<ValueId>>::filled(forward.values.len(), None);
        let mut copy = |graph: &Graph, source: &Source| {
            let value = &graph.values[source.value];
            b.source(&source.name, value.kind, value.ty.clone(), source.init, source.file_layout)
        };
        for source in &forward.sources {
            renamed[source.value] = Some(copy(forward, source));
        }
        beside.for_each(|(graph, source)| {
            copy(graph, source);
        });
        let mut running = HashMap::new();
        for node in forward.nodes.iter() {
            if let Some((state, statistic)) = node.op.def().running_statistic() {
                running.insert(node.inputs[statistic], node.inputs[state]);
            }
        }
        Walk { forward, b, renamed, running }
    }

    fn new_id(&self, value: ValueId) -> Result<ValueId> {
        self.renamed[value].ok_or_else(|| {
            let fault = format!("evaluation has no {}", self.forward.value_name(value));
            Error::Bug { stage: "evaluation", faults: vec![fault] }
        })
    }

    /// Adds what evaluation runs in place of a node and returns the node's own inputs.
    fn add(&mut self, node: &Node) -> Result<Vec<ValueId>> {
        let in_evaluation = node.op.def().in_evaluation();
        if in_evaluation == InEvaluation::Skip {
            return Ok(Vec::new());
        }
        let own: Vec<ValueId> = node.inputs.iter().map(|&v| self.new_id(v)).collect::<Result<_>>()?;
        let mut inputs = own.clone();
        let op = match in_evaluation {
            InEvaluation::PassThrough => {
                self.renamed[node.outputs[0]] = Some(inputs[0]);
                return Ok(own);
            }
            InEvaluation::Instead { op, statistics } => {
                for &position in statistics {
                    let statistic = node.outputs[position];
                    inputs.push(self.new_id(self.running.get(&statistic).copied().unwrap_or(statistic))?);
                }
                op
            }
            InEvaluation::Same | InEvaluation::Skip => node.op.clone(),
        };
        let outputs = self.b.at_scope(&node.scope, |b| b.add_all(op, &inputs))?;
        for (&old, new) in node.outputs.iter().zip(outputs) {
            self.renamed[old] = Some(new);
        }
        Ok(own)
    }

    /// The share of right answers, where classes are told apart by values that exist.
    fn add_accuracy(&mut self, node: &Node, inputs: &[ValueId]) -> Result<Option<ValueId>> {
        let prediction = node.op.def().prediction(inputs.len());
        // Where the prediction is not a value of the graph, it is too large to be made for one number.
        let Some(prediction) = prediction.filter(|p| p.op.is_none()) else { return Ok(None) };
        let Some(labels) = prediction.labels else { return Ok(None) };
        let pair = [inputs[prediction.inputs[0]], inputs[labels]];
        self.b.at_scope(&node.scope, |b| b.add(Accuracy {}, &pair)).map(Some)
    }

    /// What a node that compares would be given.
    fn add_prediction(&mut self, node: &Node) -> Result<ValueId> {
        let prediction = node.op.def().prediction(node.inputs.len()).expect("this node compares");
        let from: Vec<ValueId> =
            prediction.inputs.iter().map(|&i| self.new_id(node.inputs[i])).collect::<Result<_>>()?;
        match prediction.op {
            Some(op) => self.b.at_scope(&node.scope, |b| b.add(op, &from)),
            None => Ok(from[0]),
        }
    }

    fn finish_at(mut self, prediction: ValueId) -> Result<ForwardPass> {
        self.b.output(prediction);
        self.finish(Roles { prediction: Some(prediction), ..Roles::of_loss(prediction) })
    }

    fn finish(self, roles: Roles) -> Result<ForwardPass> {
        let graph = self.b.finish();
        let faults = graph.verify();
        if faults.is_empty() {
            Ok(ForwardPass { graph, roles })
        } else {
            Err(Error::bug("evaluation", faults.iter().map(|fault| fault.with_names(&graph))))
        }
    }
}

impl ForwardPass {
    /// The inputs of the batch that some node reads, in order.
    pub fn read_inputs(&self) -> Vec<&Source> {
        let reads =
            |source: &&Source| self.graph.nodes.iter().any(|node| node.inputs.contains(&source.value));
        let inputs = self.graph.sources.iter().filter(|s| self.graph.values[s.value].kind == Kind::Input);
        inputs.filter(reads).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Id as _;

    /// Otherwise nothing would check that weight files have it, and nothing would read it from there.
    #[test]
    fn a_parameter_that_is_predicted_stays_a_parameter() {
        let text = "%0: f32[2,3] = parameter \"table\" {\"constant\":0.0}\n\
                    %1: f32[2,3] = relu {} %0 @ forward\n\
                    output %1\n";
        let forward = Graph::from_text(text).expect("a graph");
        let pass = prediction_pass(&forward, Some(ValueId::new(0))).expect("a pass");
        assert_eq!(pass.roles.prediction, Some(ValueId::new(0)));
        assert_eq!(pass.graph.values[ValueId::new(0)].kind, Kind::Parameter);
    }
}
