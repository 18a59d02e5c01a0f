//! The state of the local search: a sequence of computes that can be changed and re-measured locally.
//!
//! The sequence is a doubly linked list of slots. Every slot knows its node, the memory while it runs, and the set of
//! values that are needed before it (a bit set). A change replaces a window of slots. Its effect is found by
//! walking backwards from the end of the window: at each slot the needed set of the changed sequence differs from
//! the stored one in a few values, and a value leaves the difference where it is made or read. The walk ends when
//! the difference is empty, which is usually soon. Recomputes that nobody needs any more are met on the way and
//! deleted.
//!
//! Invariant: the sequence is valid (every read value is made before, nothing overwritten is read). A change that
//! would break validity is recognised in the walk: a value would have to be live before the first slot, or after its
//! overwriting.
//!
//! Time of a change: O(bit set + slots up to where the difference vanishes).

use crate::planners::flat::{Flat, NONE};

/// No slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;
/// The slot before the first and the slot after the last; they stand for no node.
pub(crate) const HEAD: u32 = 0;
pub(crate) const TAIL: u32 = 1;

pub(crate) struct Tape<'a> {
    pub(crate) flat: &'a Flat,
    budget: i64,
    words: usize,
    pub(crate) node: Vec<u32>,
    pub(crate) prev: Vec<u32>,
    pub(crate) next: Vec<u32>,
    memory: Vec<i64>,
    /// Bytes of the values needed before each slot.
    held: Vec<i64>,
    needed: Vec<u64>,
    unused: Vec<u32>,
    /// Slots of each node.
    pub(crate) runs: Vec<Vec<u32>>,
    /// All slots in use, in no particular order, and the place of each in the list.
    pub(crate) slots: Vec<u32>,
    place: Vec<u32>,
    /// Nodes with more than one slot, and the place of each in the list.
    pub(crate) repeated: Vec<u32>,
    repeated_place: Vec<u32>,
    /// Sum of the costs of all slots.
    pub(crate) cost: f64,
    /// Sum over all slots of the bytes above the budget.
    pub(crate) excess: i64,
    /// The same sum with a weight per node.
    pub(crate) penalty: f64,
    weight: Vec<f64>,
    // Scratch space of the walk.
    now: Vec<u64>,
    now_held: i64,
    difference: Vec<u32>,
    is_different: Vec<bool>,
    deleted: Vec<u32>,
    /// Runs that each node gains or loses by the change, and the nodes with an entry.
    run_change: Vec<i32>,
    run_changed: Vec<u32>,
    /// Slots visited by all walks so far.
    pub(crate) work: u64,
}

/// A change: the slots between `resume` and `end` (both exclusive) are replaced by `window`.
#[derive(Clone, Default)]
pub(crate) struct Change {
    /// The last slot before the window.
    pub(crate) resume: u32,
    /// The first slot after the window.
    pub(crate) end: u32,
    /// What runs in between, in order: existing slots of the old window, or new runs of a node.
    pub(crate) window: Vec<Item>,
}

/// One element of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// A slot that stood in the old window.
    Old(u32),
    /// A new run of a node.
    New(u32),
}

/// The effect of a change on the two parts of the objective.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Effect {
    pub(crate) cost: f64,
    pub(crate) excess: i64,
    pub(crate) penalty: f64,
}

impl Effect {
    #[inline]
    fn add_excess(&mut self, bytes: i64, weight: f64) {
        self.excess += bytes;
        self.penalty += weight * bytes as f64;
    }
}

