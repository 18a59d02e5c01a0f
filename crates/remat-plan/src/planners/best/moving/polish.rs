//! The last stage: small changes of a sequence with copies, each timed exactly.
//!
//! The state is a sequence of the wider problem within the budget (a [`Tape`]). A change that keeps it within the budget is
//! timed by a whole timetable, and accepted if that is not longer, or longer by little at a falling temperature. Most
//! changes begin where the program waits: the copies in shortly before a wait are what could be made again instead.

use crate::answer::meets;
use crate::planners::best::moves::{Kind as Move, Moves};
use crate::planners::swap::Moved;
use crate::schedule::flat::Flat;
use crate::schedule::limits::Limits;
use crate::schedule::moving::timetable::timetable;
use crate::schedule::moving::{Kind, Moving};
use crate::schedule::random::Random;
use crate::schedule::tape::{Change, HEAD, Item, Most, TAIL, Tape};

/// How far before a wait the copies in are that may be its cause, in slots.
const REACH: usize = 256;
/// Work of a timetable for each slot, and of a proposal.
const WORK_PER_SLOT: f64 = 20.0;
const WORK_PER_PROPOSAL: f64 = 100.0;
/// The first and the last temperature, as parts of the cost of the step.
const FIRST_TEMPERATURE: f64 = 3e-5;
const LAST_TEMPERATURE: f64 = 1e-7;

/// A search from one start.
pub(crate) struct Polish<'a> {
    moving: &'a Moving<'a>,
    budget: i64,
    base_cost: f64,
    /// No plan costs less.
    bound: f64,
    lead: f64,
    random: Random,
    tape: Tape<'a>,
    moves: Moves,
    now: Moved,
    pub(crate) best: Moved,
    slot_of: Vec<u32>,
}

