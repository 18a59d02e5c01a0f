//! Copies to and from stores that are under way while a step runs, and who waits for which.
//!
//! The rules are those of docs/formats.md: a reader waits until what it reads has arrived; a free, and whatever overwrites
//! a buffer, until every copy of it has ended; a discard until every copy to and from its slot has ended; a copy from a slot
//! begins when the copy to it has ended.

use crate::error::Result;
use crate::ids::{IdVec, SlotId, ValueId};
use crate::layout::Layout;
use crate::rewrite::Schedule;
use crate::store::{Store, Ticket};
use remat_plan::Way;
use std::time::{Duration, Instant};

/// When a copy took place, from the beginning of the step on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyTime {
    /// The step of the schedule that began it.
    pub step: usize,
    /// The direction.
    pub way: Way,
    /// When its channel began with it.
    pub start: Duration,
    /// When it had ended.
    pub end: Duration,
}

/// What is under way.
pub(super) struct Copies<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    stores: &'a mut [Store],
    /// Copies into live buffers, and copies of live buffers to stores.
    arriving: Vec<(ValueId, Ticket)>,
    leaving: Vec<(ValueId, Ticket)>,
    /// The copy to each slot, and the last one from it.
    filled: IdVec<SlotId, Option<Ticket>>,
    read: IdVec<SlotId, Option<Ticket>>,
    /// How long the program has waited.
    pub(super) stalls: Duration,
}

impl<'a> Copies<'a> {
    pub(super) fn new(schedule: &'a Schedule, layout: &'a Layout, stores: &'a mut [Store]) -> Copies<'a> {
        let n_slots = schedule.slots.len();
        Copies {
            schedule,
            layout,
            stores,
            arriving: Vec::new(),
            leaving: Vec::new(),
            filled: IdVec::filled(n_slots, None),
            read: IdVec::filled(n_slots, None),
            stalls: Duration::ZERO,
        }
    }

    /// Begins to copy a buffer to a slot.
    ///
    /// # Safety
    ///
    /// The buffer stays until its copies have been waited for, and nothing writes to it before.
    pub(super) unsafe fn out(
        &mut self,
        at: usize,
        value: ValueId,
        slot: SlotId,
        from: (*const u8, u64),
    ) -> Result<()> {
        let after = self.arriving.iter().find(|(v, _)| *v == value).map(|(_, ticket)| ticket);
        let store = &mut self.stores[self.schedule.slots[slot].store.index()];
        // SAFETY: the caller's promise.
        let ticket = unsafe { store.copy_out(from, self.layout.slots[slot], after, at as u32)? };
        self.filled[slot] = Some(ticket.clone());
        self.leaving.push((value, ticket));
        Ok(())
    }

    /// Begins to copy a slot into a buffer.
    ///
    /// # Safety
    ///
    /// The buffer stays until its copies have been waited for, and nothing else reads or writes it before.
    pub(super) unsafe fn back(
        &mut self,
        at: usize,
        slot: SlotId,
        value: ValueId,
        to: (*mut u8, u64),
    ) -> Result<()> {
        let after = self.filled[slot].as_ref();
        let store = &mut self.stores[self.schedule.slots[slot].store.index()];
        // SAFETY: the caller's promise.
        let ticket = unsafe { store.copy_in(self.layout.slots[slot], to, after, at as u32)? };
        self.read[slot] = Some(ticket.clone());
        self.arriving.push((value, ticket));
        Ok(())
    }

    /// Waits until a buffer can be read.
    pub(super) fn wait_to_read(&mut self, value: ValueId) -> Result<()> {
        wait_for(&mut self.arriving, value, &mut self.stalls)
    }

    /// Waits until nothing is copied into or out of a buffer.
    pub(super) fn wait_to_write(&mut self, value: ValueId) -> Result<()> {
        wait_for(&mut self.arriving, value, &mut self.stalls)?;
        wait_for(&mut self.leaving, value, &mut self.stalls)
    }

    /// Waits until nothing is copied to or from a slot; then it is nobody's.
    pub(super) fn discard(&mut self, slot: SlotId, poison: Option<u8>) -> Result<()> {
        for ticket in [self.filled[slot].take(), self.read[slot].take()].into_iter().flatten() {
            wait(&ticket, &mut self.stalls)?;
        }
        if let Some(byte) = poison {
            let bytes = self.schedule.slot_bytes(slot).0;
            let store = &mut self.stores[self.schedule.slots[slot].store.index()];
            store.fill(self.layout.slots[slot], bytes, byte)?;
        }
        Ok(())
    }

    /// Waits for everything, also after an error: afterwards nobody touches any buffer.
    pub(super) fn finish(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut result = Ok(());
        for store in &*self.stores {
            let finished = store.finish();
            result = result.and(finished);
        }
        if !self.stores.is_empty() {
            self.stalls += begin.elapsed();
        }
        result
    }

    /// When all copies took place, in the order of their starts.
    pub(super) fn times(&self, begin: Instant) -> Vec<CopyTime> {
        let mut times: Vec<CopyTime> = Vec::new();
        for store in &*self.stores {
            times.extend(store.copied().into_iter().map(|copied| CopyTime {
                step: copied.tag as usize,
                way: copied.way,
                start: copied.start.saturating_duration_since(begin),
                end: copied.end.saturating_duration_since(begin),
            }));
        }
        times.sort_by_key(|time| time.start);
        times
    }
}

fn wait_for(list: &mut Vec<(ValueId, Ticket)>, value: ValueId, stalls: &mut Duration) -> Result<()> {
    while let Some(at) = list.iter().position(|(v, _)| *v == value) {
        wait(&list[at].1, stalls)?;
        list.swap_remove(at);
    }
    Ok(())
}

fn wait(ticket: &Ticket, stalls: &mut Duration) -> Result<()> {
    if ticket.has_ended() {
        return ticket.wait();
    }
    let begin = Instant::now();
    let result = ticket.wait();
    *stalls += begin.elapsed();
    result
}
