//! What a sequence says of each value before any copy has its place: when it is last read, what brings it back, and where it
//! must be in the end.
//!
//! A *stay* of a value in memory begins where it is made, copied in or live from the start, and ends after its last read
//! before it is made or copied in again. One backward pass finds all of them, with the memory of each step under the
//! assumption that copies take no time: what is copied out leaves at once, what is copied in comes when it is read.

use super::{Kind, Moving};
use crate::schedule::flat::NONE;

/// The end of a stay: the value is not read any more after `slot` (counted from 1; 0 is the start).
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) slot: u32,
    pub(super) value: u32,
    /// The slot that brings it back from a store, or `NONE`.
    pub(super) back: u32,
    /// Nothing reads it between its making and here.
    pub(super) is_unread: bool,
}

/// A copy out that a stay needs: it may begin after `slot` (counted from 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    pub(super) slot: u32,
    pub(super) value: u32,
    pub(super) store: u32,
    /// When the value is last read before it leaves, or the number of slots for what only rests in the end.
    pub(super) last_read: u32,
}

/// All stays of a sequence.
pub(super) struct Uses {
    /// The memory while each slot runs, and the memory held before it; fixed bytes included.
    pub(super) memory: Vec<i64>,
    pub(super) held: Vec<i64>,
    /// In the order of the slots.
    pub(super) ends: Vec<End>,
    pub(super) leaves: Vec<Leave>,
    /// Inputs that are in a store at the start, with the store.
    pub(super) stored: Vec<(u32, u32)>,
    /// The store that must have a value in the end, or `NONE`.
    pub(super) rests_in: Vec<u32>,
}

impl Uses {
    /// The stays of a valid sequence in which state rests on both sides of the step; see [`complete`].
    pub(super) fn new(moving: &Moving, sequence: &[u32]) -> Uses {
        let (stored, rests_in) = resting(moving, sequence);
        let mut pass = Pass::new(moving, rests_in);
        let (mut memory, mut held) = (vec![0; sequence.len()], vec![0; sequence.len()]);
        for (i, &n) in sequence.iter().enumerate().rev() {
            (memory[i], held[i]) = pass.back_over(i, n);
        }
        let Pass { mut ends, mut leaves, rests_in, .. } = pass.at_start(&stored);
        ends.reverse();
        leaves.reverse();
        Uses { memory, held, ends, leaves, stored, rests_in }
    }
}

/// The inputs that are in a store at the start, and for each value the store that must have it in the end.
fn resting(moving: &Moving, sequence: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
    let first = first_uses(moving, sequence);
    let mut rests = vec![false; moving.n_values];
    for &n in sequence {
        if let Kind::Rest(w) = moving.kind(n) {
            rests[w as usize] = true;
        }
    }
    let mut stored = Vec::new();
    let mut rests_in = vec![NONE; moving.n_values];
    for &(input, output) in &moving.problem.carries {
        let (v, w) = (input.0, output.0);
        if moving.rest_node[w as usize] == NONE {
            continue;
        }
        let store = match first[v as usize] {
            First::In(s) => s,
            First::None if rests[w as usize] => usual_store(moving, v),
            First::None | First::Read(_) => continue,
        };
        stored.push((v, store));
        rests_in[w as usize] = store;
    }
    (stored, rests_in)
}

/// The sequence as it can be carried out, where that differs: what is read after it went to rest is copied in instead, and
/// inputs are copied in because what carries them rests in a store.
pub(super) fn complete(moving: &Moving, sequence: &[u32]) -> Option<Vec<u32>> {
    let without_false_rests = copies_for_false_rests(moving, sequence);
    let sequence = without_false_rests.as_deref().unwrap_or(sequence);
    copies_for_carriers(moving, sequence).or(without_false_rests)
}

