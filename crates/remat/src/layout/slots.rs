//! Places in stores: each slot from the step that copies to it until it is discarded.

use super::pack::{Block, pack_around};
use crate::ids::{IdVec, SlotId, ValueId};
use crate::rewrite::{Schedule, Step};
use crate::store::PAGE;
use remat_plan::Bytes;

/// An offset for every slot, and the size of every store. `placed` are sources that lie in their store already, and where.
pub(super) fn place(schedule: &Schedule, placed: &[(ValueId, u64)]) -> (IdVec<SlotId, u64>, Vec<Bytes>) {
    let n_slots = schedule.slots.len();
    let last = u32::try_from(schedule.steps.len()).expect("fewer than 2^32 steps");
    let bytes = |slot: SlotId| schedule.slot_bytes(slot).0.next_multiple_of(PAGE);
    let mut life = IdVec::<SlotId, (u32, u32)>::filled(n_slots, (0, last));
    for (step, at) in schedule.steps.iter().zip(0u32..) {
        match *step {
            Step::Out(_, slot) => life[slot].0 = at,
            Step::Discard(slot) => life[slot].1 = at,
            Step::Run(_) | Step::Free(_) | Step::In(..) => {}
        }
    }
    // What carries state has its place for good.
    let mut same_as = IdVec::<SlotId, SlotId>::from_iter(schedule.slots.ids());
    let mut fixed_at = IdVec::<SlotId, Option<u64>>::filled(n_slots, None);
    for carried in &schedule.carried {
        life[carried.begin] = (0, last);
        same_as[carried.end] = carried.begin;
        let is_placed = |&&(source, _): &&(ValueId, u64)| source == carried.source;
        fixed_at[carried.begin] = placed.iter().find(is_placed).map(|&(_, offset)| offset);
    }
    let n_stores = schedule.slots.iter().map(|slot| slot.store.index() + 1).max().unwrap_or(0);
    let mut offsets = IdVec::<SlotId, u64>::filled(n_slots, 0);
    let mut sizes = vec![Bytes(0); n_stores];
    for (store, size) in sizes.iter_mut().enumerate() {
        let is_here = |slot: &SlotId| schedule.slots[*slot].store.index() == store && same_as[*slot] == *slot;
        let here: Vec<SlotId> = schedule.slots.ids().filter(is_here).collect();
        // Slots are whole pages, so each begins on one.
        let block = |&slot: &SlotId| Block::new(life[slot].0, life[slot].1, bytes(slot));
        let blocks: Vec<Block> = here.iter().map(block).collect();
        let fixed: Vec<Option<u64>> = here.iter().map(|&slot| fixed_at[slot]).collect();
        // Any packing will do: a store is not what the budget is about.
        for (&slot, offset) in here.iter().zip(pack_around(&blocks, &fixed, u64::MAX)) {
            offsets[slot] = offset;
            *size = Bytes(size.0.max(offset + bytes(slot)));
        }
    }
    for carried in &schedule.carried {
        offsets[carried.end] = offsets[carried.begin];
    }
    (offsets, sizes)
}