impl<'a> Polish<'a> {
    /// `flat`: the wider problem, in which copies cost nothing.
    pub(crate) fn new(
        moving: &'a Moving<'a>,
        flat: &'a Flat,
        (budget, bound): (i64, f64),
        start: Moved,
        lead: f64,
        seed: u64,
    ) -> Polish<'a> {
        let tape = Tape::new(flat, budget, &start.sequence);
        Polish {
            moving,
            budget,
            base_cost: moving.problem.base_cost(),
            bound,
            lead,
            random: Random::new(seed),
            tape,
            moves: Moves::default(),
            now: start.clone(),
            best: start,
            slot_of: Vec::new(),
        }
    }

    /// Continues from another plan.
    pub(crate) fn restart(&mut self, start: Moved) {
        self.tape.load(&start.sequence);
        self.now = start.clone();
        self.best = start;
        self.slot_of.clear();
    }

    /// Improves until the limits are reached or the cost is the least possible.
    pub(crate) fn run(&mut self, limits: &mut Limits) {
        let begin = limits.progress();
        while !meets(self.best.timetable.cost, self.bound) {
            if !limits.spend(WORK_PER_PROPOSAL) {
                return;
            }
            if self.propose().is_none() {
                continue;
            }
            let Some(effect) = self.tape.try_change(&self.moves.change, Most::ANY) else { continue };
            if self.tape.excess + effect.excess > 0 {
                continue;
            }
            // What is computed more must come back as less waiting.
            let waiting = self.now.timetable.cost - self.tape.cost;
            let part = ((limits.progress() - begin) / (1.0 - begin).max(1e-9)).clamp(0.0, 1.0);
            let temperature =
                self.base_cost * FIRST_TEMPERATURE * (LAST_TEMPERATURE / FIRST_TEMPERATURE).powf(part);
            let allowed = -temperature * self.random.unit().ln();
            if effect.cost > waiting.max(0.0) + allowed {
                continue;
            }
            let sequence = self.changed();
            limits.spend(WORK_PER_SLOT * sequence.len() as f64);
            let Some(table) = timetable(self.moving, &sequence, self.budget, self.lead) else { continue };
            if table.peak > self.budget || table.cost > self.now.timetable.cost + allowed {
                continue;
            }
            self.tape.apply(&self.moves.change);
            self.now = Moved { sequence: self.tape.computes(), timetable: table };
            self.slot_of.clear();
            if self.now.timetable.cost < self.best.timetable.cost * (1.0 - 1e-12) {
                self.best = self.now.clone();
            }
        }
    }

    /// The sequence after the proposed change.
    fn changed(&self) -> Vec<u32> {
        let Change { resume, end, window } = &self.moves.change;
        let mut sequence = Vec::with_capacity(self.now.sequence.len() + window.len());
        let mut slot = self.tape.next[HEAD as usize];
        let push_until = |slot: &mut u32, last: u32, sequence: &mut Vec<u32>| {
            while *slot != last {
                sequence.push(self.tape.node[*slot as usize]);
                *slot = self.tape.next[*slot as usize];
            }
        };
        if *resume != HEAD {
            push_until(&mut slot, self.tape.next[*resume as usize], &mut sequence);
        }
        sequence.extend(window.iter().map(|item| match *item {
            Item::Old(slot) => self.tape.node[slot as usize],
            Item::New(n) => n,
        }));
        slot = *end;
        push_until(&mut slot, TAIL, &mut sequence);
        self.tape.flat.prune(&mut sequence);
        sequence
    }

    fn propose(&mut self) -> Option<()> {
        match self.random.below(100) {
            0..45 => self.make_again(),
            45..60 => self.keep(),
            60..70 => self.fetch(),
            70..80 => self.moves.propose(Move::Delete, &mut self.tape, &mut self.random),
            80..86 => self.moves.propose_send(self.moving, &mut self.tape, &mut self.random),
            86..92 => self.moves.propose(Move::Drop, &mut self.tape, &mut self.random),
            _ => self.moves.propose(Move::Shift, &mut self.tape, &mut self.random),
        }
    }

    /// A copy in shortly before a wait, or anywhere.
    fn copy_in(&mut self) -> Option<(u32, u32)> {
        if self.slot_of.is_empty() {
            let mut slot = self.tape.next[HEAD as usize];
            while slot != TAIL {
                self.slot_of.push(slot);
                slot = self.tape.next[slot as usize];
            }
        }
        let waits = &self.now.timetable.waits;
        let n_slots = self.slot_of.len();
        let mut at = self.random.below(n_slots);
        if !waits.is_empty() && self.random.below(8) > 0 {
            let wait = waits[self.random.below(waits.len())];
            let runs = self.tape.runs.get(wait.node as usize)?;
            let slot = *runs.get(self.random.below(runs.len().max(1)))?;
            let place = self.slot_of.iter().position(|&other| other == slot)?;
            at = place.saturating_sub(self.random.below(REACH.min(place + 1)));
        }
        // The nearest copy in before that place.
        for &slot in self.slot_of[..=at].iter().rev().take(REACH) {
            if let Kind::In(v, _) = self.moving.kind(self.tape.node[slot as usize]) {
                return Some((slot, v));
            }
        }
        None
    }

    /// Replaces a copy in by recomputes.
    fn make_again(&mut self) -> Option<()> {
        let (slot, v) = self.copy_in()?;
        let flat = self.tape.flat;
        if flat.lasting[v as usize] {
            return None;
        }
        let user = self.tape.next[slot as usize];
        self.moves.replace_by_chain(&self.tape, &mut self.random, slot, flat.producer[v as usize], user)
    }

    /// Keeps a value that is copied in.
    fn keep(&mut self) -> Option<()> {
        let (slot, _) = self.copy_in()?;
        self.moves.change.window.clear();
        self.moves.change.resume = self.tape.prev[slot as usize];
        self.moves.change.end = self.tape.next[slot as usize];
        Some(())
    }

    /// Replaces a recompute by a copy in.
    fn fetch(&mut self) -> Option<()> {
        if self.tape.repeated.is_empty() {
            return None;
        }
        let n = self.tape.repeated[self.random.below(self.tape.repeated.len())];
        if self.moving.kind(n) != Kind::Compute {
            return None;
        }
        let runs = &self.tape.runs[n as usize];
        let slot = runs[self.random.below(runs.len())];
        let after = self.tape.next[slot as usize];
        let outputs = self.tape.flat.outputs.get(n as usize);
        self.moves.change.window.clear();
        for &v in outputs.iter().filter(|&&v| self.moving.may_move(v) && self.tape.is_needed(after, v)) {
            let n_stores = self.moving.stores_of(v).count();
            let s = self.moving.stores_of(v).nth(self.random.below(n_stores))?;
            self.moves.change.window.push(Item::New(self.moving.in_node(v, s)?));
        }
        self.moves.change.resume = self.tape.prev[slot as usize];
        self.moves.change.end = after;
        (!self.moves.change.window.is_empty()).then_some(())
    }
}
