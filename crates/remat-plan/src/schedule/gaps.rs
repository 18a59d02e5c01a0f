//! From decisions to a schedule: which values stay live between two of their uses, and the computes that follow.
//!
//! In: for every read of a value by a node of the problem, the fate of the value in the gap before that read (since
//! the previous read, or since it was made). Out: the sequence of computes in the problem's order, with the
//! recomputes that become necessary, each placed just before the node that needs it. Within one such chain every
//! value is made once. Time and memory are linear in the result; no recursion.

use crate::schedule::flat::{Flat, NONE};
use crate::schedule::moving::Moving;

/// What happens to a value in the gap before a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    /// It stays live.
    Keep,
    /// It is dropped. If a recompute of something else makes it again within the gap, it stays live from there.
    Share,
    /// It is dropped, and dropped again after every recompute that passes through it.
    Drop,
    /// It is in this store and comes back for the read, and for every recompute that needs it before.
    Move(u32),
}

/// A sequence of computes, and for each the node of the problem's order on whose behalf it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) computes: Vec<u32>,
    pub(crate) serves: Vec<u32>,
}

/// Everything kept.
pub(crate) fn keep_all(flat: &Flat) -> Vec<Gap> {
    vec![Gap::Keep; flat.readers.n_items()]
}

/// Drops every gap of `value` that lies between a read by a node of the forward phase (or its making) and a read by
/// a later phase. `is_forward` is a flag per node.
pub(crate) fn drop_at_the_turn(flat: &Flat, is_forward: &[bool], value: usize, gaps: &mut [Gap], fate: Gap) {
    for (k, j) in flat.readers.range(value).enumerate() {
        let is_later_phase = !is_forward[flat.readers.item(j) as usize];
        let comes_from_forward = k == 0 || is_forward[flat.readers.item(j - 1) as usize];
        let made_in_forward = flat.producer[value] != NONE && is_forward[flat.producer[value] as usize];
        if is_later_phase && comes_from_forward && made_in_forward {
            gaps[j] = fate;
        }
    }
}

/// Makes the schedule, or nothing when a recompute would need state that an update has already overwritten.
pub(crate) fn schedule(flat: &Flat, gaps: &[Gap]) -> Option<Schedule> {
    schedule_or_missing(flat, gaps).ok()
}

/// Makes the schedule; the error is the value that a recompute would need after it was overwritten.
pub(crate) fn schedule_or_missing(flat: &Flat, gaps: &[Gap]) -> Result<Schedule, u32> {
    let mut maker = Maker::new(flat, gaps, None);
    for n in 0..flat.n_nodes() {
        maker.run(n)?;
    }
    Ok(maker.result)
}

/// The same where values move, too. `last`: for each value the node that brings it back in the very end if it does not
/// stay in memory after its last read, or `NONE`.
pub(crate) fn schedule_moving(moving: &Moving, gaps: &[Gap], last: &[u32]) -> Option<Schedule> {
    let mut maker = Maker::new(&moving.flat, gaps, Some((moving, last)));
    for n in 0..moving.n_nodes {
        maker.run(n).ok()?;
    }
    for &node in last.iter().filter(|&&node| node != NONE) {
        maker.push(node, moving.n_nodes.saturating_sub(1));
    }
    Some(maker.result)
}

struct Maker<'a> {
    flat: &'a Flat,
    gaps: &'a [Gap],
    moving: Option<(&'a Moving<'a>, &'a [u32])>,
    /// Whether a live copy exists at this point.
    available: Vec<bool>,
    /// The next read of each value, as a position in the array of all reads.
    next_read: Vec<u32>,
    /// Values made again for the current node which do not outlive it.
    passing: Vec<u32>,
    stack: Vec<(u32, u32)>,
    result: Schedule,
}

impl<'a> Maker<'a> {
    fn new(flat: &'a Flat, gaps: &'a [Gap], moving: Option<(&'a Moving<'a>, &'a [u32])>) -> Maker<'a> {
        let is_elsewhere = |v: usize| {
            let reads = flat.readers.range(v);
            if reads.is_empty() {
                moving.is_some_and(|(_, last)| last.get(v).is_some_and(|&node| node != NONE))
            } else {
                matches!(gaps[reads.start], Gap::Move(_))
            }
        };
        Maker {
            flat,
            gaps,
            moving,
            available: (flat.producer.iter().enumerate())
                .map(|(v, &producer)| producer == NONE && !is_elsewhere(v))
                .collect(),
            next_read: (0..flat.n_values()).map(|v| flat.readers.range(v).start as u32).collect(),
            passing: Vec::new(),
            stack: Vec::new(),
            result: Schedule::default(),
        }
    }

    fn run(&mut self, n: usize) -> Result<(), u32> {
        for &v in self.flat.inputs.get(n) {
            if !self.available[v as usize] {
                self.restore(v, n)?;
            }
        }
        self.push(n as u32, n);
        for v in self.passing.drain(..) {
            self.available[v as usize] = false;
        }
        for &v in self.flat.inputs.get(n) {
            self.next_read[v as usize] += 1;
            self.available[v as usize] = self.survives(v);
        }
        for &v in self.flat.outputs.get(n) {
            self.available[v as usize] = self.survives(v);
        }
        for &v in self.flat.consumes.get(n) {
            self.available[v as usize] = false;
        }
        Ok(())
    }

    /// Whether a value stays live after a node of the order that read or made it.
    fn survives(&self, v: u32) -> bool {
        let v = v as usize;
        let next = self.next_read[v] as usize;
        let has_next = next < self.flat.readers.range(v).end;
        let moves = match has_next {
            true => matches!(self.gaps[next], Gap::Move(_)),
            false => self.moving.is_some_and(|(_, last)| last.get(v).is_some_and(|&node| node != NONE)),
        };
        if moves {
            false
        } else if self.flat.lasting[v] {
            true
        } else if has_next {
            self.gaps[next] == Gap::Keep
        } else {
            self.flat.is_output[v]
        }
    }

    fn push(&mut self, compute: u32, serves: usize) {
        self.result.computes.push(compute);
        self.result.serves.push(serves as u32);
    }

    /// Makes `value` again, and first what that needs: depth first with an explicit stack of (node, next input).
    fn restore(&mut self, value: u32, serves: usize) -> Result<(), u32> {
        self.enter(value)?;
        while let Some((n, k)) = self.stack.last_mut() {
            let node = *n as usize;
            if let Some(&v) = self.flat.inputs.get(node).get(*k as usize) {
                *k += 1;
                if !self.available[v as usize] {
                    self.enter(v)?;
                }
                continue;
            }
            self.stack.pop();
            self.push(node as u32, serves);
            for &v in self.flat.outputs.get(node) {
                if !std::mem::replace(&mut self.available[v as usize], true) {
                    let next = self.next_read[v as usize] as usize;
                    let has_next = next < self.flat.readers.range(v as usize).end;
                    if !(has_next && self.gaps[next] == Gap::Share) {
                        self.passing.push(v);
                    }
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, v: u32) -> Result<(), u32> {
        let next = self.next_read[v as usize] as usize;
        if let Some((moving, _)) = self.moving
            && next < self.flat.readers.range(v as usize).end
            && let Gap::Move(store) = self.gaps[next]
            && let Some(node) = moving.in_node(v, store)
        {
            self.stack.push((node, 0));
            return Ok(());
        }
        // A value that cannot be made again is missing only after it was overwritten.
        if self.flat.lasting[v as usize] {
            return Err(v);
        }
        self.stack.push((self.flat.producer[v as usize], 0));
        Ok(())
    }
}
