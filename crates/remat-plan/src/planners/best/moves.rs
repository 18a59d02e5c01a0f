//! The moves of the local search: proposals of changes to the sequence of computes.
//!
//! In: the present sequence. Out: a [`Change`], not yet known to be valid or good. Proposals are cheap and mostly about
//! places with much memory; what they are worth is found by [`Tape::try_change`].
//!
//! - drop: a value that is live after a step which does not make it is dropped there until its next use; its recompute, with
//!   as much of its chain as is missing, is inserted before that use, sometimes long before;
//! - delete: a recompute is removed; recomputes that only it needed disappear with it;
//! - swap: a recompute of b from a is removed and a is dropped instead, so that b is kept in the place of a;
//! - send: a value that is live after a step comes from a store at its next use, or rests in one in the end;
//! - shift: a compute moves to an earlier or later place, as far as its operands allow or by a random distance.
//!
//! Time of a proposal: O(distance to the next use + bit set).

use crate::schedule::flat::NONE;
use crate::schedule::moving::Moving;
use crate::schedule::random::Random;
use crate::schedule::tape::{Change, HEAD, Item, TAIL, Tape};

/// The longest chain of recomputes that one move inserts.
const LONGEST_CHAIN: usize = 40;
/// One in this many dropped values is made again at any place before its next use instead of just before it: before an
/// update overwrites what it is made from, for example.
const EARLY_ONE_IN: usize = 16;
/// The longest window that a swap replaces.
const LONGEST_SWAP: usize = 400;

/// The kinds of moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Drop,
    Delete,
    Swap,
    Shift,
}

/// Makes proposals; the last one is in `change`.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) change: Change,
    stack: Vec<(u32, u32)>,
}

impl Moves {
    /// Fills in `change`, or nothing when no such move was found.
    pub(crate) fn propose(&mut self, kind: Kind, tape: &mut Tape, random: &mut Random) -> Option<()> {
        match kind {
            Kind::Drop => self.propose_drop(tape, random),
            Kind::Delete => self.propose_delete(tape, random),
            Kind::Swap => self.propose_swap(tape, random),
            Kind::Shift => self.propose_shift(tape, random),
        }
    }

    /// A random slot, mostly one with much memory.
    fn high_slot(tape: &Tape, random: &mut Random) -> u32 {
        let n = tape.slots.len();
        let mut best = tape.slots[random.below(n)];
        for _ in 0..random.below(4) {
            let other = tape.slots[random.below(n)];
            if tape.memory(other) > tape.memory(best) {
                best = other;
            }
        }
        best
    }

    /// A value that was live before a slot or is read there and is needed later, if one is met within a few tries. One that
    /// is read there counts because an output may take over its storage if it ends there.
    fn waiting_value(tape: &Tape, random: &mut Random, slot: u32) -> Option<u32> {
        let flat = tape.flat;
        let words = tape.needed_words(tape.next[slot as usize]);
        let n_live: u32 = words.iter().map(|word| word.count_ones()).sum();
        if n_live == 0 {
            return None;
        }
        for _ in 0..4 {
            let v = nth_one(words, random.below(n_live as usize) as u32) as usize;
            let node = tape.node[slot as usize] as usize;
            if !flat.lasting[v] && flat.bytes[v] > 0 && !flat.outputs.get(node).contains(&(v as u32)) {
                return Some(v as u32);
            }
        }
        None
    }

