//! Copies to and from stores in time: a list of jobs on channels, beside a program that computes and sometimes waits.

use crate::ids::{StoreId, ValueId};
use crate::problem::Problem;
use crate::spec::Way;
use std::collections::HashMap;

/// A copy, from its start to its end on its channel.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    /// Index of the step that begins it.
    pub at: usize,
    /// What is copied.
    pub value: ValueId,
    /// From or to where.
    pub store: StoreId,
    /// The direction.
    pub way: Way,
    /// When the copy begins on its channel.
    pub start: f64,
    /// When it has ended.
    pub end: f64,
}

/// A stretch of time in which the program waits for a copy.
#[derive(Clone, PartialEq, Debug)]
pub struct Wait {
    /// Index of the step that waits.
    pub at: usize,
    /// The value whose copy it waits for.
    pub value: ValueId,
    /// When it begins to wait.
    pub start: f64,
    /// When the copy has ended.
    pub end: f64,
}

/// What is stored and since when, what the channels do, and how far the program is.
pub(super) struct Copies<'a> {
    problem: &'a Problem,
    pub(super) now: f64,
    /// Time that the program spent waiting.
    pub(super) stalls: f64,
    pub(super) waits: Vec<Wait>,
    /// The step at hand.
    pub(super) at: usize,
    pub(super) transfers: Vec<Transfer>,
    channel_free: Vec<f64>,
    /// Where each value is or will be, with the time from which on it can be read there.
    places: Vec<Vec<(StoreId, f64)>>,
    /// When the last copy into each value ends. Whatever ends the life of a value waits for it, so what is made anew has
    /// nothing to wait for.
    arrival: Vec<f64>,
    /// When the last copy of a value from a store ends.
    read_until: HashMap<(ValueId, StoreId), f64>,
    filled: Vec<u64>,
}

/// Why a copy cannot be begun, or a value not be discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Full,
    Stays,
    AlreadyThere,
    NotThere,
}

impl<'a> Copies<'a> {
    pub(super) fn new(problem: &'a Problem) -> Copies<'a> {
        Copies {
            problem,
            now: 0.0,
            stalls: 0.0,
            waits: Vec::new(),
            at: 0,
            transfers: Vec::new(),
            channel_free: vec![0.0; problem.channels.len()],
            places: vec![Vec::new(); problem.values.len()],
            arrival: vec![0.0; problem.values.len()],
            read_until: HashMap::new(),
            filled: vec![0; problem.stores.len()],
        }
    }

    pub(super) fn is_in(&self, value: ValueId, store: StoreId) -> bool {
        self.places[value.index()].iter().any(|&(place, _)| place == store)
    }

    /// Puts a value into a store, readable from a time on.
    pub(super) fn place(&mut self, value: ValueId, store: StoreId, from: f64) -> Result<(), Refusal> {
        if !self.problem.value(value).swap {
            return Err(Refusal::Stays);
        }
        if self.is_in(value, store) {
            return Err(Refusal::AlreadyThere);
        }
        // The bytes of all values fit in 63 bits, and each is in a store at most once.
        let filled = self.filled[store.index()] + self.problem.bytes(value).0;
        if self.problem.store(store).capacity_bytes.is_some_and(|capacity| filled > capacity.0) {
            return Err(Refusal::Full);
        }
        self.filled[store.index()] = filled;
        self.places[value.index()].push((store, from));
        Ok(())
    }

    pub(super) fn out(&mut self, at: usize, value: ValueId, store: StoreId) -> Result<(), Refusal> {
        self.place(value, store, f64::INFINITY)?;
        let end = self.transfer(at, value, store, Way::Out, self.arrival[value.index()]);
        let place = self.places[value.index()].last_mut().expect("it was just put there");
        place.1 = end;
        Ok(())
    }

    pub(super) fn back(&mut self, at: usize, value: ValueId, store: StoreId) -> Result<(), Refusal> {
        let place = self.places[value.index()].iter().find(|&&(place, _)| place == store);
        let &(_, readable) = place.ok_or(Refusal::NotThere)?;
        let end = self.transfer(at, value, store, Way::In, readable);
        self.arrival[value.index()] = end;
        self.read_until.insert((value, store), end);
        Ok(())
    }

    pub(super) fn discard(&mut self, value: ValueId, store: StoreId) -> Result<(), Refusal> {
        let place = self.places[value.index()].iter().find(|&&(place, _)| place == store);
        let &(_, written) = place.ok_or(Refusal::NotThere)?;
        let read = self.read_until.get(&(value, store)).copied().unwrap_or(0.0);
        self.wait_until(written.max(read), value);
        self.remove(value, store);
        Ok(())
    }

    /// The value is overwritten: no store has it any more.
    pub(super) fn forget(&mut self, value: ValueId) {
        while let Some(&(store, _)) = self.places[value.index()].first() {
            self.remove(value, store);
        }
    }

    fn remove(&mut self, value: ValueId, store: StoreId) {
        self.places[value.index()].retain(|&(place, _)| place != store);
        self.filled[store.index()] -= self.problem.bytes(value).0;
    }

    pub(super) fn compute(&mut self, cost: f64) {
        self.now += cost;
    }

    /// Waits until a live value can be read.
    pub(super) fn wait_for_arrival(&mut self, value: ValueId) {
        self.wait_until(self.arrival[value.index()], value);
    }

    /// Waits until nothing reads the memory of a value any more.
    pub(super) fn wait_for_copies_out(&mut self, value: ValueId) {
        let last = self.places[value.index()].iter().map(|&(_, end)| end).fold(0.0, f64::max);
        self.wait_until(last, value);
    }

    /// When the program and the last copy have ended.
    pub(super) fn end(&self) -> f64 {
        self.transfers.iter().map(|transfer| transfer.end).fold(self.now, f64::max)
    }

    fn wait_until(&mut self, time: f64, value: ValueId) {
        if time > self.now {
            self.stalls += time - self.now;
            self.waits.push(Wait { at: self.at, value, start: self.now, end: time });
            self.now = time;
        }
    }

    fn transfer(&mut self, at: usize, value: ValueId, store: StoreId, way: Way, ready: f64) -> f64 {
        let link = self.problem.store(store).link(way);
        let channel = link.channel.index();
        let start = self.now.max(self.channel_free[channel]).max(ready);
        let end = start + link.cost(self.problem.bytes(value));
        self.channel_free[channel] = end;
        self.transfers.push(Transfer { at, value, store, way, start, end });
        if !self.problem.channels[channel].overlaps {
            self.now = end;
        }
        end
    }
}
