//! The state of the local search: a sequence of computes that can be changed and re-measured locally.
//!
//! The sequence is a doubly linked list of slots. Every slot knows its node, the memory while it runs, and the set of
//! values that are needed before it (a bit set). A change replaces a window of slots. Its effect is found by
//! walking backwards from the end of the window: at each slot the needed set of the changed sequence differs from
//! the stored one in a few values, and a value leaves the difference where it is made or read. The walk ends when
//! the difference is empty, which is usually soon. Recomputes that nothing needs any more are met on the way and
//! deleted.
//!
//! Invariant: the sequence is valid (every read value is made before, nothing overwritten is read). A change that
//! would break validity is recognised in the walk: a value would have to be live before the first slot, or after its
//! overwriting.
//!
//! Time of a change: O(bit set + slots up to where the difference vanishes).

mod walk;

use crate::schedule::flat::Flat;

/// No slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;
/// The slot before the first and the slot after the last; they hold no node.
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
    /// Nodes with more slots than they need, and the place of each in the list.
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
    compare: Vec<u64>,
    unneeded: Vec<u32>,
    is_staying: Vec<bool>,
    /// The values in which the new needed set differs from the old one, with a flag per value, whether the new set
    /// has it, the bytes that the new set has more, the number of values it has less, and a bit per value modulo 64.
    difference: Vec<u32>,
    is_different: Vec<bool>,
    is_more: Vec<bool>,
    held_more: i64,
    n_less: i64,
    difference_mask: u64,
    /// The inputs and outputs of each node, a bit per value modulo 64.
    operand_mask: Vec<u64>,
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

/// The objective above which a change is of no interest: cost + price * penalty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Most {
    pub(crate) price: f64,
    pub(crate) objective: f64,
}

impl Most {
    /// Every valid change is of interest.
    pub(crate) const ANY: Most = Most { price: 0.0, objective: f64::INFINITY };
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
            compare: Vec::new(),
            unneeded: Vec::new(),
            is_staying: vec![false; 2],
            difference: Vec::new(),
            is_different: vec![false; flat.n_values()],
            is_more: vec![false; flat.n_values()],
            held_more: 0,
            n_less: 0,
            difference_mask: 0,
            operand_mask: (0..flat.n_nodes())
                .map(|n| {
                    let operands = flat.inputs.get(n).iter().chain(flat.outputs.get(n));
                    operands.fold(0, |mask, &v| mask | 1 << (v % 64))
                })
                .collect(),
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

    /// The weight of each node in the penalty.
    pub(crate) fn weights(&self) -> &[f64] {
        &self.weight
    }

    /// Replaces the whole sequence by another valid one, and the weights.
    pub(crate) fn load_weighted(&mut self, computes: &[u32], weights: &[f64]) {
        self.weight.copy_from_slice(weights);
        self.load(computes);
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

    /// Raises the weight of nodes that run above the budget and lowers the weight of the others, within limits.
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

    /// Starts a walk with the set needed before a slot.
    fn begin(&mut self, slot: u32) {
        self.now.copy_from_slice(&self.needed[slot as usize * self.words..][..self.words]);
        self.now_held = self.held[slot as usize];
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
            self.is_staying.push(false);
            self.needed.resize(self.needed.len() + self.words, 0);
            self.node.len() as u32 - 1
        });
        self.node[slot as usize] = n;
        self.place[slot as usize] = self.slots.len() as u32;
        self.slots.push(slot);
        self.runs[n as usize].push(slot);
        if self.runs[n as usize].len() == self.flat.least_runs[n as usize] as usize + 1 {
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
        if self.runs[n].len() == self.flat.least_runs[n] as usize {
            let at = std::mem::replace(&mut self.repeated_place[n], NO_SLOT) as usize;
            self.repeated.swap_remove(at);
            if let Some(&moved) = self.repeated.get(at) {
                self.repeated_place[moved as usize] = at as u32;
            }
        }
    }
}
