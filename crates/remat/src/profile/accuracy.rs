//! How well the profile predicts: a step is run, every node is timed in it, and the times stand next to the predicted
//! ones.

use super::Sample;
use crate::error::Result;
use crate::ids::IdVec;
use crate::pipeline::Prepared;
use crate::train::{Optimizer, Session, Synthetic};
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
    /// Whole steps, in which nodes were not timed.
    pub step: Sample,
}

/// One kind of op.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct OpAccuracy {
    /// Its name; for a fused node those of its steps.
    pub op: String,
    /// How many nodes.
    pub n_nodes: usize,
    /// Their predicted seconds.
    pub predicted: f64,
    /// Their seconds in the step, each node's median.
    pub measured: f64,
}

/// Runs `n_steps` steps without and `n_steps` with timed nodes, alternately, after one to warm up.
pub fn accuracy(
    prepared: &Prepared,
    optimizer: &Optimizer,
    n_threads: usize,
    n_steps: usize,
) -> Result<Accuracy> {
    let batches = Box::new(Synthetic { seed: 1 });
    let mut session = Session::new(prepared.keep_all.clone(), optimizer, batches, 1, n_threads)?;
    session.step(None)?;
    let graph = &prepared.step.graph;
    let (mut whole, mut sums) = (Vec::new(), Vec::new());
    let mut times = vec![Vec::new(); graph.nodes.len()];
    for _ in 0..n_steps.max(1) {
        session.executor_mut().node_times = None;
        whole.push(session.step(None)?.stats.time.as_secs_f64());
        session.executor_mut().node_times = Some(IdVec::filled(graph.nodes.len(), Duration::ZERO));
        session.step(None)?;
        let timed = session.executor_mut().node_times.take().unwrap_or_default();
        sums.push(timed.iter().sum::<Duration>().as_secs_f64());
        times.iter_mut().zip(timed.iter()).for_each(|(times, time)| times.push(time.as_secs_f64()));
    }
    let mut ops: BTreeMap<String, OpAccuracy> = BTreeMap::new();
    for (node, times) in prepared.problem.node_of.iter().map(|&id| (id, &times[crate::ids::Id::index(id)])) {
        let op = graph.nodes[node].op.label();
        let row = OpAccuracy { op: op.clone(), n_nodes: 0, predicted: 0.0, measured: 0.0 };
        let row = ops.entry(op).or_insert(row);
        row.n_nodes += 1;
        row.predicted += prepared.seconds[node];
        row.measured += Sample::of(times.clone()).median;
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
