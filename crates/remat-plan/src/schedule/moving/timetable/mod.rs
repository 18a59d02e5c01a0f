//! When copies take place: from a sequence of computes and copies in to the steps of a plan, with their time.
//!
//! The sequence says what is in memory when; here the program is followed in time, and each copy gets its place:
//!
//! - a copy out begins as soon as its value exists and its channel is free, the value that leaves first before others;
//! - the value is freed when the copy has ended. Only where memory is needed earlier the program waits for the copy;
//! - a copy in begins when its channel is free, in the order in which values are read, if there is memory for it at
//!   every step until then. It begins no earlier than `lead` before the latest time that makes no reader wait;
//! - a value that is still in memory when it should be copied in stays there.
//!
//! On a channel that does not overlap all copies begin as late as possible. The steps are valid, the memory of the plan is within the budget
//! if that of the sequence is, and its time is the one that the simulator finds (or more, where several outputs could take over the
//! storage of one input). Time: linear in the sequence and in the steps over which copies in are early.

mod places;
mod sharing;
mod start;

use super::uses::{End, Leave, Uses, complete};
use super::{Kind, Moving};
use crate::ids::{NodeId, StoreId, ValueId};
use crate::plan::Step;
use crate::schedule::flat::NONE;
use sharing::Sharing;
use start::Queue;

/// The steps of a plan and their time.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    pub(crate) stored: Vec<(ValueId, StoreId)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) cost: f64,
    /// The memory of the sequence: that of the plan is no higher than the larger of this and the budget.
    pub(crate) peak: i64,
    /// What made the program wait, in order.
    pub(crate) waits: Vec<Wait>,
}

/// A time in which nothing is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The value whose copy is waited for.
    pub(crate) value: u32,
    pub(crate) is_out: bool,
    /// The node that waits.
    pub(crate) node: u32,
    pub(crate) time: f64,
}

/// The plan of a valid sequence without superfluous copies ([`crate::schedule::flat::Flat::prune`]); nothing where a store is
/// too small for it.
pub(crate) fn timetable(moving: &Moving, sequence: &[u32], budget: i64, lead: f64) -> Option<Timetable> {
    let whole = complete(moving, sequence);
    let sequence = whole.as_deref().unwrap_or(sequence);
    let uses = Uses::new(moving, sequence);
    let mut run = Run::new(moving, sequence, &uses, budget, lead)?;
    for i in 0..sequence.len() {
        run.slot(i)?;
    }
    run.finish()
}

/// A value whose last read is over and whose copy out is not.
#[derive(Clone, Copy)]
struct Hold {
    value: u32,
    /// The first slot before which it may be freed.
    from: u32,
}

struct Run<'a> {
    moving: &'a Moving<'a>,
    sequence: &'a [u32],
    ends: &'a [End],
    leaves: &'a [Leave],
    uses: &'a Uses,
    lead: f64,
    next_end: usize,
    next_leave: usize,
    now: f64,
    /// When the last compute began, and how its outputs take over the storage of its inputs.
    started: f64,
    sharing: Sharing,
    /// The computing time before each slot.
    before: Vec<f64>,
    /// Memory left at each slot, without holds.
    room: Vec<i64>,
    held: i64,
    holds: Vec<Hold>,
    live: Vec<bool>,
    /// When each value can be read in each store; infinite while it is not there.
    there: Vec<f64>,
    arrival: Vec<f64>,
    channel_free: Vec<f64>,
    last_end: f64,
    filled: Vec<u64>,
    /// Copies in that are still to come for each value and store.
    n_back: Vec<u32>,
    /// Copies out that may begin.
    waiting: Vec<Leave>,
    /// How many of them are of each value, and the store of the last one.
    n_waiting: Vec<u8>,
    waits_for: Vec<u32>,
    queues: Vec<Queue>,
    is_begun: Vec<bool>,
    /// For each copy in the slot before which the value has left memory.
    away_from: Vec<u32>,
    discards: Vec<(u32, u32)>,
    steps: Vec<Step>,
    waits: Vec<Wait>,
}

