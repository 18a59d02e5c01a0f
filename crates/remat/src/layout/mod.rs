//! Gives every buffer of a schedule its place in one arena.
//!
//! In: a [`Schedule`]. Out: a [`Layout`]: an offset for every storage and every workspace, which outputs take over the
//! storage of a dying input, and the arena's size. Values that share storage form one *block*; a block occupies its
//! bytes from the run that makes its first value to the run after which its last is freed. State occupies the same
//! place from the beginning of the step to its end, so the next step finds it where this one left it.
//!
//! Memory is counted at *moments*: at every run and at every copy from a store. A buffer that is copied to or from a store
//! and is not small begins on a page, for direct I/O. Slots of stores are packed in the same way (`slots`); state that
//! rests in a store has one place there for good, and state that only leaves memory for a while returns to where it was.
//!
//! [`pack`] decides the offsets; [`check`](fn@check) verifies the result by walking the schedule over addresses, sharing no code
//! with this file or with [`pack`].

mod check;
mod fault;
mod lives;
mod pack;
mod slots;

pub use check::check;
pub use fault::{LayoutFault, Occupant, Table};
pub use pack::{Block, lower_bound, pack, pack_around};

use crate::error::{Error, Result};
use crate::graph::Storage;
use crate::ids::{IdVec, NodeId, SlotId, ValueId};
use crate::rewrite::{Schedule, Step};
use lives::Lives;
use remat_plan::Bytes;
use std::collections::HashSet;

/// Where everything lies.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// Size of the arena: the peak of the step.
    pub arena: Bytes,
    /// The most bytes in use at once. The arena is larger only by what fragmentation wastes.
    pub used: Bytes,
    /// Offset of every value that the schedule makes, views included.
    pub offset: IdVec<ValueId, Option<u64>>,
    /// Offset of every node's workspace.
    pub workspace: IdVec<NodeId, Option<u64>>,
    /// For every node: pairs (input, output) where the output lies on the input's storage.
    pub shared: IdVec<NodeId, Vec<(usize, usize)>>,
    /// Offset of every slot in its store.
    pub slots: IdVec<SlotId, u64>,
    /// Size of every store.
    pub stores: Vec<Bytes>,
}

/// Lays out a schedule. `enough` is the arena size below which nobody asks for a better packing. The result has
/// passed [`check`](fn@check).
pub fn assign(schedule: &Schedule, enough: Bytes) -> Result<Layout> {
    place(schedule, &[], |lives| pack(&lives.blocks, enough.0))
}

/// Lays out a schedule around sources that already have a place, in memory or in their store. `enough` is the arena size below which nobody asks for
/// a better packing. The result has passed [`check`](fn@check).
pub fn assign_around(schedule: &Schedule, placed: &[(ValueId, u64)], enough: Bytes) -> Result<Layout> {
    place(schedule, placed, |lives| {
        let mut fixed = vec![None; lives.blocks.len()];
        for &(source, offset) in placed {
            if let Some(block) = lives.block_of[source] {
                fixed[block] = Some(offset);
            }
        }
        pack_around(&lives.blocks, &fixed, enough.0)
    })
}

fn place(
    schedule: &Schedule,
    placed: &[(ValueId, u64)],
    pack: impl FnOnce(&Lives) -> Vec<u64>,
) -> Result<Layout> {
    let graph = &schedule.graph;
    let storage = Storage::compute(graph);
    let shared = sharing(schedule, &storage);
    let lives = Lives::compute(schedule, &storage, &shared);
    let offsets = pack(&lives);
    let end = |(block, &offset): (&Block, &u64)| offset + block.bytes;
    let arena = Bytes(lives.blocks.iter().zip(&offsets).map(end).max().unwrap_or(0));
    let value_offset = |v: ValueId| lives.block_of[storage.root[v]].map(|block| offsets[block]);
    let (slots, stores) = slots::place(schedule, placed);
    let layout = Layout {
        arena,
        used: Bytes(lives.most_used()),
        offset: graph.values.ids().map(value_offset).collect(),
        workspace: lives.workspace_of.iter().map(|block| block.map(|b| offsets[b])).collect(),
        shared,
        slots,
        stores,
    };
    let faults = check(schedule, &layout, placed);
    if faults.is_empty() {
        return Ok(layout);
    }
    Err(Error::bug("layout", faults.iter().map(|fault| fault.with_names(graph))))
}

/// Decides for every run which outputs take over the storage of an input: state that an update replaces always; else
/// the pairs that the op allows, in its order, when the input is freed right after the run. The rule is that of the
/// planning problem (docs/formats.md), so that the planned peak is the bytes in use here.
fn sharing(schedule: &Schedule, storage: &Storage) -> IdVec<NodeId, Vec<(usize, usize)>> {
    let graph = &schedule.graph;
    let mut shared = IdVec::filled(graph.nodes.len(), Vec::new());
    // Copies of each original value that are live: a second copy never takes over storage.
    let mut n_copies = IdVec::<ValueId, u32>::filled(graph.values.len(), 0);
    let original = |v: ValueId| schedule.original(v);
    for (at, step) in schedule.steps.iter().enumerate() {
        let id = match *step {
            Step::Free(v) => {
                n_copies[original(v)] = n_copies[original(v)].saturating_sub(1);
                continue;
            }
            Step::In(_, v) => {
                n_copies[original(v)] += 1;
                continue;
            }
            Step::Out(..) | Step::Discard(_) => continue,
            Step::Run(id) => id,
        };
        let node = &graph.nodes[id];
        if node.op.def().is_view() {
            continue;
        }
        let freed: HashSet<ValueId> = schedule.steps[at + 1..]
            .iter()
            .map_while(|s| match *s {
                Step::Free(v) => Some(v),
                _ => None,
            })
            .collect();
        let mut pairs = node.op.def().consumes(&graph.input_types(node));
        let mut used_inputs: HashSet<ValueId> =
            pairs.iter().map(|&(i, _)| storage.root[node.inputs[i]]).collect();
        for (i, o) in graph.shareable(node) {
            let root = storage.root[node.inputs[i]];
            let is_taken = used_inputs.contains(&root) || pairs.iter().any(|pair| pair.1 == o);
            // State that left for a store returns to where it was, so nothing else may stay there.
            if graph.values[root].kind.is_state() {
                continue;
            }
            if !is_taken && freed.contains(&root) && n_copies[original(node.outputs[o])] == 0 {
                used_inputs.insert(root);
                pairs.push((i, o));
            }
        }
        shared[id] = pairs;
        for &v in &node.outputs {
            n_copies[original(v)] += 1;
        }
    }
    shared
}