    fn propose_drop(&mut self, tape: &mut Tape, random: &mut Random) -> Option<()> {
        let slot = Moves::high_slot(tape, random);
        let mut v = Moves::waiting_value(tape, random, slot)?;
        let flat = tape.flat;
        // Half of the time the one of two that frees more bytes for its cost.
        if random.below(2) == 0
            && let Some(other) = Moves::waiting_value(tape, random, slot)
        {
            let gain = |v: u32, rival: u32| {
                flat.bytes[v as usize] as f64 * flat.cost[flat.producer[rival as usize] as usize]
            };
            v = if gain(other, v) > gain(v, other) { other } else { v };
        }
        let mut user = tape.next[slot as usize];
        let mut distance = 0;
        while user != TAIL && !flat.inputs.get(tape.node[user as usize] as usize).contains(&v) {
            user = tape.next[user as usize];
            distance += 1;
        }
        tape.work += distance as u64;
        if distance > 0 && random.below(EARLY_ONE_IN) == 0 {
            user = tape.next[slot as usize];
            for _ in 0..random.below(distance) {
                user = tape.next[user as usize];
            }
        }
        self.change.window.clear();
        self.change.resume = tape.prev[user as usize];
        self.change.end = user;
        let eagerness = if random.below(2) == 0 { 100 } else { 60 };
        self.chain(tape, random, flat.producer[v as usize], user, eagerness)
    }

    /// Lets a value that waits after a slot with much memory come from a store for its next use.
    pub(crate) fn propose_send(
        &mut self,
        moving: &Moving,
        tape: &mut Tape,
        random: &mut Random,
    ) -> Option<()> {
        let slot = Moves::high_slot(tape, random);
        let words = tape.needed_words(tape.next[slot as usize]);
        let n_live: u32 = words.iter().map(|word| word.count_ones()).sum();
        if n_live == 0 {
            return None;
        }
        let mut found = None;
        for _ in 0..4 {
            let v = nth_one(words, random.below(n_live as usize) as u32);
            if moving.may_move(v) {
                found = Some(v);
                break;
            }
        }
        let v = found?;
        let flat = tape.flat;
        let mut user = tape.next[slot as usize];
        let mut distance = 0;
        while user != TAIL && !flat.inputs.get(tape.node[user as usize] as usize).contains(&v) {
            user = tape.next[user as usize];
            distance += 1;
        }
        tape.work += distance as u64;
        let rest = moving.rest_node[v as usize];
        let node = if user == TAIL && rest != NONE {
            rest
        } else {
            let n_stores = moving.stores_of(v).count();
            let s = moving.stores_of(v).nth(random.below(n_stores))?;
            moving.in_node(v, s)?
        };
        self.change.window.clear();
        self.change.window.push(Item::New(node));
        self.change.resume = tape.prev[user as usize];
        self.change.end = user;
        Some(())
    }

    /// Replaces a slot by the recompute of a node, with as much of its chain as is missing there.
    pub(crate) fn replace_by_chain(
        &mut self,
        tape: &Tape,
        random: &mut Random,
        slot: u32,
        node: u32,
        user: u32,
    ) -> Option<()> {
        self.change.window.clear();
        self.change.resume = tape.prev[slot as usize];
        self.change.end = user;
        let eagerness = if random.below(3) > 0 { 100 } else { 60 };
        self.chain(tape, random, node, user, eagerness)
    }

    /// Appends the recompute of a node before `user` to the window, after the recomputes of its inputs that are not live
    /// there; each of these is recomputed too with the given percentage, and otherwise kept live until then.
    fn chain(
        &mut self,
        tape: &Tape,
        random: &mut Random,
        node: u32,
        user: u32,
        eagerness: usize,
    ) -> Option<()> {
        let flat = tape.flat;
        self.stack.clear();
        self.stack.push((node, 0));
        while let Some((n, k)) = self.stack.last_mut() {
            let n = *n;
            if let Some(&v) = flat.inputs.get(n as usize).get(*k as usize) {
                *k += 1;
                let producer = flat.producer[v as usize];
                if !flat.lasting[v as usize]
                    && !tape.is_needed(user, v)
                    && !self.change.window.contains(&Item::New(producer))
                    && random.below(100) < eagerness
                {
                    self.stack.push((producer, 0));
                    if self.stack.len() + self.change.window.len() > LONGEST_CHAIN {
                        return None;
                    }
                }
                continue;
            }
            self.stack.pop();
            self.change.window.push(Item::New(n));
        }
        Some(())
    }

