//! One row per activation that waits from forward to backward: how large, how long idle, and what it would cost to
//! make again.
//!
//! The cost of a recompute is the cost of all nodes it needs together, given everything that is still there at the
//! first backward use when nothing is dropped. The memory is the peak of running these nodes in order, each value
//! freed after its last use among them. O(activations × longest chain).

use crate::graph::{Graph, Kind, Liveness, Phase, Storage};
use crate::ids::{Id, IdVec, NodeId, ValueId};
use crate::pipeline::Prepared;
use remat_plan::{Bytes, Way};
use serde::Serialize;
use std::collections::BTreeSet;

/// An activation that backward reads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ActivationRow {
    /// The value, in the step's graph.
    #[serde(skip)]
    pub value: ValueId,
    /// Name of the value.
    pub activation_name: String,
    /// Always `activation`, so that the columns match the table of nodes.
    pub node_type: &'static str,
    /// When it is made.
    pub creation_rank: usize,
    /// When forward reads it for the last time.
    pub last_fw_use_rank: usize,
    /// When backward reads it for the first time.
    pub first_bw_use_rank: usize,
    /// When backward reads it for the last time.
    pub last_bw_use_rank: usize,
    /// Size of its buffer.
    pub median_mem_size_bytes: Bytes,
    /// Time between the last forward and the first backward use.
    pub inactive_time_s: f64,
    /// Time to make it again.
    pub recomp_time_s: f64,
    /// Most memory in use by the nodes that make it again.
    pub recomp_memory_bytes: Bytes,
    /// Bytes that are freed per second of recomputation: the higher, the better to recompute. Missing where making it
    /// again takes no time.
    pub recompute_ratio: Option<f64>,
    /// Time to copy it to a store beside running kernels; missing without one. With several stores, the one with the shortest
    /// way there and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_out_s: Option<f64>,
    /// Time to copy it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_in_s: Option<f64>,
}

/// The activations of the step in order of creation.
pub fn activations(prepared: &Prepared) -> Vec<ActivationRow> {
    let graph = &prepared.step.graph;
    let storage = Storage::compute(graph);
    let live = Liveness::compute(graph, &storage);
    let clock = Clock::new(prepared);
    let is_activation = |&v: &ValueId| graph.values[v].kind == Kind::Activation && storage.is_root(v);
    let row = |v: ValueId| {
        let made = live.made[v]?;
        let (first, last) = (live.first_backward_use[v]?, live.last_use[v]?);
        let last_forward = live.last_forward_use[v].unwrap_or(made);
        let chain = Chain::to(graph, &storage, &live, v, made, first);
        let recomp_time_s: f64 = chain.nodes.iter().map(|&n| prepared.seconds[n]).sum();
        let size = graph.values[v].ty.buffer_bytes();
        let swap = swap_seconds(prepared, size);
        Some(ActivationRow {
            value: v,
            activation_name: graph.value_name(v),
            node_type: Kind::Activation.name(),
            creation_rank: clock.rank(made),
            last_fw_use_rank: clock.rank(last_forward),
            first_bw_use_rank: clock.rank(first),
            last_bw_use_rank: clock.rank(last),
            median_mem_size_bytes: size,
            inactive_time_s: (clock.start(first) - clock.end(last_forward)).max(0.0),
            recomp_time_s,
            recomp_memory_bytes: chain.peak(graph, &storage, v),
            recompute_ratio: (recomp_time_s > 0.0).then(|| size.0 as f64 / recomp_time_s),
            swap_out_s: swap.map(|(out, _)| out),
            swap_in_s: swap.map(|(_, back)| back),
        })
    };
    let in_forward = |v: &ValueId| {
        graph.values[*v].producer.is_some_and(|(node, _)| graph.nodes[node].phase == Phase::Forward)
    };
    graph.values.ids().filter(is_activation).filter(in_forward).filter_map(row).collect()
}

/// Seconds of a copy to the store with the shortest way there and back, and of the copy from it.
fn swap_seconds(prepared: &Prepared, size: Bytes) -> Option<(f64, f64)> {
    let stores = prepared.problem.problem.stores.iter();
    let times = stores.map(|store| [Way::Out, Way::In].map(|way| store.link(way).cost(size)));
    let fastest = times.min_by(|a, b| (a[0] + a[1]).total_cmp(&(b[0] + b[1])));
    fastest.map(|[out, back]| (out, back))
}

/// Ranks and times of the step without recomputation.
struct Clock {
    rank: IdVec<NodeId, usize>,
    end: IdVec<NodeId, f64>,
    seconds: IdVec<NodeId, f64>,
}

impl Clock {
    fn new(prepared: &Prepared) -> Clock {
        let n_nodes = prepared.step.graph.nodes.len();
        let (mut rank, mut end) = (IdVec::filled(n_nodes, 0), IdVec::filled(n_nodes, 0.0));
        let mut now = 0.0;
        for (position, &id) in prepared.problem.node_of.iter().enumerate() {
            now += prepared.seconds[id];
            rank[id] = position;
            end[id] = now;
        }
        Clock { rank, end, seconds: prepared.seconds.clone() }
    }

    fn rank(&self, node: NodeId) -> usize {
        self.rank[node]
    }

    fn start(&self, node: NodeId) -> f64 {
        self.end[node] - self.seconds[node]
    }

    fn end(&self, node: NodeId) -> f64 {
        self.end[node]
    }
}

/// The nodes that make a value again at some later point, in order.
struct Chain {
    nodes: BTreeSet<NodeId>,
}

impl Chain {
    fn to(
        graph: &Graph,
        storage: &Storage,
        live: &Liveness,
        value: ValueId,
        made: NodeId,
        at: NodeId,
    ) -> Chain {
        let mut nodes = BTreeSet::from([made]);
        let mut stack = vec![made];
        while let Some(node) = stack.pop() {
            for &input in &graph.nodes[node].inputs {
                let root = storage.root[input];
                let still_there = root != value && live.last_use[root].is_some_and(|last| last >= at);
                // Sources are always there: their update comes after every reader.
                if let Some(producer) = live.made[root].filter(|_| !still_there)
                    && nodes.insert(producer)
                {
                    stack.push(producer);
                }
            }
        }
        Chain { nodes }
    }

    fn peak(&self, graph: &Graph, storage: &Storage, wanted: ValueId) -> Bytes {
        let mut last_reader: IdVec<ValueId, Option<usize>> = IdVec::filled(graph.values.len(), None);
        for &node in &self.nodes {
            for &v in &graph.nodes[node].inputs {
                last_reader[storage.root[v]] = Some(node.index());
            }
        }
        let bytes = |v: ValueId| graph.values[v].ty.buffer_bytes();
        let (mut held, mut peak) = (Bytes(0), Bytes(0));
        let mut inside: BTreeSet<ValueId> = BTreeSet::new();
        for &id in &self.nodes {
            let node = &graph.nodes[id];
            for &v in &node.outputs {
                held += bytes(v);
                inside.insert(v);
            }
            peak = peak.max(held + graph.workspace_bytes(id));
            let dies = |v: &ValueId| *v != wanted && last_reader[*v].is_none_or(|last| last <= id.index());
            let dead: Vec<ValueId> = inside.iter().copied().filter(dies).collect();
            for v in dead {
                inside.remove(&v);
                held -= bytes(v);
            }
        }
        peak
    }
}