/// The sequence with a copy in wherever a node `rest` is followed by a read: such a node makes nothing that can be read.
fn copies_for_false_rests(moving: &Moving, sequence: &[u32]) -> Option<Vec<u32>> {
    let is_rest = |&&n: &&u32| matches!(moving.kind(n), Kind::Rest(_));
    let n_last = sequence.iter().rev().take_while(is_rest).count();
    if !sequence[..sequence.len() - n_last].iter().any(|n| is_rest(&n)) {
        return None;
    }
    let first = first_uses(moving, sequence);
    let mut is_read_next = vec![false; moving.n_values];
    let mut changed = sequence.to_vec();
    for n in changed.iter_mut().rev() {
        if let Kind::Rest(w) = moving.kind(*n)
            && is_read_next[w as usize]
        {
            let store = match first[moving.carries[w as usize] as usize] {
                First::In(s) => s,
                First::None | First::Read(_) => usual_store(moving, w),
            };
            *n = moving.in_node(w, store).unwrap_or(*n);
        }
        let own = |v: &&u32| (**v as usize) < moving.n_values;
        for &v in moving.flat.outputs.get(*n as usize).iter().filter(own) {
            is_read_next[v as usize] = false;
        }
        for &v in moving.flat.inputs.get(*n as usize).iter().filter(own) {
            is_read_next[v as usize] = true;
        }
    }
    Some(changed)
}

/// The sequence with the copies that inputs need because what carries them rests in a store.
fn copies_for_carriers(moving: &Moving, sequence: &[u32]) -> Option<Vec<u32>> {
    let first = first_uses(moving, sequence);
    let mut added: Vec<(u32, u32)> = Vec::new();
    for &n in sequence {
        if let Kind::Rest(w) = moving.kind(n)
            && let v = moving.carries[w as usize]
            && let First::Read(slot) = first[v as usize]
        {
            added.push((slot, moving.in_node(v, usual_store(moving, v)).expect("what may rest may move")));
        }
    }
    if added.is_empty() {
        return None;
    }
    added.sort_unstable();
    let mut whole = Vec::with_capacity(sequence.len() + added.len());
    let mut rest = added.iter().peekable();
    for (i, &n) in sequence.iter().enumerate() {
        while let Some((_, node)) = rest.next_if(|(slot, _)| *slot as usize <= i) {
            whole.push(*node);
        }
        whole.push(n);
    }
    Some(whole)
}

/// The store with the cheapest copies of a value.
pub(super) fn usual_store(moving: &Moving, v: u32) -> u32 {
    let both = |s: u32| moving.out_cost(v, s) + moving.back_cost(v, s);
    moving.stores_of(v).min_by(|&a, &b| both(a).total_cmp(&both(b))).expect("the value may move")
}

/// What happens first to an input.
#[derive(Clone, Copy)]
enum First {
    None,
    Read(u32),
    In(u32),
}

fn first_uses(moving: &Moving, sequence: &[u32]) -> Vec<First> {
    let mut first = vec![First::None; moving.n_values];
    for (i, &n) in sequence.iter().enumerate() {
        match moving.kind(n) {
            Kind::In(v, s) => {
                if matches!(first[v as usize], First::None) {
                    first[v as usize] = First::In(s);
                }
            }
            Kind::Compute => {
                for &v in moving.flat.inputs.get(n as usize) {
                    if (v as usize) < moving.n_values && matches!(first[v as usize], First::None) {
                        first[v as usize] = First::Read(i as u32);
                    }
                }
            }
            Kind::Rest(_) => {}
        }
    }
    first
}

/// The walk from the end to the start.
struct Pass<'a> {
    moving: &'a Moving<'a>,
    needed: Vec<bool>,
    held: i64,
    /// What makes each value next; `NONE` after the last time.
    next_maker: Vec<u32>,
    next_node: Vec<u32>,
    /// The slot after which each needed value is not read any more, while that is where it leaves memory for a store.
    last_read: Vec<u32>,
    leaves_for: Vec<u32>,
    rests_in: Vec<u32>,
    ends: Vec<End>,
    leaves: Vec<Leave>,
}

