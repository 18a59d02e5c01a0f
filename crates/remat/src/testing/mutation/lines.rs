//! Layouts by the owner of every line of memory: the meaning of a layout, line by line.

use super::Laid;
use crate::graph::{ALIGNMENT, Node};
use crate::ids::{NodeId, SlotId, ValueId};
use crate::rewrite::Step;
use crate::store::PAGE;
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
    /// The pages of each store, and the highest that was ever used.
    pages: Vec<(Vec<Option<SlotId>>, usize)>,
    /// Where state is now: by source, what holds it in memory and in stores.
    now: HashMap<ValueId, ValueId>,
    stored: HashMap<SlotId, Option<ValueId>>,
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
        && laid.layout.slots.len() == laid.schedule.slots.len()
        && laid.layout.arena.0.is_multiple_of(ALIGNMENT);
    let arena = usize::try_from(laid.layout.arena.0 / ALIGNMENT).ok().filter(|_| is_whole)?;
    let lines = vec![Owner::Nobody; arena];
    let pages = laid.layout.stores.iter().map(|size| (vec![None; (size.0 / PAGE) as usize], 0)).collect();
    let (now, stored) = (HashMap::new(), HashMap::new());
    let mut memory = Memory { laid, lines, lies_in: HashMap::new(), highest: 0, most: 0, pages, now, stored };
    let is_carried = |v: ValueId| laid.schedule.carried.iter().any(|carried| carried.source == v);
    for value in graph.sources.iter().map(|source| source.value).filter(|&v| !is_carried(v)) {
        memory.claim(value)?;
        if graph.values[value].kind.is_state() {
            memory.now.insert(value, value);
        }
    }
    for carried in &laid.schedule.carried {
        memory.fill(carried.begin, Some(carried.source))?;
    }
    let steps = &laid.schedule.steps;
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Free(value) => memory.free(value)?,
            Step::Run(id) => {
                let freed = steps[at + 1..].iter().map_while(|step| match step {
                    Step::Free(value) => Some(*value),
                    _ => None,
                });
                memory.run(id, &freed.collect::<Vec<_>>())?;
            }
            Step::Out(value, slot) => memory.copy_out(value, slot)?,
            Step::In(slot, value) => memory.copy_in(slot, value)?,
            Step::Discard(slot) => {
                memory.stored.remove(&slot)?;
                let pages = &mut memory.pages[laid.schedule.slots[slot].store.index()].0;
                pages.iter_mut().filter(|owner| **owner == Some(slot)).for_each(|owner| *owner = None);
            }
        }
    }
    let offset = |v: ValueId| laid.layout.offset[v];
    let place = |slot: SlotId| (laid.schedule.slots[slot].store, laid.layout.slots[slot]);
    let has_stayed =
        graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state()).all(|state| {
            let mut carried = laid.schedule.carried.iter().filter(|c| c.source == state).peekable();
            match carried.peek() {
                None => memory
                    .now
                    .get(&state)
                    .is_some_and(|&to| memory.lies_in.contains_key(&to) && offset(state) == offset(to)),
                Some(_) => carried.all(|c| {
                    memory.stored.get(&c.end) == Some(&Some(state)) && place(c.begin) == place(c.end)
                }),
            }
        });
    let is_placed = laid.placed.iter().all(|&(value, at)| offset(value) == Some(at));
    let is_full = memory.pages.iter().all(|(pages, highest)| pages.len() == *highest);
    let is_exact =
        (memory.highest, memory.most) == (laid.layout.arena.0 / ALIGNMENT, laid.layout.used.0 / ALIGNMENT);
    (has_stayed && is_placed && is_exact && is_full).then_some(())
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
        self.now.retain(|_, holder| *holder != value);
        let range = self.range(self.laid.layout.offset[value], self.n_lines(value))?;
        let own = self.lines[range].iter_mut().filter(|owner| **owner == Owner::Value(value));
        own.for_each(|owner| *owner = Owner::Nobody);
        Some(())
    }

    /// A slot takes its pages.
    fn fill(&mut self, slot: SlotId, state: Option<ValueId>) -> Option<()> {
        let of = self.laid.schedule.slots.get(slot)?;
        let first = Some(self.laid.layout.slots[slot]).filter(|offset| offset % PAGE == 0)? / PAGE;
        let n = self.laid.schedule.graph.values.get(of.of)?.ty.bytes().div_ceil(PAGE);
        let (pages, highest) = self.pages.get_mut(of.store.index())?;
        let range = usize::try_from(first).ok()?..usize::try_from(first.checked_add(n)?).ok()?;
        *highest = (*highest).max(range.end);
        let pages = pages.get_mut(range)?;
        pages.iter().all(Option::is_none).then(|| pages.fill(Some(slot)))?;
        self.stored.insert(slot, state).is_none().then_some(())
    }

    fn has_size_of(&self, slot: SlotId, value: ValueId) -> bool {
        let values = &self.laid.schedule.graph.values;
        let of = self.laid.schedule.slots.get(slot).and_then(|slot| values.get(slot.of));
        of.is_some_and(|of| of.ty.bytes() == values[value].ty.bytes())
    }

    fn copy_out(&mut self, value: ValueId, slot: SlotId) -> Option<()> {
        let range = self.range(self.laid.layout.offset[value], self.n_lines(value))?;
        let is_own = self.lines[range].iter().all(|owner| *owner == Owner::Value(value));
        if !is_own || self.lies_in.get(&value) != Some(&value) || !self.has_size_of(slot, value) {
            return None;
        }
        let state = self.now.iter().find(|(_, holder)| **holder == value).map(|(&source, _)| source);
        self.fill(slot, state)
    }

    fn copy_in(&mut self, slot: SlotId, value: ValueId) -> Option<()> {
        let state = *self.stored.get(&slot)?;
        self.laid.schedule.graph.values.get(value).filter(|_| self.has_size_of(slot, value))?;
        self.claim(value)?;
        self.now.extend(state.map(|state| (state, value)));
        let used = self.lines.iter().filter(|owner| **owner != Owner::Nobody).count() as u64;
        self.most = self.most.max(used);
        Some(())
    }

    fn run(&mut self, id: NodeId, freed: &[ValueId]) -> Option<()> {
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
        let placed = self.hand_over(id, node, freed)?;
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
    fn hand_over(&mut self, id: NodeId, node: &Node, freed: &[ValueId]) -> Option<Vec<usize>> {
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
                if let Some(state) = self.now.values_mut().find(|value| **value == root) {
                    *state = output;
                }
            } else if !(allowed.contains(&(i, o)) && freed.contains(&root)) {
                return None;
            }
        }
        Some(placed)
    }
}
