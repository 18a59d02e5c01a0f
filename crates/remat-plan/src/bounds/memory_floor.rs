//! Lower bounds that hold for every plan, whatever its order of execution.
//!
//! [`memory_floor`]: every plan runs every node n at least once. Look at the *first* run of n. At that moment are
//! live, beside the fixed bytes:
//!
//! 1. the inputs and outputs of n and its workspace (less what n overwrites or may share);
//! 2. every *lasting* value (an input of the problem, or made by a node that runs once) that exists by then, because
//!    it is an input or its maker is an ancestor of n, and that is still wanted, because it is an output of the
//!    problem or some descendant of n reads it: the first run of a descendant comes after the first run of n, and
//!    a lasting value cannot be made again;
//! 3. for every update node u that is neither ancestor nor descendant of n: either the state it consumes (before u) or
//!    the state it makes for the problem's outputs (after u), so at least the smaller of the two.
//!
//! Where the problem has stores, a value that may be copied to one can be there instead, so 2 and 3 count only values that stay.
//!
//! The largest such sum is a floor for the peak. "Ancestor" means: runs first in every plan. Beside the makers of a
//! node's inputs these are, for an update, all other readers of the lasting state that it overwrites. With those
//! edges no value is counted under both 2 and 3: if a descendant of n reads the state of u, u is a descendant of n.
//!
//! Ancestors and descendants are propagated as bit sets, 64 values at a time, so the whole takes
//! O(edges * lasting values / 64) time and O(nodes + edges) memory.

use crate::ids::{NodeId, ValueId};
use crate::outcome::Floor;
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::precedence::Precedence;
use crate::units::Bytes;

/// The largest memory that some node needs in every plan.
pub fn memory_floor(problem: &Problem) -> Floor {
    let n_nodes = problem.nodes.len();
    let lasting = lasting_bytes(problem);
    let best = (0..n_nodes)
        .map(|n| {
            let id = NodeId::new(n);
            let operands = operand_bytes(problem, id, &lasting);
            let workspace = problem.node(id).workspace_bytes;
            (operands + workspace + lasting.elsewhere[n], id, operands, workspace)
        })
        // The first of equals, so that the answer does not depend on how ties are compared.
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        None => Floor {
            bytes: problem.fixed_bytes + bytes_that_stay(problem, problem.inputs.iter().copied()),
            node: None,
            node_name: String::new(),
            fixed: problem.fixed_bytes,
            operands: Bytes::ZERO,
            workspace: Bytes::ZERO,
            lasting: Bytes::ZERO,
        },
        Some((sum, id, operands, workspace)) => Floor {
            bytes: problem.fixed_bytes + sum,
            node: Some(id),
            node_name: problem.node(id).name.clone(),
            fixed: problem.fixed_bytes,
            operands,
            workspace,
            lasting: lasting.elsewhere[id.index()],
        },
    }
}

/// What is live at the first run of each node beside its operands.
struct Lasting {
    /// Bytes per node of lasting values that are not its operands.
    elsewhere: Vec<Bytes>,
    /// Pairs (node, input) where the input stays live after the first run of the node, sorted.
    held_inputs: Vec<(NodeId, ValueId)>,
}

/// Inputs + outputs - consumed - the most that reuse can save.
fn operand_bytes(problem: &Problem, id: NodeId, lasting: &Lasting) -> Bytes {
    let node = problem.node(id);
    let size = |v: &ValueId| problem.bytes(*v);
    let whole: Bytes = node.inputs.iter().chain(&node.outputs).map(size).sum();
    let overwritten: Bytes = node.consumes.iter().map(size).sum();
    // Each output saves its bytes at most once, and only through an input that can die at this step.
    let shared: Bytes = node
        .outputs
        .iter()
        .filter(|&&output| {
            node.reuse.iter().any(|&(i, o)| {
                o == output
                    && problem.bytes(o) <= problem.bytes(i)
                    && !node.consumes.contains(&i)
                    && lasting.held_inputs.binary_search(&(id, i)).is_err()
            })
        })
        .map(size)
        .sum();
    whole - overwritten - shared
}

