//! What is in which store: room in stores of limited size, and copies out that are not needed after all.

use super::super::Moving;
use super::Run;
use crate::plan::Step;

impl Run<'_> {
    /// Takes room in a store; nothing if there is none.
    pub(super) fn fill(&mut self, v: u32, s: u32) -> Option<()> {
        self.has_space(v, s).then_some(())?;
        self.filled[s as usize] += self.bytes(v) as u64;
        Some(())
    }

    pub(super) fn has_space(&self, v: u32, s: u32) -> bool {
        let filled = self.filled[s as usize] + self.bytes(v) as u64;
        self.moving.problem.stores[s as usize].capacity_bytes.is_none_or(|capacity| filled <= capacity.0)
    }

    /// Drops the copies out of a value that have not begun; with `except_last` not those that the end needs.
    pub(super) fn give_up(&mut self, v: u32, except_last: bool) {
        if self.n_waiting[v as usize] > 0 {
            self.waiting.retain(|leave| leave.value != v || (except_last && leave.last_read == u32::MAX));
            let n_left = self.waiting.iter().filter(|leave| leave.value == v).count();
            self.n_waiting[v as usize] = n_left as u8;
        }
    }

    /// Takes values out of limited stores when their last copy in has arrived and been read.
    pub(super) fn give_places_back(&mut self, slot: usize) {
        let mut at = 0;
        while at < self.discards.len() {
            let (v, s) = self.discards[at];
            let place = self.place(v, s);
            let is_limited = self.moving.problem.stores[s as usize].capacity_bytes.is_some();
            let is_wanted = self.uses.rests_in[v as usize] == s || self.n_back[place] > 0;
            if !is_limited || is_wanted || self.there[place].is_infinite() {
                self.discards.swap_remove(at);
            } else if self.arrival[v as usize] <= self.now && self.there[place] <= self.now && slot > 0 {
                self.discards.swap_remove(at);
                self.there[place] = f64::INFINITY;
                self.filled[s as usize] -= self.bytes(v) as u64;
                self.steps.push(Step::Discard(Moving::value_id(v), Moving::store_id(s)));
            } else {
                at += 1;
            }
        }
    }
}
