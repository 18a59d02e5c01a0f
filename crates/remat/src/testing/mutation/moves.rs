//! Copies to and from stores with one thing wrong, in plans, schedules and layouts.

use super::{Laid, Mutant, Specimen, mutant, position};
use crate::ids::{Id, SlotId, ValueId};
use crate::rewrite::{Schedule, Step};
use crate::store::PAGE;
use crate::testing::Choices;
use remat_plan::StoreId;

/// Which of the copies a kind is about.
pub(super) type Picks = fn(&Step) -> bool;

pub(super) fn is_out(step: &Step) -> bool {
    matches!(step, Step::Out(..))
}

pub(super) fn is_in(step: &Step) -> bool {
    matches!(step, Step::In(..))
}

pub(super) fn is_discard(step: &Step) -> bool {
    matches!(step, Step::Discard(_))
}

fn find(s: &Schedule, choices: &mut Choices, picks: Picks) -> Option<usize> {
    position(&s.steps, choices, |_, step| picks(step))
}

pub(super) fn dropped(s: &mut Schedule, choices: &mut Choices, picks: Picks) -> Option<Step> {
    let at = find(s, choices, picks)?;
    Some(s.steps.remove(at))
}

pub(super) fn repeated(s: &mut Schedule, choices: &mut Choices, picks: Picks) -> Option<Step> {
    let step = s.steps[find(s, choices, picks)?];
    s.steps.insert(choices.below(s.steps.len() + 1), step);
    Some(step)
}

pub(super) fn moved(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = find(s, choices, |step| is_out(step) || is_in(step) || is_discard(step))?;
    let step = s.steps.remove(at);
    s.steps.insert(choices.below(s.steps.len() + 1), step);
    Some(step)
}

/// The copy comes after a node that reads it.
pub(super) fn read_before_arrival(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let reader = |s: &Schedule, at: usize, value: ValueId| {
        let reads = |step: &Step| matches!(step, Step::Run(n) if s.graph.nodes[*n].inputs.contains(&value));
        s.steps[at..].iter().position(reads).map(|after| at + after)
    };
    let value_of = |step: &Step| if let Step::In(_, v) = step { Some(*v) } else { None };
    let at =
        position(&s.steps, choices, |at, step| value_of(step).is_some_and(|v| reader(s, at, v).is_some()))?;
    let to = reader(s, at, value_of(&s.steps[at])?)?;
    let step = s.steps.remove(at);
    s.steps.insert(to, step);
    Some(step)
}

/// The buffer is freed before the copy of it begins.
pub(super) fn freed_before_copy(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = find(s, choices, is_out)?;
    let Step::Out(value, _) = s.steps[at] else { return None };
    let free = s.steps[at..].iter().position(|step| *step == Step::Free(value))? + at;
    let step = s.steps.remove(free);
    s.steps.insert(at, step);
    Some(step)
}

/// The slot is given back before it is read.
pub(super) fn early_discard(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let slot_of = |step: &Step| if let Step::In(slot, _) = step { Some(*slot) } else { None };
    let at = find(s, choices, is_in)?;
    let slot = slot_of(&s.steps[at])?;
    s.steps.retain(|step| *step != Step::Discard(slot));
    let at = s.steps.iter().position(|step| slot_of(step) == Some(slot))?;
    s.steps.insert(at, Step::Discard(slot));
    Some(s.steps[at])
}

/// A copy from another slot than the one that holds the value.
pub(super) fn another_slot(s: &mut Schedule, choices: &mut Choices) -> Option<Step> {
    let at = find(s, choices, is_in)?;
    let Step::In(slot, value) = s.steps[at] else { return None };
    let other = SlotId::new(choices.below(s.slots.len() + 1));
    (other != slot).then_some(())?;
    s.steps[at] = Step::In(other, value);
    Some(s.steps[at])
}

pub(super) fn another_store(s: &mut Schedule, choices: &mut Choices) -> Option<SlotId> {
    // The end of what is carried; any other slot may be in any store.
    let carried: Vec<SlotId> = s.carried.iter().filter(|c| c.begin != c.end).map(|c| c.end).collect();
    let slot = carried[position(&carried, choices, |_, _| true)?];
    s.slots[slot].store = StoreId::new(s.slots[slot].store.index() + 1);
    Some(slot)
}

