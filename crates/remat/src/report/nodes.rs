//! One row per node of the step as it runs without recomputation: the columns that profilers of this kind print.

use crate::pipeline::Prepared;
use crate::report::{ActivationRow, Timeline, activations};
use remat_plan::{Bytes, Phase};
use serde::Serialize;

/// A node of the step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeRow {
    /// Place in the order of execution.
    pub rank: usize,
    /// Unique name.
    pub node_name: String,
    /// What its first output is: parameter, activation, gradient, ...
    pub node_type: &'static str,
    /// Part of the step.
    pub gtype: Phase,
    /// Seconds of one run.
    pub median_run_time_s: f64,
    /// Bytes in use in the whole step while it runs.
    pub median_peak_mem_bytes: Bytes,
    /// Bytes that it needs itself: what it reads, makes and uses as scratch.
    pub median_active_mem_bytes: Bytes,
    /// Where it runs.
    pub device: &'static str,
    /// Activations that forward reads here for the last time, separated by semicolons: they could leave for a store
    /// afterwards. Missing without a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_offload: Option<String>,
    /// Activations that backward reads here for the first time: they must be back before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_prefetch: Option<String>,
}

/// All nodes in order of execution, views not counted.
pub fn nodes(prepared: &Prepared) -> Vec<NodeRow> {
    let graph = &prepared.step.graph;
    let in_use = Timeline::predicted(&prepared.keep_all, &prepared.seconds).total_bytes();
    let has_store = !prepared.problem.problem.stores.is_empty();
    let activations = if has_store { activations(prepared) } else { Vec::new() };
    let names = |wanted: &dyn Fn(&ActivationRow) -> bool| {
        let names: Vec<&str> =
            activations.iter().filter(|row| wanted(row)).map(|row| row.activation_name.as_str()).collect();
        has_store.then(|| names.join(";"))
    };
    let runs = prepared.keep_all.schedule().runs().filter(|&id| !graph.nodes[id].op.def().is_view());
    runs.zip(in_use)
        .enumerate()
        .map(|(rank, (id, in_use))| {
            let node = &graph.nodes[id];
            let mut touched: Vec<_> = node.inputs.iter().chain(&node.outputs).collect();
            touched.sort_unstable();
            touched.dedup();
            let touched: Bytes = touched.into_iter().map(|&v| graph.values[v].ty.buffer_bytes()).sum();
            NodeRow {
                rank,
                node_name: graph.node_name(id),
                node_type: node.outputs.first().map_or("none", |&v| graph.values[v].kind.name()),
                gtype: node.phase,
                median_run_time_s: prepared.seconds[id],
                median_peak_mem_bytes: in_use,
                median_active_mem_bytes: touched + prepared.keep_all.schedule().workspace_bytes(id),
                device: "cpu",
                to_offload: names(&|row| row.last_fw_use_rank == rank),
                to_prefetch: names(&|row| row.first_bw_use_rank == rank),
            }
        })
        .collect()
}
