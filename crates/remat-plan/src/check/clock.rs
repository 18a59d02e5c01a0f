//! When everything happens: the time of a plan, by the rules of docs/formats.md.
//!
//! Whether a step is valid never depends on time, so the clock answers no questions while the steps are followed.
//!
//! Ends are kept when their values are freed, consumed or discarded: each of these waits for them, and an end that has passed
//! delays nothing any more.

use crate::ids::{StoreId, ValueId};
use crate::problem::Problem;
use crate::spec::Way;
use std::collections::BTreeMap;

/// The ends of the copies between a value and a store.
#[derive(Clone, Copy, Default)]
struct Ends {
    out: f64,
    back: f64,
}

pub(super) struct Clock<'a> {
    problem: &'a Problem,
    /// How far the program is.
    now: f64,
    /// When each channel is free again.
    free_at: Vec<f64>,
    /// When the last copy into each value has ended.
    ready: Vec<f64>,
    ends: BTreeMap<(ValueId, StoreId), Ends>,
    last_end: f64,
}

impl<'a> Clock<'a> {
    pub(super) fn new(problem: &'a Problem) -> Clock<'a> {
        Clock {
            problem,
            now: 0.0,
            free_at: vec![0.0; problem.channels.len()],
            ready: vec![0.0; problem.values.len()],
            ends: BTreeMap::new(),
            last_end: 0.0,
        }
    }

    /// The end of everything.
    pub(super) fn end(&self) -> f64 {
        self.now.max(self.last_end)
    }

    fn wait(&mut self, end: f64) {
        self.now = self.now.max(end);
    }

    fn wait_for_copies_out(&mut self, value: ValueId) {
        let ends = self.ends.range((value, StoreId(0))..=(value, StoreId(u32::MAX)));
        let last = ends.map(|(_, ends)| ends.out).fold(0.0, f64::max);
        self.wait(last);
    }

    pub(super) fn compute(
        &mut self,
        cost: f64,
        reads: impl Iterator<Item = ValueId>,
        overwrites: &[ValueId],
    ) {
        for value in reads {
            self.wait(self.ready[value.index()]);
        }
        for &value in overwrites {
            self.wait_for_copies_out(value);
        }
        self.now += cost;
    }

    pub(super) fn free(&mut self, value: ValueId) {
        self.wait(self.ready[value.index()]);
        self.wait_for_copies_out(value);
    }

    pub(super) fn copy_out(&mut self, value: ValueId, store: StoreId) {
        let end = self.copy(value, store, Way::Out, self.ready[value.index()]);
        self.ends.insert((value, store), Ends { out: end, back: 0.0 });
    }

    pub(super) fn copy_in(&mut self, value: ValueId, store: StoreId) {
        // What is stored at the start has no entry: it never had to be copied.
        let arrived = self.ends.get(&(value, store)).map_or(0.0, |ends| ends.out);
        let end = self.copy(value, store, Way::In, arrived);
        self.ready[value.index()] = end;
        self.ends.entry((value, store)).or_default().back = end;
    }

    pub(super) fn discard(&mut self, value: ValueId, store: StoreId) {
        let ends = self.ends.get(&(value, store)).copied().unwrap_or_default();
        self.wait(ends.out.max(ends.back));
    }

    /// Begins a copy when the program, the channel and the value are ready; returns its end.
    fn copy(&mut self, value: ValueId, store: StoreId, way: Way, ready: f64) -> f64 {
        let link = self.problem.stores[store.index()].link(way);
        let channel = link.channel.index();
        let bytes = self.problem.values[value.index()].bytes.0 as f64;
        let start = self.now.max(self.free_at[channel]).max(ready);
        let end = start + link.latency + bytes * link.cost_per_byte;
        self.free_at[channel] = end;
        self.last_end = self.last_end.max(end);
        if !self.problem.channels[channel].overlaps {
            self.now = end;
        }
        end
    }
}