pub(super) fn slot_of_another(s: &mut Schedule, choices: &mut Choices) -> Option<SlotId> {
    let slots: Vec<SlotId> = s.slots.ids().collect();
    let slot = slots[position(&slots, choices, |_, _| true)?];
    s.slots[slot].of = another_value(s, choices, s.slots[slot].of)?;
    Some(slot)
}

pub(super) fn copy_of_another(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let copies: Vec<(ValueId, ValueId)> = s.copy_of.iter().map(|(&copy, &of)| (copy, of)).collect();
    let (copy, of) = copies[position(&copies, choices, |_, _| true)?];
    match choices.below(3) {
        0 => drop(s.copy_of.remove(&copy)),
        _ => drop(s.copy_of.insert(copy, another_value(s, choices, of)?)),
    }
    Some(copy)
}

fn another_value(s: &Schedule, choices: &mut Choices, value: ValueId) -> Option<ValueId> {
    let other = ValueId::new(choices.below(s.graph.values.len()));
    (other != value).then_some(other)
}

/// The node reads the buffer that was copied out and freed, not the one that it came back to.
pub(super) fn stale_buffer(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let is_copy = |v: &ValueId| s.copy_of.contains_key(v);
    let readers: Vec<_> = s.runs().filter(|n| s.graph.nodes[*n].inputs.iter().any(is_copy)).collect();
    let node = readers[position(&readers, choices, |_, _| true)?];
    let inputs = s.graph.nodes[node].inputs.clone();
    let at = position(&inputs, choices, |_, v| is_copy(v))?;
    let original = s.copy_of[&inputs[at]];
    s.graph.nodes[node].inputs[at] = original;
    Some(original)
}

pub(super) fn not_carried(s: &mut Schedule, choices: &mut Choices) -> Option<ValueId> {
    let at = position(&s.carried, choices, |_, _| true)?;
    Some(s.carried.remove(at).source)
}

pub(super) fn carried_from_another(s: &mut Schedule, choices: &mut Choices) -> Option<SlotId> {
    let at = position(&s.carried, choices, |_, _| true)?;
    let other = SlotId::new(choices.below(s.slots.len() + 1));
    let carried = &mut s.carried[at];
    let end = if choices.below(2) == 0 { &mut carried.begin } else { &mut carried.end };
    (*end != other).then_some(())?;
    *end = other;
    Some(other)
}

/// A change of the place of a slot.
pub(super) fn slot(
    of: &Specimen,
    choices: &mut Choices,
    edit: fn(&mut Laid, SlotId, &mut Choices),
) -> Option<Mutant<Laid>> {
    let right = Laid {
        schedule: of.program.schedule().clone(),
        layout: of.program.layout().clone(),
        placed: Vec::new(),
    };
    let mut laid = right.clone();
    let slots: Vec<SlotId> = laid.schedule.slots.ids().collect();
    let has_bytes = |slot: SlotId| laid.schedule.slot_bytes(slot).0 > 0;
    let slot = slots[position(&slots, choices, |_, &slot| has_bytes(slot))?];
    edit(&mut laid, slot, choices);
    if laid == right {
        return None;
    }
    mutant(slot, laid)
}

pub(super) fn slot_anywhere(l: &mut Laid, slot: SlotId, choices: &mut Choices) {
    let store = l.layout.stores[l.schedule.slots[slot].store.index()].0;
    l.layout.slots[slot] = PAGE * choices.below((store / PAGE) as usize) as u64;
}

pub(super) fn slot_outside(l: &mut Laid, slot: SlotId, _: &mut Choices) {
    l.layout.slots[slot] = l.layout.stores[l.schedule.slots[slot].store.index()].0;
}

pub(super) fn other_store_size(l: &mut Laid, choices: &mut Choices) -> Option<usize> {
    let at = position(&l.layout.stores, choices, |_, size| size.0 > 0)?;
    let size = &mut l.layout.stores[at].0;
    *size = if choices.below(2) == 0 { *size - PAGE } else { *size + PAGE };
    Some(at)
}
