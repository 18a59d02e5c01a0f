//! Checks a layout by walking the schedule over addresses. Shares no code with the code that made it.
//!
//! At every moment the live storages are a set of address ranges. A run may place an output only on free addresses,
//! or exactly on the storage of an input that this run hands over (a consumed state, or an input that the op may
//! overwrite and that is freed before anything else happens). Nothing lies outside the arena, state ends the step where the
//! next one expects it, and what has a place already keeps it. The same holds for the slots of each store, from the copy that
//! fills one until it is discarded.
//!
//! Executors rely on this and on nothing else, so it takes any layout of any schedule: sums are checked, and an index that
//! leads nowhere is a fault.

use super::{Layout, LayoutFault, Occupant, Table};
use crate::graph::{ALIGNMENT, Graph, Node};
use crate::ids::{NodeId, SlotId, ValueId};
use crate::rewrite::{Schedule, Step};
use crate::store::PAGE;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Every fault; empty for a right layout. `placed` are the sources that lay somewhere before, and where.
pub fn check(schedule: &Schedule, layout: &Layout, placed: &[(ValueId, u64)]) -> Vec<LayoutFault> {
    let graph = &schedule.graph;
    let mut faults = Vec::new();
    for (table, found, expected) in [
        (Table::Offset, layout.offset.len(), graph.values.len()),
        (Table::Workspace, layout.workspace.len(), graph.nodes.len()),
        (Table::Shared, layout.shared.len(), graph.nodes.len()),
        (Table::Slots, layout.slots.len(), schedule.slots.len()),
    ] {
        if found != expected {
            faults.push(LayoutFault::ShortTable { table, found, expected });
        }
    }
    if !faults.is_empty() {
        return faults;
    }
    let mut walk = Walk {
        schedule,
        graph,
        layout,
        faults,
        addresses: Addresses::default(),
        stores: layout.stores.iter().map(|_| Addresses::default()).collect(),
        slots: HashMap::new(),
        lies_on: HashMap::new(),
        live: HashSet::new(),
        handed_over: HashMap::new(),
        state_in: HashMap::new(),
        most_used: None,
    };
    walk.begin(placed);
    for (at, step) in schedule.steps.iter().enumerate() {
        match *step {
            Step::Free(value) => walk.free(at, value),
            Step::Run(node) => walk.run(at, node),
            Step::Out(value, slot) => walk.copy_out(at, value, slot),
            Step::In(slot, value) => walk.copy_in(at, slot, value),
            Step::Discard(slot) => walk.discard(at, slot),
        }
    }
    walk.end()
}

/// Live address ranges.
#[derive(Default)]
struct Addresses {
    /// Start to end and occupant; without the empty ones, which overlap nothing.
    ranges: BTreeMap<u64, (u64, Occupant)>,
    /// Where each occupant begins, and its bytes.
    held: HashMap<Occupant, (u64, u64)>,
    used: u64,
    /// Where the highest range ended that was ever occupied.
    highest: u64,
}

impl Addresses {
    fn occupy(
        &mut self,
        occupant: Occupant,
        start: u64,
        bytes: u64,
        arena: u64,
        faults: &mut Vec<LayoutFault>,
    ) {
        let alignment = if matches!(occupant, Occupant::Slot(_)) { PAGE } else { ALIGNMENT };
        if !start.is_multiple_of(alignment) {
            faults.push(LayoutFault::Unaligned { occupant, start });
        }
        let Some(end) = start.checked_add(bytes).filter(|&end| end <= arena) else {
            faults.push(LayoutFault::Outside { occupant, start, bytes, arena });
            return;
        };
        let below = self.ranges.range(..end).next_back();
        if let Some((&other_start, &(other_end, other))) = below
            && other_end > start
            && bytes > 0
        {
            let other_range = (other_start, other_end);
            faults.push(LayoutFault::Overlap { occupant, range: (start, end), other, other_range });
            return;
        }
        self.used += bytes;
        self.highest = self.highest.max(end);
        self.held.insert(occupant, (start, bytes));
        if bytes > 0 {
            self.ranges.insert(start, (end, occupant));
        }
    }

    /// An occupant that got no range, since a fault was found, gives none back.
    fn release(&mut self, occupant: Occupant) {
        let Some((start, bytes)) = self.held.remove(&occupant) else { return };
        self.used -= bytes;
        if bytes > 0 {
            self.ranges.remove(&start);
        }
    }
}

