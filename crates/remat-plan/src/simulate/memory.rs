//! The live set and its size.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::plan::Step;
use crate::problem::Problem;
use crate::units::Bytes;

/// The live set and its size while steps are carried out.
pub(super) struct Memory<'a> {
    problem: &'a Problem,
    pub(super) live: Vec<bool>,
    pub(super) held: Bytes,
}

impl<'a> Memory<'a> {
    pub(super) fn at_start(problem: &'a Problem, stored: &[(ValueId, StoreId)]) -> Memory<'a> {
        let mut memory = Memory { problem, live: vec![false; problem.values.len()], held: Bytes::ZERO };
        problem.inputs.iter().for_each(|&value| memory.add(value));
        for &(value, _) in stored {
            memory.remove(value);
        }
        memory
    }

    pub(super) fn add(&mut self, value: ValueId) {
        if !std::mem::replace(&mut self.live[value.index()], true) {
            self.held += self.problem.bytes(value);
        }
    }

    pub(super) fn remove(&mut self, value: ValueId) -> bool {
        let was_live = std::mem::replace(&mut self.live[value.index()], false);
        if was_live {
            self.held -= self.problem.bytes(value);
        }
        was_live
    }

    /// Runs a node whose inputs are live and returns the memory while it runs; notes the inputs whose storage is taken over.
    pub(super) fn compute(
        &mut self,
        id: NodeId,
        is_freed_next: impl Fn(ValueId) -> bool,
        taken_over: &mut Vec<ValueId>,
    ) -> Bytes {
        let node = self.problem.node(id);
        let size = |v: &ValueId| self.problem.bytes(*v);
        let made: Bytes = node.outputs.iter().map(size).sum();
        let overwritten: Bytes = node.consumes.iter().map(size).sum();
        let shared = reused_bytes(self.problem, id, |v| self.live[v.index()], is_freed_next, taken_over);
        let used = self.problem.fixed_bytes + self.held + node.workspace_bytes + made - overwritten - shared;
        for &value in &node.consumes {
            self.remove(value);
        }
        node.outputs.iter().for_each(|&value| self.add(value));
        used
    }
}

/// Bytes of outputs that take over the storage of an input which dies at this step: pairs in listed order, each
/// input and each output at most once.
fn reused_bytes(
    problem: &Problem,
    id: NodeId,
    was_live: impl Fn(ValueId) -> bool,
    is_freed_next: impl Fn(ValueId) -> bool,
    taken_over: &mut Vec<ValueId>,
) -> Bytes {
    let node = problem.node(id);
    let mut shared = Bytes::ZERO;
    let mut applied: Vec<(ValueId, ValueId)> = Vec::new();
    for &(input, output) in &node.reuse {
        let free_to_share = applied.iter().all(|&(i, o)| i != input && o != output);
        if free_to_share
            && problem.bytes(output) <= problem.bytes(input)
            && !was_live(output)
            && !node.consumes.contains(&input)
            && is_freed_next(input)
        {
            applied.push((input, output));
            taken_over.push(input);
            shared += problem.bytes(output);
        }
    }
    shared
}

/// The live set after a valid prefix of steps.
pub(super) fn live_before(problem: &Problem, stored: &[(ValueId, StoreId)], steps: &[Step]) -> Vec<ValueId> {
    let mut memory = Memory::at_start(problem, stored);
    for &step in steps {
        match step {
            Step::Compute(node) => {
                memory.compute(node, |_| false, &mut Vec::new());
            }
            Step::Free(value) => {
                memory.remove(value);
            }
            Step::In(value, _) => memory.add(value),
            Step::Out(..) | Step::Discard(..) => {}
        }
    }
    problem.value_ids().filter(|v| memory.live[v.index()]).collect()
}
