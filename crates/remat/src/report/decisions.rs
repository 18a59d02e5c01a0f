//! What a plan decided about every activation.

use super::{ActivationRow, activations};
use crate::ids::ValueId;
use crate::pipeline::{Prepared, Program};
use remat_plan::{Bytes, Step};
use serde::Serialize;
use std::collections::HashSet;

/// The fate of an activation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Decision {
    /// Dropped after its forward use and made again for backward.
    Recompute,
    /// Kept from forward to backward.
    Retained,
    /// Copied to a store after its forward use and back for backward.
    Moved,
}

/// One activation with its fate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DecisionRow {
    /// Name of the value.
    pub activation_name: String,
    /// Its fate.
    pub decision: Decision,
    /// Size of its buffer.
    pub median_mem_size_bytes: Bytes,
    /// Time to make it again, alone.
    pub recomp_time_s: f64,
    /// When it is made, without recomputation.
    pub creation_rank: usize,
    /// When backward reads it first, without recomputation.
    pub first_bw_use_rank: usize,
}

/// The decisions of a program, in order of creation.
pub fn decisions(prepared: &Prepared, program: &Program) -> Vec<DecisionRow> {
    let schedule = program.schedule();
    let original = &prepared.step.graph;
    let again: HashSet<ValueId> = (schedule.graph.nodes.iter())
        .filter_map(|node| node.origin)
        .flat_map(|origin| original.nodes[origin].outputs.iter().copied())
        .collect();
    let returning: HashSet<ValueId> = (program.plan().steps.iter())
        .filter_map(|step| match *step {
            Step::In(value, _) => Some(prepared.problem.value_of[value.index()]),
            _ => None,
        })
        .collect();
    let fate = |value: ValueId| match (again.contains(&value), returning.contains(&value)) {
        (true, _) => Decision::Recompute,
        (false, true) => Decision::Moved,
        (false, false) => Decision::Retained,
    };
    let row = |activation: ActivationRow| DecisionRow {
        decision: fate(activation.value),
        activation_name: activation.activation_name,
        median_mem_size_bytes: activation.median_mem_size_bytes,
        recomp_time_s: activation.recomp_time_s,
        creation_rank: activation.creation_rank,
        first_bw_use_rank: activation.first_bw_use_rank,
    };
    activations(prepared).into_iter().map(row).collect()
}
