//! Layouts by the owner of every line of memory: the meaning of a layout, line by line.

use super::Laid;
use crate::graph::{ALIGNMENT, Node};
use crate::ids::{NodeId, ValueId};
use crate::rewrite::Step;
use std::collections::HashMap;

/// Who a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    Value(ValueId),
    Workspace,
}

struct Memory<'a> {
    laid: &'a Laid,
    lines: Vec<Owner>,
    /// For each live value the one whose storage it lies in.
    lies_in: HashMap<ValueId, ValueId>,
    /// The highest line that was ever used, and the most lines used during a run.
    highest: u64,
    most: u64,
}

/// Whether nothing is read or written that belongs to somebody else, and the layout says how large it is.
pub(super) fn is_right(laid: &Laid) -> bool {
    follow(laid).is_some()
}

fn follow(laid: &Laid) -> Option<()> {
    let graph = &laid.schedule.graph;
    let is_whole = laid.layout.offset.len() == graph.values.len()
        && laid.layout.workspace.len() == graph.nodes.len()
        && laid.layout.shared.len() == graph.nodes.len()
        && laid.layout.arena.0.is_multiple_of(ALIGNMENT);
    let arena = usize::try_from(laid.layout.arena.0 / ALIGNMENT).ok().filter(|_| is_whole)?;
    let lines = vec![Owner::Nobody; arena];
    let mut memory = Memory { laid, lines, lies_in: HashMap::new(), highest: 0, most: 0 };
    for source in &graph.sources {
        memory.claim(source.value)?;
    }
    // Where state is now: what took its place, by source.
    let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
    let mut now: HashMap<ValueId, ValueId> = states.map(|v| (v, v)).collect();
    let steps = &laid.schedule.steps;
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Free(value) => memory.free(value)?,
            Step::Run(id) => {
                let freed = steps[at + 1..].iter().map_while(|step| match step {
                    Step::Free(value) => Some(*value),
                    Step::Run(_) => None,
                });
                memory.run(id, &freed.collect::<Vec<_>>(), &mut now)?;
            }
        }
    }
    let offset = |v: ValueId| laid.layout.offset[v];
    let has_stayed =
        now.iter().all(|(&from, &to)| memory.lies_in.contains_key(&to) && offset(from) == offset(to));
    let is_placed = laid.placed.iter().all(|&(value, at)| offset(value) == Some(at));
    let is_exact =
        (memory.highest, memory.most) == (laid.layout.arena.0 / ALIGNMENT, laid.layout.used.0 / ALIGNMENT);
    (has_stayed && is_placed && is_exact).then_some(())
}

impl Memory<'_> {
    fn n_lines(&self, value: ValueId) -> u64 {
        self.laid.schedule.graph.values[value].ty.bytes().div_ceil(ALIGNMENT)
    }

    /// The lines of a range that begins at a line and lies inside.
    fn range(&self, offset: Option<u64>, n_lines: u64) -> Option<std::ops::Range<usize>> {
        let begin = offset.filter(|offset| offset % ALIGNMENT == 0)? / ALIGNMENT;
        let end = begin + n_lines;
        (end <= self.lines.len() as u64).then_some(begin as usize..end as usize)
    }

    fn take(&mut self, offset: Option<u64>, n_lines: u64, from: Owner, to: Owner) -> Option<()> {
        let range = self.range(offset, n_lines)?;
        self.highest = self.highest.max(range.end as u64);
        let lines = &mut self.lines[range];
        lines.iter().all(|owner| *owner == from).then(|| lines.fill(to))
    }

    fn claim(&mut self, value: ValueId) -> Option<()> {
        self.take(self.laid.layout.offset[value], self.n_lines(value), Owner::Nobody, Owner::Value(value))?;
        self.lies_in.insert(value, value).is_none().then_some(())
    }

    fn free(&mut self, value: ValueId) -> Option<()> {
        if self.lies_in.get(&value) != Some(&value) {
            return None;
        }
        self.lies_in.retain(|_, root| *root != value);
        let range = self.range(self.laid.layout.offset[value], self.n_lines(value))?;
        let own = self.lines[range].iter_mut().filter(|owner| **owner == Owner::Value(value));
        own.for_each(|owner| *owner = Owner::Nobody);
        Some(())
    }

    fn run(&mut self, id: NodeId, freed: &[ValueId], now: &mut HashMap<ValueId, ValueId>) -> Option<()> {
        let (layout, graph) = (&self.laid.layout, &self.laid.schedule.graph);
        let node = graph.nodes.get(id)?;
        for &input in &node.inputs {
            let root = *self.lies_in.get(&input)?;
            let range = self.range(layout.offset[root], self.n_lines(root))?;
            let is_own = self.lines[range].iter().all(|owner| *owner == Owner::Value(root));
            if !is_own || layout.offset[input] != layout.offset[root] {
                return None;
            }
        }
        if node.op.def().is_view() {
            let (x, y) = (node.inputs[0], node.outputs[0]);
            self.lies_in.insert(y, self.lies_in[&x]);
            return (layout.offset[y] == layout.offset[x]).then_some(());
        }
        let placed = self.hand_over(id, node, freed, now)?;
        for (o, &output) in node.outputs.iter().enumerate() {
            if !placed.contains(&o) {
                self.claim(output)?;
            }
        }
        let n_lines = graph.workspace_bytes(id).0 / ALIGNMENT;
        if n_lines > 0 {
            self.take(layout.workspace[id], n_lines, Owner::Nobody, Owner::Workspace)?;
        }
        let used = self.lines.iter().filter(|owner| **owner != Owner::Nobody).count() as u64;
        self.most = self.most.max(used);
        if n_lines > 0 {
            self.take(layout.workspace[id], n_lines, Owner::Workspace, Owner::Nobody)?;
        }
        Some(())
    }

    /// Outputs that lie on an input which ends here; returns their places.
    fn hand_over(
        &mut self,
        id: NodeId,
        node: &Node,
        freed: &[ValueId],
        now: &mut HashMap<ValueId, ValueId>,
    ) -> Option<Vec<usize>> {
        let (layout, graph) = (&self.laid.layout, &self.laid.schedule.graph);
        let types = graph.input_types(node);
        let (consumed, allowed) = (node.op.def().consumes(&types), node.op.def().reuse(&types));
        if !consumed.iter().all(|pair| layout.shared[id].contains(pair)) {
            return None;
        }
        let mut placed = Vec::new();
        for &(i, o) in &layout.shared[id] {
            let (&input, &output) = (node.inputs.get(i)?, node.outputs.get(o)?);
            let root = self.lies_in[&input];
            let fits =
                layout.offset[root] == layout.offset[output] && self.n_lines(root) == self.n_lines(output);
            // Taken twice, the lines no longer belong to the input.
            self.take(layout.offset[root], self.n_lines(root), Owner::Value(root), Owner::Value(output))?;
            if !fits || placed.contains(&o) || self.lies_in.insert(output, output).is_some() {
                return None;
            }
            placed.push(o);
            if consumed.contains(&(i, o)) {
                self.lies_in.retain(|_, lies_in| *lies_in != root);
                if let Some(state) = now.values_mut().find(|value| **value == root) {
                    *state = output;
                }
            } else if !(allowed.contains(&(i, o)) && freed.contains(&root)) {
                return None;
            }
        }
        Some(placed)
    }
}