/// What is in memory while the steps are followed.
struct Walk<'a> {
    schedule: &'a Schedule,
    graph: &'a Graph,
    layout: &'a Layout,
    faults: Vec<LayoutFault>,
    addresses: Addresses,
    /// Of each store.
    stores: Vec<Addresses>,
    /// Every slot that holds something, and the source of the state in it, if it is state.
    slots: HashMap<SlotId, Option<ValueId>>,
    /// Every value made so far to the value whose storage it lies in: itself, or what it views.
    lies_on: HashMap<ValueId, ValueId>,
    /// Values that hold storage, addresses taken over or not.
    live: HashSet<ValueId>,
    /// Inputs that an output of the last run lies on, and that run; they must be freed before the next.
    handed_over: HashMap<ValueId, NodeId>,
    /// Each live value that is state, and the source it came from.
    state_in: HashMap<ValueId, ValueId>,
    /// The most bytes in use during a run.
    most_used: Option<u64>,
}

impl Walk<'_> {
    fn begin(&mut self, placed: &[(ValueId, u64)]) {
        let graph = self.graph;
        for value in graph.sources.iter().map(|source| source.value) {
            let Some(record) = graph.values.get(value) else {
                self.faults.push(LayoutFault::NoSuchValue { at: None, value });
                continue;
            };
            if self.schedule.carried.iter().any(|carried| carried.source == value) {
                continue;
            }
            if record.kind.is_state() {
                self.state_in.insert(value, value);
            }
            self.make(value);
        }
        for carried in &self.schedule.carried {
            self.fill(None, carried.begin, Some(carried.source));
        }
        for &(value, expected) in placed {
            let carried = self.schedule.carried.iter().find(|carried| carried.source == value);
            if let Some(&found) = carried.and_then(|carried| self.layout.slots.get(carried.begin)) {
                if found != expected {
                    self.faults.push(LayoutFault::Displaced { value, expected, found });
                }
                continue;
            }
            match self.layout.offset.get(value) {
                None => self.faults.push(LayoutFault::NoSuchValue { at: None, value }),
                Some(&Some(found)) if found != expected => {
                    self.faults.push(LayoutFault::Displaced { value, expected, found });
                }
                // What has no place at all was reported above.
                Some(_) => {}
            }
        }
    }

    fn bytes(&self, value: ValueId) -> u64 {
        self.graph.values[value].ty.bytes().div_ceil(ALIGNMENT) * ALIGNMENT
    }

    /// A value begins to live, with storage of its own.
    fn make(&mut self, value: ValueId) {
        self.lies_on.insert(value, value);
        self.live.insert(value);
        match self.layout.offset[value] {
            None => self.faults.push(LayoutFault::NoPlace { value }),
            Some(start) => {
                let (bytes, arena) = (self.bytes(value), self.layout.arena.0);
                self.addresses.occupy(Occupant::Value(value), start, bytes, arena, &mut self.faults);
            }
        }
    }

    fn free(&mut self, at: usize, value: ValueId) {
        self.state_in.remove(&value);
        if !self.live.remove(&value) {
            self.faults.push(LayoutFault::FreedWhenDead { at, value });
        } else if self.handed_over.remove(&value).is_none() {
            self.addresses.release(Occupant::Value(value));
        }
    }

    /// A slot begins to hold something.
    fn fill(&mut self, at: Option<usize>, slot: SlotId, state: Option<ValueId>) {
        let (Some(known), Some(&start)) = (self.schedule.slots.get(slot), self.layout.slots.get(slot)) else {
            self.faults.push(LayoutFault::NoSuchSlot { at, slot });
            return;
        };
        if self.slots.insert(slot, state).is_some() {
            self.faults.push(LayoutFault::SlotTaken { at, slot });
            return;
        }
        let (Some(addresses), Some(size)) =
            (self.stores.get_mut(known.store.index()), self.layout.stores.get(known.store.index()))
        else {
            self.faults.push(LayoutFault::NoSuchStore { slot });
            return;
        };
        let Some(of) = self.graph.values.get(known.of) else {
            self.faults.push(LayoutFault::NoSuchValue { at, value: known.of });
            return;
        };
        let bytes = of.ty.bytes().div_ceil(PAGE) * PAGE;
        addresses.occupy(Occupant::Slot(slot), start, bytes, size.0, &mut self.faults);
    }

    /// Whether as many bytes are copied as the slot is for.
    fn check_size(&mut self, at: usize, slot: SlotId, value: ValueId) {
        let of = self.schedule.slots.get(slot).and_then(|slot| self.graph.values.get(slot.of));
        if of.is_some_and(|of| of.ty.bytes() != self.graph.values[value].ty.bytes()) {
            self.faults.push(LayoutFault::OtherSize { at, slot, value });
        }
    }

    fn copy_out(&mut self, at: usize, value: ValueId, slot: SlotId) {
        self.report_handed_over();
        if !self.live.contains(&value) {
            self.faults.push(LayoutFault::CopiesDead { at, value });
            return;
        }
        self.check_size(at, slot, value);
        self.fill(Some(at), slot, self.state_in.get(&value).copied());
    }

    fn copy_in(&mut self, at: usize, slot: SlotId, value: ValueId) {
        self.report_handed_over();
        if self.graph.values.get(value).is_none() {
            self.faults.push(LayoutFault::NoSuchValue { at: Some(at), value });
            return;
        }
        let Some(&state) = self.slots.get(&slot) else {
            self.faults.push(LayoutFault::SlotEmpty { at, slot });
            return;
        };
        self.check_size(at, slot, value);
        if self.live.contains(&value) {
            self.faults.push(LayoutFault::CopiedAgain { at, value });
            return;
        }
        self.make(value);
        self.state_in.extend(state.map(|state| (value, state)));
        self.most_used = self.most_used.max(Some(self.addresses.used));
    }

    fn discard(&mut self, at: usize, slot: SlotId) {
        self.report_handed_over();
        if self.slots.remove(&slot).is_none() {
            self.faults.push(LayoutFault::SlotEmpty { at, slot });
            return;
        }
        let store = self.schedule.slots.get(slot).map(|slot| slot.store.index());
        if let Some(addresses) = store.and_then(|store| self.stores.get_mut(store)) {
            addresses.release(Occupant::Slot(slot));
        }
    }

    fn report_handed_over(&mut self) {
        let mut kept: Vec<(ValueId, NodeId)> = self.handed_over.drain().collect();
        kept.sort_unstable();
        let fault = |(value, node)| LayoutFault::OverwrittenWhenLive { node, value };
        self.faults.extend(kept.into_iter().map(fault));
    }

    fn run(&mut self, at: usize, id: NodeId) {
        self.report_handed_over();
        let Some(node) = self.graph.nodes.get(id) else {
            self.faults.push(LayoutFault::NoSuchNode { at, node: id });
            return;
        };
        let is_missing = |v: &&ValueId| self.graph.values.get(**v).is_none();
        let missing: Vec<ValueId> =
            node.inputs.iter().chain(&node.outputs).filter(is_missing).copied().collect();
        if !missing.is_empty() {
            let fault = |value| LayoutFault::NoSuchValue { at: Some(at), value };
            self.faults.extend(missing.into_iter().map(fault));
            return;
        }
        for &value in &node.inputs {
            if !self.lies_on.get(&value).is_some_and(|root| self.live.contains(root)) {
                self.faults.push(LayoutFault::ReadsDead { at, node: id, value });
            }
        }
        let made = node.op.def().infer(&self.graph.input_types(node));
        if !made.is_ok_and(|made| made.iter().eq(self.graph.output_types(node).iter().copied())) {
            self.faults.push(LayoutFault::Malformed { at, node: id });
            return;
        }
        match (node.op.def().is_view(), &node.inputs[..], &node.outputs[..]) {
            (true, &[x], &[y]) => self.view(at, id, x, y),
            (true, _, _) => self.faults.push(LayoutFault::Malformed { at, node: id }),
            (false, _, _) => self.compute(at, id, node),
        }
    }

    fn view(&mut self, at: usize, id: NodeId, x: ValueId, y: ValueId) {
        let Some(&root) = self.lies_on.get(&x) else { return };
        self.lies_on.insert(y, root);
        if self.layout.offset[y] != self.layout.offset[root] || self.bytes(y) > self.bytes(root) {
            self.faults.push(LayoutFault::ViewApart { at, node: id, value: root });
        }
    }

    fn compute(&mut self, at: usize, id: NodeId, node: &Node) {
        self.take_over(at, id, node);
        for &value in &node.outputs {
            if self.live.contains(&value) {
                self.faults.push(LayoutFault::MadeAgain { at, node: id, value });
            } else {
                self.make(value);
            }
        }
        let (inputs, outputs) = (self.graph.input_types(node), self.graph.output_types(node));
        let workspace = node.op.def().workspace(&inputs, &outputs);
        let (occupant, arena) = (Occupant::Workspace(id), self.layout.arena.0);
        match (self.layout.workspace[id], workspace.checked_next_multiple_of(ALIGNMENT)) {
            (Some(start), Some(bytes)) => {
                self.addresses.occupy(occupant, start, bytes, arena, &mut self.faults);
            }
            (Some(start), None) => {
                self.faults.push(LayoutFault::Outside { occupant, start, bytes: workspace, arena });
            }
            (None, bytes) if bytes != Some(0) => self.faults.push(LayoutFault::NoWorkspace { at, node: id }),
            (None, _) => {}
        }
        self.most_used = self.most_used.max(Some(self.addresses.used));
        self.addresses.release(occupant);
    }

    /// Inputs whose storage becomes that of an output give their addresses back before the outputs take theirs.
    fn take_over(&mut self, at: usize, id: NodeId, node: &Node) {
        let types = self.graph.input_types(node);
        let (consumed, allowed) = (node.op.def().consumes(&types), node.op.def().reuse(&types));
        let shared = &self.layout.shared[id];
        for pair in shared {
            let (Some(&input), Some(&output)) = (node.inputs.get(pair.0), node.outputs.get(pair.1)) else {
                self.faults.push(LayoutFault::NoSuchPair { at, node: id, input: pair.0, output: pair.1 });
                continue;
            };
            let root = self.lies_on.get(&input).copied().unwrap_or(input);
            let offset = &self.layout.offset;
            if offset[root] != offset[output] || self.bytes(root) != self.bytes(output) {
                self.faults.push(LayoutFault::SharedApart { at, node: id, input: root, output });
            }
            if self.handed_over.contains_key(&root) || !self.live.contains(&root) {
                self.faults.push(LayoutFault::TakesOverDead { at, node: id, value: root });
            } else if consumed.contains(pair) {
                self.live.remove(&root);
                if let Some(state) = self.state_in.remove(&root) {
                    self.state_in.insert(output, state);
                }
            } else if allowed.contains(pair) {
                self.handed_over.insert(root, id);
            } else {
                self.faults.push(LayoutFault::MayNotOverwrite { at, node: id, value: input });
            }
            self.addresses.release(Occupant::Value(root));
        }
        for pair in consumed.iter().filter(|pair| !shared.contains(pair)) {
            if let Some(&value) = node.inputs.get(pair.0) {
                self.faults.push(LayoutFault::KeepsOldState { at, node: id, value });
            }
        }
    }

    fn end(mut self) -> Vec<LayoutFault> {
        self.report_handed_over();
        let now: HashMap<ValueId, ValueId> =
            self.state_in.iter().map(|(&value, &state)| (state, value)).collect();
        let is_state = |v: &ValueId| self.graph.values.get(*v).is_some_and(|value| value.kind.is_state());
        for carried in &self.schedule.carried {
            let (state, from, to) = (carried.source, carried.begin, carried.end);
            let place = |slot: SlotId| {
                let store = self.schedule.slots.get(slot).map(|slot| slot.store);
                (store, self.layout.slots.get(slot))
            };
            if self.slots.get(&to) != Some(&Some(state)) {
                self.faults.push(LayoutFault::StateLost { state });
            } else if place(from) != place(to) {
                self.faults.push(LayoutFault::StateMovedInStore { state, from, to });
            }
        }
        let is_carried = |v: &ValueId| self.schedule.carried.iter().any(|carried| carried.source == *v);
        let states = self.graph.sources.iter().map(|source| source.value).filter(is_state);
        for state in states.filter(|state| !is_carried(state)) {
            let Some(&value) = now.get(&state).filter(|value| self.live.contains(value)) else {
                self.faults.push(LayoutFault::StateLost { state });
                continue;
            };
            if let (Some(from), Some(to)) = (self.layout.offset[state], self.layout.offset[value])
                && from != to
            {
                self.faults.push(LayoutFault::StateMoved { state, from, to });
            }
        }
        // Without a run, what is there at the beginning is all there is. After another fault the sum means nothing.
        let (claimed, measured) = (self.layout.used.0, self.most_used.unwrap_or(self.addresses.used));
        if self.faults.is_empty() && claimed != measured {
            self.faults.push(LayoutFault::WrongUse { claimed, measured });
        }
        let (arena, highest) = (self.layout.arena.0, self.addresses.highest);
        if self.faults.is_empty() && arena != highest {
            self.faults.push(LayoutFault::ArenaTooLarge { arena, highest });
        }
        for (store, (addresses, size)) in self.stores.iter().zip(&self.layout.stores).enumerate() {
            if self.faults.is_empty() && addresses.highest != size.0 {
                let highest = addresses.highest;
                self.faults.push(LayoutFault::StoreTooLarge { store, size: size.0, highest });
            }
        }
        self.faults
    }
}