    fn propose_delete(&mut self, tape: &mut Tape, random: &mut Random) -> Option<()> {
        if tape.repeated.is_empty() {
            return None;
        }
        let n = tape.repeated[random.below(tape.repeated.len())];
        let runs = &tape.runs[n as usize];
        let slot = runs[random.below(runs.len())];
        self.change.window.clear();
        self.change.resume = tape.prev[slot as usize];
        self.change.end = tape.next[slot as usize];
        Some(())
    }

    fn propose_shift(&mut self, tape: &mut Tape, random: &mut Random) -> Option<()> {
        let flat = tape.flat;
        let slot = tape.slots[random.below(tape.slots.len())];
        let node = tape.node[slot as usize] as usize;
        let later = random.below(2) == 0;
        // As far as the operands allow, or a random distance of any order of magnitude.
        let to_the_limit = random.below(2) == 0;
        let distance = 1usize << random.below(8);
        let distance = if to_the_limit { usize::MAX } else { 1 + random.below(distance) };
        let blocks = |other: u32| {
            let other = other as usize;
            if later {
                flat.outputs.get(node).iter().any(|v| flat.inputs.get(other).contains(v))
            } else {
                flat.outputs.get(other).iter().any(|v| flat.inputs.get(node).contains(v))
            }
        };
        self.change.window.clear();
        let mut reached = slot;
        let mut passed = 0;
        loop {
            let other = if later { tape.next[reached as usize] } else { tape.prev[reached as usize] };
            if other == TAIL || other == HEAD || passed == distance || blocks(tape.node[other as usize]) {
                break;
            }
            reached = other;
            passed += 1;
            self.change.window.push(Item::Old(other));
        }
        tape.work += passed as u64;
        if passed == 0 {
            return None;
        }
        if later {
            self.change.resume = tape.prev[slot as usize];
            self.change.end = tape.next[reached as usize];
            self.change.window.push(Item::Old(slot));
        } else {
            self.change.resume = tape.prev[reached as usize];
            self.change.end = tape.next[slot as usize];
            self.change.window.push(Item::Old(slot));
            self.change.window.reverse();
        }
        Some(())
    }

    /// Keeps the output of a recompute from its previous run on, and drops an input of it from its last use before on.
    fn propose_swap(&mut self, tape: &mut Tape, random: &mut Random) -> Option<()> {
        if tape.repeated.is_empty() {
            return None;
        }
        let flat = tape.flat;
        let n = tape.repeated[random.below(tape.repeated.len())];
        let runs = &tape.runs[n as usize];
        let slot = runs[random.below(runs.len())];
        let inputs = flat.inputs.get(n as usize);
        if inputs.is_empty() {
            return None;
        }
        let v = inputs[random.below(inputs.len())];
        let after = tape.next[slot as usize];
        if flat.lasting[v as usize] || !tape.is_needed(after, v) {
            return None;
        }
        self.change.window.clear();
        self.change.resume = tape.prev[slot as usize];
        let mut user = after;
        while user != TAIL && !flat.inputs.get(tape.node[user as usize] as usize).contains(&v) {
            self.change.window.push(Item::Old(user));
            user = tape.next[user as usize];
        }
        tape.work += self.change.window.len() as u64;
        if self.change.window.len() > LONGEST_SWAP {
            return None;
        }
        self.change.end = user;
        self.chain(tape, random, flat.producer[v as usize], user, 100)
    }
}

/// The position of the one with this number in a bit set.
fn nth_one(words: &[u64], mut index: u32) -> u32 {
    let mut word = 0;
    while words[word].count_ones() <= index {
        index -= words[word].count_ones();
        word += 1;
    }
    let mut bits = words[word];
    for _ in 0..index {
        bits &= bits - 1;
    }
    word as u32 * 64 + bits.trailing_zeros()
}
