//! Trying and applying a change: the incremental account.
//!
//! In: a [`Change`]. Out: its [`Effect`] on cost and memory, or nothing if it is not valid; with [`Tape::apply`] the changed
//! tape. Invariant: after applying, every stored set and memory is what a full walk over the sequence would give; a
//! test compares them after every move. Time: O(window + bit set + slots up to where the difference vanishes).

use super::{Change, Effect, HEAD, Item, Most, Tape};
use crate::schedule::flat::NONE;

impl Tape<'_> {
    /// What the change would do, or nothing if it is not valid or surely worse than `most`. The tape stays as it is.
    pub(crate) fn try_change(&mut self, change: &Change, most: Most) -> Option<Effect> {
        let effect = self.walk::<false>(change, most);
        self.clear_scratch();
        effect
    }

    /// Carries out a change that [`Tape::try_change`] found valid.
    pub(crate) fn apply(&mut self, change: &Change) {
        let effect = self.walk::<true>(change, Most::ANY).expect("the change was tried before");
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
        (self.held_more, self.n_less, self.difference_mask) = (0, 0, 0);
        self.deleted.clear();
        for n in self.run_changed.drain(..) {
            self.run_change[n as usize] = 0;
        }
    }

    /// Goes back through the window and then through what comes before it, until nothing differs any more. With
    /// `APPLY` the stored sets, memories and links are updated on the way; slots to delete are only listed.
    fn walk<const APPLY: bool>(&mut self, change: &Change, most: Most) -> Option<Effect> {
        let mut effect = Effect { cost: 0.0, excess: 0, penalty: 0.0 };
        let removed = self.account_window(change, &mut effect);
        self.begin(change.end);
        // The needed set before the old window, with which the unchanged part compares. A slot of the window that
        // moves is stored again, so the set is saved first.
        let old_first = self.next[change.resume as usize];
        let mut compare = std::mem::take(&mut self.compare);
        compare.clear();
        compare.extend_from_slice(self.needed_words(old_first));

        let mut after = change.end;
        for &item in change.window.iter().rev() {
            let n = match item {
                Item::Old(slot) => self.node[slot as usize],
                Item::New(n) => n,
            } as usize;
            let Some(memory) = self.step_back(n) else {
                self.compare = compare;
                return None;
            };
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
        self.find_difference(&compare);
        self.compare = compare;
        self.walk_prefix::<APPLY>(change.resume, &mut effect, most)?;
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
            let mark = |is_staying: &mut [bool], flag: bool| {
                for &item in &change.window {
                    if let Item::Old(slot) = item {
                        is_staying[slot as usize] = flag;
                    }
                }
            };
            mark(&mut self.is_staying, true);
            let mut slot = self.next[change.resume as usize];
            while slot != change.end {
                if !self.is_staying[slot as usize] {
                    removed.push(slot);
                }
                slot = self.next[slot as usize];
            }
            mark(&mut self.is_staying, false);
        }
        removed
    }

    fn count_run(&mut self, n: u32, by: i32) {
        self.run_change[n as usize] += by;
        self.run_changed.push(n);
    }

    /// Lists the values in which the current set differs from an older one.
    fn find_difference(&mut self, older: &[u64]) {
        for (word, old) in older.iter().enumerate() {
            let new = self.now[word];
            let mut bits = new ^ old;
            while bits != 0 {
                let v = word as u32 * 64 + bits.trailing_zeros();
                let is_more = new & bits & bits.wrapping_neg() != 0;
                bits &= bits - 1;
                self.difference.push(v);
                self.is_different[v as usize] = true;
                self.count_difference(v, is_more, 1);
            }
        }
        self.update_mask();
    }

    /// Follows the difference through the unchanged slots before the window.
    ///
    /// A value that differs is needed in the new sequence and not in the old one, or the other way round, and this does
    /// not change until it is read or made. So between such slots the memory differs by a constant, and these slots,
    /// nearly all, are recognised by a mask with a bit per value (modulo 64).
    fn walk_prefix<const APPLY: bool>(
        &mut self,
        mut slot: u32,
        effect: &mut Effect,
        most: Most,
    ) -> Option<()> {
        let flat = self.flat;
        // The slot whose stored set tells what is needed after the current one: the old set, or when applying the
        // new one, since that slot has been updated already.
        let mut stored = self.next[slot as usize];
        while !self.difference.is_empty() {
            if slot == HEAD {
                // Only inputs of the problem exist before the first slot.
                let is_valid = self.difference.iter().all(|&v| flat.producer[v as usize] == NONE);
                return is_valid.then_some(());
            }
            self.work += 1;
            let n = self.node[slot as usize] as usize;
            if self.operand_mask[n] & self.difference_mask == 0 {
                let delta = self.held_more;
                self.add_memory::<APPLY>(slot, n, delta, delta, effect);
                stored = slot;
                slot = self.prev[slot as usize];
                continue;
            }
            if self.n_less == 0 && effect.cost + most.price * effect.penalty > most.objective {
                // From here on memory only grows, and nothing becomes superfluous.
                return None;
            }
            let (outputs, inputs) = (flat.outputs.get(n), flat.inputs.get(n));
            let is_stored =
                |v: u32| self.needed[stored as usize * self.words + v as usize / 64] >> (v % 64) & 1 != 0;
            let new_after = |v: u32| is_stored(v) != (!APPLY && self.is_different[v as usize]);
            let old_after = |v: u32| is_stored(v) != (APPLY && self.is_different[v as usize]);
            let touches_output = outputs.iter().any(|&v| self.is_different[v as usize]);
            let touches_input = inputs.iter().any(|&v| self.is_different[v as usize]);

            let dies = touches_output
                && self.runs[n].len() as i32 + self.run_change[n] > flat.least_runs[n] as i32
                && outputs.iter().all(|&v| !new_after(v));
            if dies {
                effect.cost -= flat.cost[n];
                effect.add_excess(-(self.memory[slot as usize] - self.budget).max(0), self.weight[n]);
                // Before the slot: its outputs are not needed in either sequence; its inputs were needed in the old one
                // and are needed in the new one only if something later needs them.
                let mut n_unneeded = 0;
                for &v in inputs {
                    if !new_after(v) {
                        self.unneeded.push(v);
                        n_unneeded += 1;
                    }
                }
                self.agree(outputs);
                self.agree(inputs);
                for _ in 0..n_unneeded {
                    let v = self.unneeded.pop().expect("pushed above");
                    self.difference.push(v);
                    self.is_different[v as usize] = true;
                    self.count_difference(v, false, 1);
                }
                self.update_mask();
                self.count_run(n as u32, -1);
                self.deleted.push(slot);
                if !APPLY {
                    stored = slot;
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
                    self.agree(outputs);
                }
                if touches_input {
                    self.agree(inputs);
                }
                if touches_input || touches_output {
                    self.update_mask();
                }
                let held_more = self.held_more;
                self.add_memory::<APPLY>(slot, n, held_more, held_more + shared_less, effect);
                stored = slot;
            }
            slot = self.prev[slot as usize];
        }
        Some(())
    }

    /// Accounts for `delta` more bytes at a slot, `held_more` of them for values needed before it.
    #[inline]
    fn add_memory<const APPLY: bool>(
        &mut self,
        slot: u32,
        n: usize,
        held_more: i64,
        delta: i64,
        effect: &mut Effect,
    ) {
        let above = self.memory[slot as usize] - self.budget;
        let more = (above + delta).max(0) - above.max(0);
        // Most slots are below the budget, and a predicted branch is cheaper than a chain of additions.
        if more != 0 {
            effect.add_excess(more, self.weight[n]);
        }
        if APPLY {
            self.memory[slot as usize] += delta;
            self.held[slot as usize] += held_more;
            for &v in &self.difference {
                self.needed[slot as usize * self.words + v as usize / 64] ^= 1 << (v % 64);
            }
        }
    }

    /// Adds a value to the totals of the difference, or takes it out.
    #[inline]
    fn count_difference(&mut self, v: u32, is_more: bool, by: i64) {
        let bytes = by * self.flat.bytes[v as usize];
        if is_more {
            self.held_more += bytes;
        } else {
            self.held_more -= bytes;
            self.n_less += by;
        }
        self.is_more[v as usize] = is_more;
    }

    /// Takes values out of the difference: both sequences need them, or neither does.
    fn agree(&mut self, values: &[u32]) {
        for &v in values {
            if std::mem::replace(&mut self.is_different[v as usize], false) {
                let at = self.difference.iter().position(|&w| w == v).expect("the flag and the list agree");
                self.difference.swap_remove(at);
                self.count_difference(v, self.is_more[v as usize], -1);
            }
        }
    }

    fn update_mask(&mut self) {
        self.difference_mask = self.difference.iter().fold(0, |mask, &v| mask | 1 << (v % 64));
    }
}
