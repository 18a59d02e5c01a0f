//! How well the profile predicts: a step is run, every node is timed in it, and the times are put next to the predicted
//! ones.

use super::{Session, Synthetic};
use crate::error::Result;
use crate::ids::{IdVec, NodeId};
use crate::pipeline::Prepared;
use crate::profile::Sample;
use std::collections::BTreeMap;
use std::time::Duration;

/// Predicted and measured seconds of a step without recomputation.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Accuracy {
    /// By kind of op, the slowest first.
    pub ops: Vec<OpAccuracy>,
    /// The sum of all predictions.
    pub predicted: f64,
    /// The sum of all nodes' times in one step, the median over steps. It is more than the sum of the nodes' medians: in every
    /// step something else is disturbed.
    pub nodes: f64,
    /// The same steps as a whole.
    pub step: Sample,
}

/// One kind of op.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct OpAccuracy {
    /// Its name; for a fused node the names of its steps.
    pub op: String,
    /// How many nodes.
    pub n_nodes: usize,
    /// Their predicted seconds.
    pub predicted: f64,
    /// Their seconds in the step, each node's median.
    pub measured: f64,
}

/// Runs `n_steps` steps with timed nodes, after one to warm up. `predict` is asked for the seconds of every node before each
/// of them, and the median of its answers counts: what a machine gives changes from minute to minute, and a prediction
/// from the speeds of another hour says little about the model that it is made with.
pub fn accuracy(
    prepared: &Prepared,
    n_threads: usize,
    n_steps: usize,
    mut predict: impl FnMut() -> Result<IdVec<NodeId, f64>>,
) -> Result<Accuracy> {
    let batches = Box::new(Synthetic { seed: 1 });
    let mut session = Session::new(prepared.keep_all.clone(), batches, 1, n_threads)?;
    session.step(None)?;
    let graph = &prepared.step.graph;
    let (mut whole, mut sums) = (Vec::new(), Vec::new());
    let mut predictions = vec![Vec::new(); graph.nodes.len()];
    let mut times = vec![Vec::new(); graph.nodes.len()];
    for _ in 0..n_steps.max(1) {
        predictions.iter_mut().zip(predict()?.iter()).for_each(|(all, &one)| all.push(one));
        session.executor_mut().node_times = Some(IdVec::filled(graph.nodes.len(), Duration::ZERO));
        whole.push(session.step(None)?.stats.time.as_secs_f64());
        let timed = session.executor_mut().node_times.take().unwrap_or_default();
        sums.push(timed.iter().sum::<Duration>().as_secs_f64());
        times.iter_mut().zip(timed.iter()).for_each(|(times, time)| times.push(time.as_secs_f64()));
    }
    let mut ops: BTreeMap<String, OpAccuracy> = BTreeMap::new();
    for &node in &prepared.problem.node_of {
        let index = crate::ids::Id::index(node);
        let op = graph.nodes[node].op.label();
        let row = OpAccuracy { op: op.clone(), n_nodes: 0, predicted: 0.0, measured: 0.0 };
        let row = ops.entry(op).or_insert(row);
        row.n_nodes += 1;
        row.predicted += Sample::of(std::mem::take(&mut predictions[index])).median;
        row.measured += Sample::of(std::mem::take(&mut times[index])).median;
    }
    let mut ops: Vec<OpAccuracy> = ops.into_values().collect();
    ops.sort_by(|a, b| b.measured.total_cmp(&a.measured));
    Ok(Accuracy {
        predicted: ops.iter().map(|row| row.predicted).sum(),
        nodes: Sample::of(sums).median,
        step: Sample::of(whole),
        ops,
    })
}