impl<'a> Tape<'a> {
    pub(crate) fn new(flat: &'a Flat, budget: i64, computes: &[u32]) -> Tape<'a> {
        let words = flat.n_values().div_ceil(64);
        let mut tape = Tape {
            flat,
            budget,
            words,
            node: vec![NO_SLOT; 2],
            prev: vec![NO_SLOT, HEAD],
            next: vec![TAIL, NO_SLOT],
            memory: vec![i64::MIN; 2],
            held: vec![0; 2],
            needed: vec![0; 2 * words],
            unused: Vec::new(),
            runs: vec![Vec::new(); flat.n_nodes()],
            slots: Vec::new(),
            place: vec![NO_SLOT; 2],
            repeated: Vec::new(),
            repeated_place: vec![NO_SLOT; flat.n_nodes()],
            cost: 0.0,
            excess: 0,
            penalty: 0.0,
            weight: vec![1.0; flat.n_nodes()],
            now: vec![0; words],
            now_held: 0,
            difference: Vec::new(),
            is_different: vec![false; flat.n_values()],
            deleted: Vec::new(),
            run_change: vec![0; flat.n_nodes()],
            run_changed: Vec::new(),
            work: 0,
        };
        for v in (0..flat.n_values()).filter(|&v| flat.is_output[v]) {
            tape.needed[TAIL as usize * words + v / 64] |= 1 << (v % 64);
            tape.held[TAIL as usize] += flat.bytes[v];
        }
        tape.load(computes);
        tape
    }

    /// Replaces the whole sequence by another valid one.
    pub(crate) fn load(&mut self, computes: &[u32]) {
        for slot in std::mem::take(&mut self.slots) {
            self.place[slot as usize] = NO_SLOT;
            self.unused.push(slot);
        }
        self.runs.iter_mut().for_each(Vec::clear);
        for n in std::mem::take(&mut self.repeated) {
            self.repeated_place[n as usize] = NO_SLOT;
        }
        (self.next[HEAD as usize], self.prev[TAIL as usize]) = (TAIL, HEAD);
        let mut computes = computes.to_vec();
        self.flat.prune(&mut computes);
        let mut after = TAIL;
        self.cost = 0.0;
        for &n in computes.iter().rev() {
            let slot = self.add_slot(n);
            self.link(HEAD, slot);
            self.link(slot, after);
            self.begin(after);
            let memory = self.step_back(n as usize);
            self.store(slot, memory.expect("the sequence to load is valid"));
            self.cost += self.flat.cost[n as usize];
            after = slot;
        }
        self.add_up_excess();
    }

    /// The sequence of nodes.
    pub(crate) fn computes(&self) -> Vec<u32> {
        let mut computes = Vec::with_capacity(self.slots.len());
        let mut slot = self.next[HEAD as usize];
        while slot != TAIL {
            computes.push(self.node[slot as usize]);
            slot = self.next[slot as usize];
        }
        computes
    }

    /// Raises the weight of nodes that run above the budget and lowers that of the others, within limits.
    pub(crate) fn adjust_weights(&mut self, up: f64, down: f64) {
        for &slot in &self.slots {
            let weight = &mut self.weight[self.node[slot as usize] as usize];
            let factor = if self.memory[slot as usize] > self.budget { up } else { down };
            *weight = (*weight * factor).clamp(1e-3, 1e3);
        }
        self.add_up_excess();
    }

    fn add_up_excess(&mut self) {
        (self.excess, self.penalty) = (0, 0.0);
        for &slot in &self.slots {
            let bytes = (self.memory[slot as usize] - self.budget).max(0);
            self.excess += bytes;
            self.penalty += self.weight[self.node[slot as usize] as usize] * bytes as f64;
        }
    }

    #[inline]
    pub(crate) fn memory(&self, slot: u32) -> i64 {
        self.memory[slot as usize]
    }

    /// Whether a value is needed before a slot.
    #[inline]
    pub(crate) fn is_needed(&self, slot: u32, v: u32) -> bool {
        self.needed[slot as usize * self.words + v as usize / 64] >> (v % 64) & 1 != 0
    }

    /// The set of values needed before a slot, as words of 64 bits.
    pub(crate) fn needed_words(&self, slot: u32) -> &[u64] {
        &self.needed[slot as usize * self.words..][..self.words]
    }

    /// What the change would do, or nothing if it is not valid. The tape stays as it is.
    pub(crate) fn try_change(&mut self, change: &Change) -> Option<Effect> {
        let effect = self.walk::<false>(change);
        self.clear_scratch();
        effect
    }

    /// Carries out a change that [`Tape::try_change`] found valid.
    pub(crate) fn apply(&mut self, change: &Change) {
        let effect = self.walk::<true>(change).expect("the change was tried before");
        self.cost += effect.cost;
        self.excess += effect.excess;
        self.penalty += effect.penalty;
        while let Some(slot) = self.deleted.pop() {
            let (prev, next) = (self.prev[slot as usize], self.next[slot as usize]);
            self.link(prev, next);
            self.remove_slot(slot);
        }
        self.clear_scratch();
    }

    fn clear_scratch(&mut self) {
        for v in self.difference.drain(..) {
            self.is_different[v as usize] = false;
        }
        self.deleted.clear();
        for n in self.run_changed.drain(..) {
            self.run_change[n as usize] = 0;
        }
    }

    /// Goes back through the window and then through what stands before it, until nothing differs any more. With
    /// `APPLY` the stored sets, memories and links are updated on the way; slots to delete are only listed.
    fn walk<const APPLY: bool>(&mut self, change: &Change) -> Option<Effect> {
        let mut effect = Effect { cost: 0.0, excess: 0, penalty: 0.0 };
        let removed = self.account_window(change, &mut effect);
        self.begin(change.end);
        // The needed set before the old window, with which the unchanged part compares.
        let old_first = self.next[change.resume as usize];
        let mut compare: Vec<u64> = Vec::new();
        if APPLY {
            compare.extend_from_slice(&self.needed[old_first as usize * self.words..][..self.words]);
        }

        let mut after = change.end;
        for &item in change.window.iter().rev() {
            let n = match item {
                Item::Old(slot) => self.node[slot as usize],
                Item::New(n) => n,
            } as usize;
            let memory = self.step_back(n)?;
            effect.add_excess((memory - self.budget).max(0), self.weight[n]);
            if APPLY {
                let slot = match item {
                    Item::Old(slot) => slot,
                    Item::New(n) => self.add_slot(n),
                };
                self.store(slot, memory);
                self.link(slot, after);
                after = slot;
            }
        }
        if APPLY {
            self.link(change.resume, after);
            for slot in removed {
                self.remove_slot(slot);
            }
        } else {
            for slot in removed {
                self.count_run(self.node[slot as usize], -1);
            }
            for &item in &change.window {
                if let Item::New(n) = item {
                    self.count_run(n, 1);
                }
            }
        }
        self.find_difference(old_first, APPLY.then_some(&compare));
        self.walk_prefix::<APPLY>(change, compare, &mut effect)?;
        Some(effect)
    }

    /// Takes the old window out of the account and puts the costs of the new one in; lists the slots that go.
    fn account_window(&mut self, change: &Change, effect: &mut Effect) -> Vec<u32> {
        let mut n_old = 0;
        let mut slot = self.next[change.resume as usize];
        while slot != change.end {
            n_old += 1;
            let n = self.node[slot as usize] as usize;
            effect.cost -= self.flat.cost[n];
            effect.add_excess(-(self.memory[slot as usize] - self.budget).max(0), self.weight[n]);
            slot = self.next[slot as usize];
        }
        self.work += (n_old + change.window.len()) as u64 + 4;
        let mut n_stay = 0;
        for &item in &change.window {
            effect.cost += match item {
                Item::Old(slot) => {
                    n_stay += 1;
                    self.flat.cost[self.node[slot as usize] as usize]
                }
                Item::New(n) => self.flat.cost[n as usize],
            };
        }
        let mut removed = Vec::new();
        if n_stay < n_old {
            let mut slot = self.next[change.resume as usize];
            while slot != change.end {
                if !change.window.contains(&Item::Old(slot)) {
                    removed.push(slot);
                }
                slot = self.next[slot as usize];
            }
        }
        removed
    }

    fn count_run(&mut self, n: u32, by: i32) {
        self.run_change[n as usize] += by;
        self.run_changed.push(n);
    }

    /// Starts a walk with the set needed before a slot.
    fn begin(&mut self, slot: u32) {
        self.now.copy_from_slice(&self.needed[slot as usize * self.words..][..self.words]);
        self.now_held = self.held[slot as usize];
    }

    /// Lists the values in which the current set differs from another one.
    fn find_difference(&mut self, first: u32, saved: Option<&[u64]>) {
        let other = saved.unwrap_or(&self.needed[first as usize * self.words..][..self.words]);
        for (word, (new, old)) in self.now.iter().zip(other).enumerate() {
            let mut bits = new ^ old;
            while bits != 0 {
                let v = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                self.difference.push(v);
                self.is_different[v as usize] = true;
            }
        }
    }

    /// Follows the difference through the unchanged slots before the window.
    ///
    /// `old_after` answers whether a value was needed after the current slot in the old sequence. When applying, the
    /// stored set of the following slot has been overwritten already, so the old one is carried along in `carried`.
    fn walk_prefix<const APPLY: bool>(
        &mut self,
        change: &Change,
        mut carried: Vec<u64>,
        effect: &mut Effect,
    ) -> Option<()> {
        let flat = self.flat;
        let mut slot = change.resume;
        let mut old_next = if APPLY { NO_SLOT } else { self.next[change.resume as usize] };
        while !self.difference.is_empty() {
            if slot == HEAD {
                // Only inputs of the problem exist before the first slot.
                let is_valid = self.difference.iter().all(|&v| flat.producer[v as usize] == NONE);
                return is_valid.then_some(());
            }
            self.work += 1;
            let n = self.node[slot as usize] as usize;
            let needed = &self.needed;
            let words = self.words;
            let old_after = |v: u32| {
                let word = if APPLY {
                    carried[v as usize / 64]
                } else {
                    needed[old_next as usize * words + v as usize / 64]
                };
                word >> (v % 64) & 1 != 0
            };
            let (outputs, inputs) = (flat.outputs.get(n), flat.inputs.get(n));
            let touches_output = outputs.iter().any(|&v| self.is_different[v as usize]);
            let touches_input = inputs.iter().any(|&v| self.is_different[v as usize]);
            let new_after = |v: u32| old_after(v) != self.is_different[v as usize];

            let dies = touches_output
                && self.runs[n].len() as i32 + self.run_change[n] > 1
                && outputs.iter().all(|&v| !new_after(v));
            if dies {
                effect.cost -= flat.cost[n];
                effect.add_excess(-(self.memory[slot as usize] - self.budget).max(0), self.weight[n]);
                // Before the slot: its outputs are not needed in either sequence; its inputs were needed in the old one
                // and are needed in the new one only if something later needs them.
                let still: Vec<(u32, bool)> = inputs.iter().map(|&v| (v, new_after(v))).collect();
                for &v in outputs {
                    self.set_different(v, false);
                }
                for (v, is_needed) in still {
                    self.set_different(v, !is_needed);
                }
                self.count_run(n as u32, -1);
                self.deleted.push(slot);
                if APPLY {
                    carried.copy_from_slice(&self.needed[slot as usize * words..][..words]);
                }
            } else {
                let mut shared_less = 0;
                if touches_input {
                    if flat.consumes.get(n).iter().any(|&v| new_after(v)) {
                        return None;
                    }
                    if !flat.reuse.get(n).is_empty() {
                        shared_less = flat.shared_bytes(n, old_after) - flat.shared_bytes(n, new_after);
                    }
                }
                if touches_output {
                    for &v in outputs {
                        self.set_different(v, false);
                    }
                }
                if touches_input {
                    for &v in inputs {
                        self.set_different(v, false);
                    }
                }
                let mut held_more = 0;
                for &v in &self.difference {
                    let bytes = flat.bytes[v as usize];
                    held_more += if self.is_needed(slot, v) { -bytes } else { bytes };
                }
                let delta = held_more + shared_less;
                let memory = self.memory[slot as usize];
                let more = (memory + delta - self.budget).max(0) - (memory - self.budget).max(0);
                effect.add_excess(more, self.weight[n]);
                if APPLY {
                    carried.copy_from_slice(&self.needed[slot as usize * words..][..words]);
                    self.memory[slot as usize] = memory + delta;
                    self.held[slot as usize] += held_more;
                    for &v in &self.difference {
                        self.needed[slot as usize * words + v as usize / 64] ^= 1 << (v % 64);
                    }
                }
            }
            old_next = slot;
            slot = self.prev[slot as usize];
        }
        Some(())
    }

    #[inline]
    fn set_different(&mut self, v: u32, different: bool) {
        if std::mem::replace(&mut self.is_different[v as usize], different) != different {
            if different {
                self.difference.push(v);
            } else {
                let at = self.difference.iter().position(|&w| w == v).expect("the flag and the list agree");
                self.difference.swap_remove(at);
            }
        }
    }

    /// Turns the set needed after a run of `n` into the set needed before it, and returns the memory meanwhile;
    /// nothing if `n` overwrites a value that is needed afterwards.
    fn step_back(&mut self, n: usize) -> Option<i64> {
        let flat = self.flat;
        let is_set = |now: &[u64], v: u32| now[v as usize / 64] >> (v % 64) & 1 != 0;
        if flat.consumes.get(n).iter().any(|&v| is_set(&self.now, v)) {
            return None;
        }
        let shared = flat.shared_bytes(n, |v| is_set(&self.now, v));
        for &v in flat.outputs.get(n) {
            if is_set(&self.now, v) {
                self.now[v as usize / 64] &= !(1 << (v % 64));
                self.now_held -= flat.bytes[v as usize];
            }
        }
        for &v in flat.inputs.get(n) {
            if !is_set(&self.now, v) {
                self.now[v as usize / 64] |= 1 << (v % 64);
                self.now_held += flat.bytes[v as usize];
            }
        }
        Some(flat.fixed + self.now_held + flat.extra[n] - shared)
    }

    fn store(&mut self, slot: u32, memory: i64) {
        self.memory[slot as usize] = memory;
        self.held[slot as usize] = self.now_held;
        self.needed[slot as usize * self.words..][..self.words].copy_from_slice(&self.now);
    }

    fn link(&mut self, a: u32, b: u32) {
        self.next[a as usize] = b;
        self.prev[b as usize] = a;
    }

    fn add_slot(&mut self, n: u32) -> u32 {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.node.push(NO_SLOT);
            self.prev.push(NO_SLOT);
            self.next.push(NO_SLOT);
            self.memory.push(0);
            self.held.push(0);
            self.place.push(NO_SLOT);
            self.needed.resize(self.needed.len() + self.words, 0);
            self.node.len() as u32 - 1
        });
        self.node[slot as usize] = n;
        self.place[slot as usize] = self.slots.len() as u32;
        self.slots.push(slot);
        self.runs[n as usize].push(slot);
        if self.runs[n as usize].len() == 2 {
            self.repeated_place[n as usize] = self.repeated.len() as u32;
            self.repeated.push(n);
        }
        slot
    }

    fn remove_slot(&mut self, slot: u32) {
        let at = std::mem::replace(&mut self.place[slot as usize], NO_SLOT) as usize;
        self.slots.swap_remove(at);
        if let Some(&moved) = self.slots.get(at) {
            self.place[moved as usize] = at as u32;
        }
        self.unused.push(slot);
        let n = self.node[slot as usize] as usize;
        self.runs[n].retain(|&other| other != slot);
        if self.runs[n].len() == 1 {
            let at = std::mem::replace(&mut self.repeated_place[n], NO_SLOT) as usize;
            self.repeated.swap_remove(at);
            if let Some(&moved) = self.repeated.get(at) {
                self.repeated_place[moved as usize] = at as u32;
            }
        }
    }
}
