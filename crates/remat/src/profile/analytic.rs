//! The analytic profile: seconds of a node from its flops and bytes and the machine's speeds.
//!
//! A kernel is limited by arithmetic or by memory, whichever takes longer (the roofline model), plus a fixed price
//! for calling it. Nothing is run, so it serves for models that do not fit this machine, and it is deterministic.

use super::Machine;
use crate::graph::Graph;
use crate::ids::{IdVec, NodeId};

/// Seconds per node; views take none.
pub fn analytic(graph: &Graph, machine: &Machine) -> IdVec<NodeId, f64> {
    let seconds = |node: &crate::graph::Node| {
        if node.op.def().is_view() {
            return 0.0;
        }
        let cost = node.op.def().cost(&graph.input_types(node), &graph.output_types(node));
        let arithmetic = cost.flops as f64 / machine.flops;
        let memory = cost.bytes as f64 / machine.bandwidth;
        arithmetic.max(memory) + machine.overhead
    };
    graph.nodes.iter().map(seconds).collect()
}