fn lasting_bytes(problem: &Problem) -> Lasting {
    let before = Precedence::in_every_plan(&Flat::new(problem));
    let mut elsewhere = vec![Bytes::ZERO; problem.nodes.len()];
    let mut held_inputs = Vec::new();
    let candidates: Vec<ValueId> =
        problem.value_ids().filter(|&v| is_lasting(problem, v) && problem.bytes(v) > Bytes::ZERO).collect();
    for chunk in candidates.chunks(64) {
        let made_before = made_before(problem, &before, chunk);
        let read_after = read_after(problem, &before, chunk);
        for (n, node) in problem.nodes.iter().enumerate() {
            for bit in ones(made_before[n] & read_after[n]) {
                let value = chunk[bit];
                if !node.inputs.contains(&value) {
                    elsewhere[n] += problem.bytes(value);
                } else if !node.consumes.contains(&value) {
                    held_inputs.push((NodeId::new(n), value));
                }
            }
        }
    }
    held_inputs.sort_unstable();

    let updates: Vec<NodeId> = problem.node_ids().filter(|&n| !problem.node(n).consumes.is_empty()).collect();
    for chunk in updates.chunks(64) {
        let related = related(&before, chunk);
        let state: Vec<Bytes> = chunk.iter().map(|&update| state_bytes(problem, update)).collect();
        let all = u64::MAX >> (64 - chunk.len());
        for (n, sum) in elsewhere.iter_mut().enumerate() {
            *sum += ones(!related[n] & all).map(|bit| state[bit]).sum();
        }
    }
    Lasting { elsewhere, held_inputs }
}

/// Whether a value, once gone, cannot be had again.
fn is_lasting(problem: &Problem, value: ValueId) -> bool {
    !problem.is_recomputable(value) && stays(problem, value)
}

/// Whether a value cannot be in a store.
fn stays(problem: &Problem, value: ValueId) -> bool {
    problem.stores.is_empty() || !problem.value(value).swap
}

fn bytes_that_stay(problem: &Problem, values: impl Iterator<Item = ValueId>) -> Bytes {
    values.filter(|&v| stays(problem, v)).map(|v| problem.bytes(v)).sum()
}

/// The bytes of state that exist both before and after an update.
fn state_bytes(problem: &Problem, update: NodeId) -> Bytes {
    let node = problem.node(update);
    let before = node.consumes.iter().copied().filter(|&v| problem.is_input(v));
    let after = node.outputs.iter().copied().filter(|&v| problem.is_output(v));
    bytes_that_stay(problem, before).min(bytes_that_stay(problem, after))
}

/// The positions of the ones in a bit set.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        bit
    })
}

/// Bit i of node n: value i is an input of the problem, or its maker is an ancestor of n.
fn made_before(problem: &Problem, order: &Precedence, values: &[ValueId]) -> Vec<u64> {
    let mut own = vec![0u64; problem.nodes.len()];
    let mut everywhere = 0;
    for (bit, &value) in values.iter().enumerate() {
        match problem.producer(value) {
            None => everywhere |= 1 << bit,
            Some(maker) => own[maker.index()] |= 1 << bit,
        }
    }
    order.of_ancestors(&own).into_iter().map(|bits| bits | everywhere).collect()
}

/// Bit i of node n: value i is an output of the problem, or a descendant of n reads it.
fn read_after(problem: &Problem, order: &Precedence, values: &[ValueId]) -> Vec<u64> {
    let mut own = vec![0u64; problem.nodes.len()];
    let mut everywhere = 0;
    for (bit, &value) in values.iter().enumerate() {
        everywhere |= u64::from(problem.is_output(value)) << bit;
        for reader in problem.readers(value) {
            own[reader.index()] |= 1 << bit;
        }
    }
    order.of_descendants(&own).into_iter().map(|bits| bits | everywhere).collect()
}

/// Bit i of node n: node i is n, an ancestor of n or a descendant of n.
fn related(order: &Precedence, nodes: &[NodeId]) -> Vec<u64> {
    let mut own = vec![0u64; order.n_nodes()];
    for (bit, &node) in nodes.iter().enumerate() {
        own[node.index()] |= 1 << bit;
    }
    let (above, below) = (order.of_ancestors(&own), order.of_descendants(&own));
    (0..own.len()).map(|n| own[n] | above[n] | below[n]).collect()
}
