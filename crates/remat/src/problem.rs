//! The planning problem of a graph: storages with their bytes, nodes with their costs.
//!
//! Views vanish: their readers read the storage. State enters as inputs of the problem that an update consumes, so a
//! recompute that reads a parameter cannot come after its update. State that nothing updates must be live at the end.
//!
//! With stores, each has a channel for either direction, and state may rest in one between two steps.

use crate::error::{Error, Result};
use crate::graph::{Effect, Graph, Storage};
use crate::ids::{IdVec, NodeId, ValueId};
use crate::profile::StoreSpeed;
use crate::store::Setup;
use remat_plan::{Bytes, Channel, ChannelId, Link, Problem, ProblemSpec, Store};

/// A [`Problem`] together with what its ids mean in the graph.
#[derive(Clone, Debug)]
pub struct PlanningProblem {
    /// What the planners see.
    pub problem: Problem,
    /// The graph's node for each node of the problem.
    pub node_of: Vec<NodeId>,
    /// The graph's root value for each value of the problem.
    pub value_of: Vec<ValueId>,
}

/// Builds the problem of a verified training step with the given seconds per node.
pub fn problem(graph: &Graph, seconds: &IdVec<NodeId, f64>) -> Result<PlanningProblem> {
    with_stores(graph, seconds, &[])
}

/// As [`problem`], with stores that plans may use.
pub fn with_stores(
    graph: &Graph,
    seconds: &IdVec<NodeId, f64>,
    stores: &[(Setup, StoreSpeed)],
) -> Result<PlanningProblem> {
    let storage = Storage::compute(graph);
    let mut index = IdVec::<ValueId, Option<remat_plan::ValueId>>::filled(graph.values.len(), None);
    let mut value_of = Vec::new();
    let mut values = Vec::new();
    for v in graph.values.ids().filter(|&v| storage.is_root(v)) {
        index[v] = Some(remat_plan::ValueId::new(values.len()));
        values.push(remat_plan::Value::new(graph.value_name(v), graph.values[v].ty.buffer_bytes()));
        value_of.push(v);
    }
    let id = |v: ValueId| index[storage.root[v]].expect("every root has an index");
    let is_state = |v: ValueId| graph.values[storage.root[v]].kind.is_state();
    let mut node_of = Vec::new();
    let mut nodes = Vec::new();
    for (n, node) in graph.nodes.enumerate().filter(|(_, node)| !node.op.def().is_view()) {
        let def = node.op.def();
        let types = graph.input_types(node);
        let mut inputs: Vec<_> = node.inputs.iter().map(|&v| id(v)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        node_of.push(n);
        nodes.push(remat_plan::Node {
            name: graph.node_name(n),
            op: node.op.name().to_owned(),
            phase: node.phase,
            cost: seconds[n],
            workspace_bytes: graph.workspace_bytes(n),
            inputs,
            outputs: node.outputs.iter().map(|&v| id(v)).collect(),
            recompute: def.effect() == Effect::Pure,
            consumes: def.consumes(&types).iter().map(|&(i, _)| id(node.inputs[i])).collect(),
            reuse: graph
                .shareable(node)
                .iter()
                // State that leaves for a store returns to where it was, so nothing else may stay there.
                .filter(|pair| stores.is_empty() || !is_state(node.inputs[pair.0]))
                .map(|&(i, o)| (id(node.inputs[i]), id(node.outputs[o])))
                .collect(),
            module: Some(node.scope.clone()).filter(|s| !s.is_empty()),
        });
    }
    let replaced: std::collections::HashMap<ValueId, ValueId> = graph.updates().into_iter().collect();
    let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
    let carries: Vec<_> = states.map(|v| (id(v), id(replaced.get(&v).copied().unwrap_or(v)))).collect();
    let mut outputs: Vec<_> = carries.iter().map(|pair| pair.1).collect();
    outputs.extend(graph.outputs.iter().map(|&v| id(v)));
    // The host fills an input whether or not a node reads it. Its storage is there when the step begins, so it counts.
    let mut is_read = IdVec::<ValueId, bool>::filled(graph.values.len(), false);
    graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|&v| is_read[v] = true);
    outputs.extend(graph.sources.iter().filter(|s| !is_read[s.value]).map(|s| id(s.value)));
    outputs.sort_unstable();
    outputs.dedup();
    let spec = ProblemSpec {
        name: graph.name.clone(),
        cost_unit: "s".to_owned(),
        fixed_bytes: Bytes(0),
        values,
        inputs: graph.sources.iter().map(|s| id(s.value)).collect(),
        nodes,
        outputs,
        channels: stores.iter().flat_map(|(setup, _)| channels(setup)).collect(),
        stores: stores.iter().enumerate().map(|(number, store)| store_of(number, store)).collect(),
        carries: if stores.is_empty() { Vec::new() } else { carries },
        ..ProblemSpec::default()
    };
    let problem = Problem::new(spec).map_err(|e| Error::Bug {
        stage: "problem",
        faults: e.to_string().lines().map(str::to_owned).collect(),
    })?;
    Ok(PlanningProblem { problem, node_of, value_of })
}

/// The two directions of a store, which run beside each other and beside nodes.
fn channels(setup: &Setup) -> [Channel; 2] {
    ["to", "from"].map(|way| Channel { name: format!("{way} {}", setup.kind), overlaps: true })
}

fn store_of(number: usize, (setup, speed): &(Setup, StoreSpeed)) -> Store {
    let link = |direction: usize, way: &crate::profile::Way| Link {
        channel: ChannelId::new(2 * number + direction),
        latency: way.latency,
        cost_per_byte: way.seconds_per_byte,
    };
    let (out, back) = (link(0, &speed.out), link(1, &speed.back));
    Store { name: setup.kind.to_string(), capacity_bytes: None, out, back }
}