impl<'a> Pass<'a> {
    fn new(moving: &'a Moving<'a>, rests_in: Vec<u32>) -> Pass<'a> {
        let flat = &moving.flat;
        let held = (0..moving.n_values).filter(|&v| flat.is_output[v]).map(|v| flat.bytes[v]).sum::<i64>();
        Pass {
            moving,
            needed: flat.is_output.clone(),
            held: flat.fixed + held,
            next_maker: vec![NONE; moving.n_values],
            next_node: vec![NONE; moving.n_values],
            last_read: vec![NONE; moving.n_values],
            leaves_for: vec![NONE; moving.n_values],
            rests_in,
            ends: Vec::new(),
            leaves: Vec::new(),
        }
    }

    /// Returns the memory while the slot runs and what is held before it.
    fn back_over(&mut self, i: usize, n: u32) -> (i64, i64) {
        let flat = &self.moving.flat;
        let n_values = self.moving.n_values;
        let shared = flat.shared_bytes(n as usize, |v| self.needed[v as usize]);
        for &v in flat.outputs.get(n as usize).iter().filter(|&&v| (v as usize) < n_values) {
            let at = v as usize;
            if std::mem::replace(&mut self.needed[at], false) {
                self.held -= flat.bytes[at];
                self.begin_of_stay(i as u32 + 1, v);
                self.next_maker[at] = i as u32;
                self.next_node[at] = n;
            } else {
                // The copy that brings it back for its next reader may be of this or of an earlier stay.
                self.end_of_stay(i as u32 + 1, v, true);
                self.begin_of_stay(i as u32 + 1, v);
            }
        }
        for &v in flat.inputs.get(n as usize).iter().filter(|&&v| (v as usize) < n_values) {
            let at = v as usize;
            if !std::mem::replace(&mut self.needed[at], true) {
                self.held += flat.bytes[at];
                if !flat.consumes.get(n as usize).contains(&v) {
                    self.end_of_stay(i as u32 + 1, v, false);
                }
            }
        }
        (self.held + flat.extra[n as usize] - shared, self.held)
    }

    fn end_of_stay(&mut self, slot: u32, v: u32, is_unread: bool) {
        let at = v as usize;
        let maker = self.next_node[at];
        let store = match maker {
            NONE => None,
            node => match self.moving.kind(node) {
                Kind::In(_, s) => Some(s),
                Kind::Rest(_) => Some(self.rests_in[at]),
                Kind::Compute => None,
            },
        };
        if let Some(store) = store {
            self.leaves_for[at] = store;
            self.last_read[at] = slot;
        }
        let back = if store.is_some() { self.next_maker[at] } else { NONE };
        self.ends.push(End { slot, value: v, back, is_unread });
    }

    /// The value is made after `slot`; before that it was not in memory, or was given up there.
    fn begin_of_stay(&mut self, slot: u32, v: u32) {
        let at = v as usize;
        let store = std::mem::replace(&mut self.leaves_for[at], NONE);
        if store != NONE {
            self.leaves.push(Leave { slot, value: v, store, last_read: self.last_read[at] });
        } else if self.rests_in[at] != NONE && self.next_node[at] == NONE {
            // It stays in memory until the end and is in a store then as well.
            let (store, last_read) = (self.rests_in[at], u32::MAX);
            self.leaves.push(Leave { slot, value: v, store, last_read });
        }
    }

    fn at_start(mut self, stored: &[(u32, u32)]) -> Pass<'a> {
        let problem = self.moving.problem;
        let mut is_stored = vec![false; self.moving.n_values];
        stored.iter().for_each(|&(v, _)| is_stored[v as usize] = true);
        for &v in problem.inputs.iter().filter(|v| !is_stored[v.index()]) {
            if !self.needed[v.index()] {
                // It is read again after it comes back, or never.
                self.end_of_stay(0, v.0, false);
            }
            self.begin_of_stay(0, v.0);
        }
        self
    }
}