impl<'a> Run<'a> {
    fn new(
        moving: &'a Moving<'a>,
        sequence: &'a [u32],
        uses: &'a Uses,
        budget: i64,
        lead: f64,
    ) -> Option<Run<'a>> {
        let (n_values, n_stores) = (moving.n_values, moving.n_stores);
        let problem = moving.problem;
        let mut before = Vec::with_capacity(sequence.len() + 1);
        let mut sum = 0.0;
        for &n in sequence {
            before.push(sum);
            if (n as usize) < moving.n_nodes {
                sum += problem.nodes[n as usize].cost;
            }
        }
        before.push(sum);
        let mut run = Run {
            moving,
            sequence,
            ends: &uses.ends,
            leaves: &uses.leaves,
            uses,
            lead,
            next_end: 0,
            next_leave: 0,
            now: 0.0,
            started: 0.0,
            sharing: Sharing::default(),
            before,
            room: uses.memory.iter().map(|&used| budget - used).collect(),
            held: 0,
            holds: Vec::new(),
            live: vec![false; n_values],
            there: vec![f64::INFINITY; n_values * n_stores],
            arrival: vec![0.0; n_values],
            channel_free: vec![0.0; problem.channels.len()],
            last_end: 0.0,
            filled: vec![0; n_stores],
            n_back: vec![0; n_values * n_stores],
            waiting: Vec::new(),
            n_waiting: vec![0; n_values],
            waits_for: vec![0; n_values],
            queues: Vec::new(),
            is_begun: vec![false; sequence.len()],
            away_from: vec![0; sequence.len()],
            discards: Vec::new(),
            steps: Vec::with_capacity(3 * sequence.len()),
            waits: Vec::new(),
        };
        for &v in &problem.inputs {
            run.live[v.index()] = true;
        }
        for &(v, s) in &uses.stored {
            run.live[v as usize] = false;
            run.there[v as usize * n_stores + s as usize] = 0.0;
            run.fill(v, s)?;
        }
        for end in uses.ends.iter().filter(|end| end.back != NONE) {
            run.away_from[end.back as usize] = end.slot;
        }
        run.line_up();
        run.after_slot(0)?;
        Some(run)
    }

    fn place(&self, v: u32, s: u32) -> usize {
        v as usize * self.moving.n_stores + s as usize
    }

    fn overlaps(&self, channel: usize) -> bool {
        self.moving.problem.channels[channel].overlaps
    }

    fn bytes(&self, v: u32) -> i64 {
        self.moving.flat.bytes[v as usize]
    }

    /// When the last copy of a value out of memory has ended; infinite if it has not begun.
    fn out_end(&self, v: u32) -> f64 {
        if self.n_waiting[v as usize] > 0 {
            return f64::INFINITY;
        }
        let places = v as usize * self.moving.n_stores..(v as usize + 1) * self.moving.n_stores;
        self.there[places].iter().copied().filter(|end| end.is_finite()).fold(0.0, f64::max)
    }

    fn wait(&mut self, until: f64, slot: usize, value: u32, is_out: bool) {
        if until > self.now {
            let time = until - self.now;
            self.waits.push(Wait { value, is_out, node: self.sequence[slot], time });
            self.now = until;
        }
    }

    /// Begins a copy; its end.
    fn transfer(&mut self, channel: usize, ready: f64, cost: f64) -> f64 {
        let end = self.now.max(self.channel_free[channel]).max(ready) + cost;
        self.channel_free[channel] = end;
        self.last_end = self.last_end.max(end);
        if !self.overlaps(channel) {
            self.now = end;
        }
        end
    }

    /// Begins the copy out at this place of the list of those that wait; says whether the store has room for it.
    fn begin_out(&mut self, at: usize) -> bool {
        let Leave { value, store, .. } = self.waiting[at];
        if self.fill(value, store).is_none() {
            return false;
        }
        self.waiting.swap_remove(at);
        self.n_waiting[value as usize] -= 1;
        let channel = self.moving.problem.stores[store as usize].out.channel.index();
        let cost = self.moving.out_cost(value, store);
        let end = self.transfer(channel, self.arrival[value as usize], cost);
        let place = self.place(value, store);
        self.there[place] = end;
        self.steps.push(Step::Out(Moving::value_id(value), Moving::store_id(store)));
        true
    }

    fn begin_in(&mut self, i: usize, v: u32, s: u32) {
        let channel = self.moving.problem.stores[s as usize].back.channel.index();
        let end = self.transfer(channel, self.there[self.place(v, s)], self.moving.back_cost(v, s));
        self.arrival[v as usize] = end;
        self.live[v as usize] = true;
        self.is_begun[i] = true;
        self.steps.push(Step::In(Moving::value_id(v), Moving::store_id(s)));
    }

    fn free(&mut self, v: u32) {
        self.live[v as usize] = false;
        self.steps.push(Step::Free(Moving::value_id(v)));
    }

    fn slot(&mut self, i: usize) -> Option<()> {
        let n = self.sequence[i];
        match self.moving.kind(n) {
            Kind::Compute => {
                self.release_ended(i);
                self.make_room(i)?;
                self.start_copies(i);
                self.compute(i, n)?;
            }
            Kind::In(v, s) => {
                self.stay_instead(v);
                self.release_ended(i);
                let place = self.place(v, s);
                self.n_back[place] -= 1;
                if !self.live[v as usize] {
                    self.make_room(i)?;
                    self.begin_in(i, v, s);
                }
                if self.n_back[place] == 0 {
                    self.discards.push((v, s));
                }
                self.is_begun[i] = true;
            }
            Kind::Rest(v) => self.stay_instead(v),
        }
        self.after_slot(i + 1)
    }

    /// A value that is still in memory where it is needed again does not leave it.
    fn stay_instead(&mut self, v: u32) {
        if let Some(at) = self.holds.iter().position(|hold| hold.value == v) {
            self.holds.swap_remove(at);
            self.held -= self.bytes(v);
        }
    }

    /// Frees what has been copied.
    fn release_ended(&mut self, i: usize) {
        let mut at = 0;
        while at < self.holds.len() {
            let Hold { value, from } = self.holds[at];
            let bar = if self.would_be_taken_over(value) { self.started } else { self.now };
            if from as usize <= i && self.out_end(value) <= bar {
                self.holds.swap_remove(at);
                self.held -= self.bytes(value);
                self.free(value);
            } else {
                at += 1;
            }
        }
    }

    /// Waits for copies out until the slot fits.
    fn make_room(&mut self, i: usize) -> Option<()> {
        let outputs = self.moving.flat.outputs.get(self.sequence[i] as usize);
        loop {
            let is_made_anew = |hold: &Hold| {
                outputs.contains(&hold.value)
                    && (!self.is_unread_at(i, hold.value) || self.may_share(i, hold.value))
            };
            let must = self.held > self.room[i];
            let next = (0..self.holds.len())
                .filter(|&at| (must && self.holds[at].from as usize <= i) || is_made_anew(&self.holds[at]))
                .min_by(|&a, &b| {
                    let end = |at: usize| self.expected_end(self.holds[at].value);
                    end(a).total_cmp(&end(b)).then(self.holds[a].value.cmp(&self.holds[b].value))
                });
            let Some(at) = next else { return Some(()) };
            let value = self.holds[at].value;
            self.finish_out(value)?;
            self.wait_for_hold(i, value);
            self.holds.swap_remove(at);
            self.held -= self.bytes(value);
            self.free(value);
            self.release_ended(i);
        }
    }

    fn is_unread_at(&self, i: usize, v: u32) -> bool {
        let mut rest = self.ends[self.next_end..].iter().take_while(|end| end.slot as usize <= i + 1);
        rest.any(|end| end.value == v && end.is_unread)
    }

    /// When the copy out of a held value ends, or would if it began now.
    fn expected_end(&self, v: u32) -> f64 {
        if self.n_waiting[v as usize] == 0 {
            return self.out_end(v);
        }
        let store = self.waits_for[v as usize];
        let channel = self.moving.problem.stores[store as usize].out.channel.index();
        self.channel_free[channel].max(self.now) + self.moving.out_cost(v, store)
    }

    /// Begins the copies out of a value that have not begun.
    fn finish_out(&mut self, v: u32) -> Option<()> {
        while self.n_waiting[v as usize] > 0 {
            let at = self.waiting.iter().position(|leave| leave.value == v)?;
            self.begin_out(at).then_some(())?;
        }
        Some(())
    }

    fn compute(&mut self, i: usize, n: u32) -> Option<()> {
        let flat = &self.moving.flat;
        let own = |v: &&u32| (**v as usize) < self.moving.n_values;
        for &v in flat.consumes.get(n as usize).iter().filter(own) {
            self.give_up(v, false);
        }
        self.keep_storage_apart(i, n)?;
        for &v in flat.inputs.get(n as usize).iter().filter(own) {
            self.wait(self.arrival[v as usize], i, v, false);
        }
        for &v in flat.consumes.get(n as usize).iter().filter(own) {
            self.wait(self.out_end(v), i, v, true);
        }
        for k in 0..self.sharing.applied.len() {
            let v = self.sharing.applied[k].0;
            self.wait(self.out_end(v), i, v, true);
        }
        self.steps.push(Step::Compute(NodeId(n)));
        self.started = self.now;
        self.now += flat.cost[n as usize];

        for &v in flat.consumes.get(n as usize).iter().filter(own) {
            self.live[v as usize] = false;
            for s in 0..self.moving.n_stores as u32 {
                let place = self.place(v, s);
                if self.there[place].is_finite() {
                    self.there[place] = f64::INFINITY;
                    self.filled[s as usize] -= self.bytes(v) as u64;
                }
            }
        }
        for &v in flat.outputs.get(n as usize).iter().filter(own) {
            if !std::mem::replace(&mut self.live[v as usize], true) {
                self.arrival[v as usize] = 0.0;
            }
        }
        Some(())
    }

    /// Frees what is not read any more, gives places back, and lines up the copies out of what is new.
    fn after_slot(&mut self, slot: usize) -> Option<()> {
        while self.next_leave < self.leaves.len() && self.leaves[self.next_leave].slot as usize <= slot {
            let leave = self.leaves[self.next_leave];
            self.next_leave += 1;
            let is_waiting = self.n_waiting[leave.value as usize] > 0
                && self.waiting.iter().any(|w| (w.value, w.store) == (leave.value, leave.store));
            if !is_waiting && self.there[self.place(leave.value, leave.store)].is_infinite() {
                self.waiting.push(leave);
                self.n_waiting[leave.value as usize] += 1;
                self.waits_for[leave.value as usize] = leave.store;
            }
        }
        let mut late: Vec<(u32, bool)> = Vec::new();
        while self.next_end < self.ends.len() && self.ends[self.next_end].slot as usize <= slot {
            let end = self.ends[self.next_end];
            self.next_end += 1;
            let v = end.value;
            let is_kept = end.is_unread && self.holds.iter().any(|hold| hold.value == v);
            let is_early = end.is_unread && self.arrival[v as usize] > 0.0;
            if is_kept || is_early || !self.live[v as usize] {
                continue;
            }
            if end.back == NONE {
                // Whatever copy out was still to come is not needed.
                self.give_up(v, true);
            }
            // A free directly after the compute lets an output take over the storage, for which the copy must have ended.
            let shares = self.would_be_taken_over(v);
            let bar = if shares { self.started } else { self.now };
            if self.out_end(v) <= bar { self.free(v) } else { late.push((v, shares)) }
        }
        for (v, shares) in late {
            if self.n_waiting[v as usize] > 0 {
                let store = self.waits_for[v as usize] as usize;
                let channel = self.moving.problem.stores[store].out.channel.index();
                if !self.overlaps(channel) {
                    self.finish_out(v)?;
                    if self.out_end(v) <= self.now {
                        self.free(v);
                        continue;
                    }
                }
            }
            self.held += self.bytes(v);
            self.holds.push(Hold { value: v, from: (slot + usize::from(shares)) as u32 });
        }
        self.give_places_back(slot);
        Some(())
    }

    fn finish(mut self) -> Option<Timetable> {
        self.waiting.sort_by_key(|leave| (leave.last_read, leave.value));
        while !self.waiting.is_empty() {
            let wanted =
                self.waiting.iter().position(|leave| self.uses.rests_in[leave.value as usize] == leave.store);
            let Some(at) = wanted else { break };
            self.begin_out(at).then_some(())?;
        }
        Some(Timetable {
            stored: self.uses.stored.iter().map(|&(v, s)| (ValueId(v), StoreId(s))).collect(),
            cost: self.now.max(self.last_end),
            peak: self.uses.memory.iter().copied().max().unwrap_or(self.moving.flat.fixed),
            steps: self.steps,
            waits: self.waits,
        })
    }
}
