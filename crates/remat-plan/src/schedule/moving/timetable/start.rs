//! Which copies begin before a compute: those on channels that would be idle while it runs.

use super::super::Kind;
use super::{Leave, Run};
use crate::schedule::flat::NONE;

/// How many copies in are looked at when the first of the queue has to wait.
const LOOK_AHEAD: usize = 12;

/// The copies in of one channel in the order in which they are needed.
pub(super) struct Queue {
    slots: Vec<u32>,
    /// The latest start of each at which no reader waits, if nothing else makes the program wait.
    latest: Vec<f64>,
    /// A slot at which memory was missing.
    blocked: Vec<u32>,
    first: usize,
}

impl Run<'_> {
    /// Sorts the copies in by channel, and finds the latest time for each.
    pub(super) fn line_up(&mut self) {
        let n_channels = self.moving.problem.channels.len();
        let mut slots: Vec<Vec<u32>> = vec![Vec::new(); n_channels];
        for (i, &n) in self.sequence.iter().enumerate() {
            if let Kind::In(v, s) = self.moving.kind(n) {
                let place = self.place(v, s);
                self.n_back[place] += 1;
                let channel = self.moving.problem.stores[s as usize].back.channel.index();
                if self.overlaps(channel) {
                    slots[channel].push(i as u32);
                }
            }
        }
        for slots in slots {
            let mut latest = vec![0.0; slots.len()];
            let mut next = f64::INFINITY;
            for (k, &i) in slots.iter().enumerate().rev() {
                let Kind::In(v, s) = self.moving.kind(self.sequence[i as usize]) else { continue };
                next = self.before[i as usize].min(next) - self.moving.back_cost(v, s);
                latest[k] = next;
            }
            let blocked = vec![NONE; slots.len()];
            self.queues.push(Queue { slots, latest, blocked, first: 0 });
        }
    }

    /// Begins copies on channels that would be idle while the compute runs.
    pub(super) fn start_copies(&mut self, i: usize) {
        let cost = self.moving.flat.cost[self.sequence[i] as usize];
        for channel in 0..self.queues.len() {
            if self.overlaps(channel) {
                while self.channel_free[channel] < self.now + cost && self.start_in(i, channel) {}
                while self.channel_free[channel] < self.now + cost && self.start_out(channel) {}
            }
        }
    }

    fn start_out(&mut self, channel: usize) -> bool {
        let stores = &self.moving.problem.stores;
        let best = (0..self.waiting.len())
            .filter(|&at| {
                let Leave { value, store, .. } = self.waiting[at];
                stores[store as usize].out.channel.index() == channel
                    && self.arrival[value as usize] <= self.now
                    && self.has_space(value, store)
            })
            .min_by_key(|&at| (self.waiting[at].last_read, self.waiting[at].value));
        best.is_some_and(|at| self.begin_out(at))
    }

    fn start_in(&mut self, i: usize, channel: usize) -> bool {
        let queue = &mut self.queues[channel];
        while queue.first < queue.slots.len() && self.is_begun[queue.slots[queue.first] as usize] {
            queue.first += 1;
        }
        let delay = self.now - self.before[i];
        let mut n_seen = 0;
        for k in queue.first..queue.slots.len() {
            let slot = self.queues[channel].slots[k] as usize;
            if n_seen == LOOK_AHEAD || self.queues[channel].latest[k] + delay - self.lead > self.now {
                break;
            }
            let Kind::In(v, s) = self.moving.kind(self.sequence[slot]) else { continue };
            if self.is_begun[slot] {
                continue;
            }
            n_seen += 1;
            let ready = self.there[self.place(v, s)];
            let is_possible = !self.live[v as usize]
                && ready <= self.now.max(self.channel_free[channel])
                && self.away_from[slot] as usize <= i;
            if is_possible && self.has_memory(i, slot, v, channel, k) {
                self.begin_in(slot, v, s);
                let bytes = self.bytes(v);
                self.room[i..slot].iter_mut().for_each(|room| *room -= bytes);
                return true;
            }
        }
        false
    }

    /// Whether there is memory for an early copy, holds included as long as their copies are under way.
    fn has_memory(&mut self, i: usize, slot: usize, v: u32, channel: usize, k: usize) -> bool {
        let blocked = self.queues[channel].blocked[k];
        if blocked != NONE && blocked as usize >= i {
            return false;
        }
        let bytes = self.bytes(v);
        let until = self.holds.iter().map(|hold| self.expected_end(hold.value)).fold(self.now, f64::max);
        let shift = self.now - self.before[i];
        let free_from = i + self.before[i..slot].partition_point(|&time| time + shift < until);
        // A copy in counts what is live at its beginning, not what the next compute gives up.
        let extra = (self.uses.held[i] - self.uses.memory[i]).max(0);
        if self.room[i] - extra < bytes + self.held {
            return false;
        }
        if self.room[i..free_from].iter().any(|&room| room < bytes + self.held) {
            return false;
        }
        match self.room[free_from..slot].iter().position(|&room| room < bytes) {
            Some(at) => {
                self.queues[channel].blocked[k] = (free_from + at) as u32;
                false
            }
            None => true,
        }
    }
}
