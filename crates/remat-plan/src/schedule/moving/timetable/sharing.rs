//! Outputs that take over the storage of an input.
//!
//! They do where the free of the input follows the compute directly, with nothing but frees in between; then the compute waits for the
//! input's copies out. So an input whose copy is under way is either waited for, or held until another step has parted its free
//! from the compute.

use super::Run;
use crate::plan::Step;
use crate::schedule::flat::NONE;

/// The last compute.
#[derive(Default)]
pub(super) struct Sharing {
    /// Its usable reuse pairs, in listed order, whose output was not live before.
    pairs: Vec<(u32, u32)>,
    /// Those of them for which the storage is taken over.
    pub(super) applied: Vec<(u32, u32)>,
    cost: f64,
}

impl Run<'_> {
    /// Whether a value is an output of the slot that can take over storage, which it cannot while it is live already.
    pub(super) fn may_share(&self, i: usize, v: u32) -> bool {
        let pairs = self.moving.flat.reuse.get(self.sequence[i] as usize);
        pairs.chunks_exact(2).any(|pair| pair[1] == v)
    }

    /// Before a compute: an output that takes over the storage of an input needs the input's copies out, which are begun here, to have
    /// ended. Where there is memory for both, the input is held instead.
    pub(super) fn keep_storage_apart(&mut self, i: usize, n: u32) -> Option<()> {
        let listed = self.moving.flat.reuse.get(n as usize).chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let pairs: Vec<(u32, u32)> = listed.filter(|pair| !self.live[pair.1 as usize]).collect();
        if pairs.is_empty() {
            self.sharing = Sharing::default();
            return Some(());
        }
        let mut freed = self.last_read_at(i, &pairs);
        for &(v, _) in freed.iter().filter(|end| end.1 == NONE) {
            self.give_up(v, true);
        }
        let mut begun: Vec<u32> = Vec::new();
        let mut room = self.room[i] - self.held;
        let mut next_room = self.room.get(i + 1).map_or(i64::MAX, |room| room - self.held);
        let bytes = |applied: &[(u32, u32)]| {
            applied.iter().map(|pair| self.moving.flat.bytes[pair.1 as usize]).sum::<i64>()
        };
        loop {
            let applied = taken_over(&pairs, |v| freed.iter().any(|end| end.0 == v));
            let start = self.start_of(n);
            let is_late = |pair: &&(u32, u32)| !begun.contains(&pair.0) && self.out_end(pair.0) > start;
            let Some(&(input, _)) = applied.iter().find(is_late) else { break };
            let without = taken_over(&pairs, |v| v != input && freed.iter().any(|end| end.0 == v));
            let loss = bytes(&applied) - bytes(&without);
            if room >= loss && next_room >= self.bytes(input) {
                room -= loss;
                next_room -= self.bytes(input);
                freed.retain(|end| end.0 != input);
            } else {
                self.finish_out(input)?;
                begun.push(input);
            }
        }
        // Waiting for one of them may let the copy of another one end that is listed before it.
        let start = begun.iter().map(|&v| self.out_end(v)).fold(self.start_of(n), f64::max);
        let ended = self.last_read_at(i, &pairs);
        let applied = taken_over(&pairs, |v| ended.iter().any(|end| end.0 == v) && self.out_end(v) <= start);
        self.sharing = Sharing { pairs, applied, cost: self.moving.flat.cost[n as usize] };
        Some(())
    }

    /// The inputs among the pairs that are not read any more after slot `i`, and what brings them back.
    fn last_read_at(&self, i: usize, pairs: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let ends = self.ends[self.next_end..].iter().take_while(|end| end.slot as usize <= i + 1);
        ends.filter(|end| pairs.iter().any(|pair| pair.0 == end.value))
            .map(|end| (end.value, end.back))
            .collect()
    }

    /// When a compute can begin if no storage is taken over.
    fn start_of(&self, n: u32) -> f64 {
        let own = |v: &&u32| (**v as usize) < self.moving.n_values;
        let inputs = self.moving.flat.inputs.get(n as usize).iter().filter(own);
        let consumed = self.moving.flat.consumes.get(n as usize).iter().filter(own);
        let arrivals = inputs.map(|&v| self.arrival[v as usize]);
        arrivals.chain(consumed.map(|&v| self.out_end(v))).fold(self.now, f64::max)
    }

    /// Whether a free of the value now would let an output of the last compute take over its storage.
    pub(super) fn would_be_taken_over(&self, v: u32) -> bool {
        if !self.sharing.pairs.iter().any(|pair| pair.0 == v) {
            return false;
        }
        let n_frees = self.steps.iter().rev().take_while(|step| matches!(step, Step::Free(_))).count();
        let (before, frees) = self.steps.split_at(self.steps.len() - n_frees);
        if !matches!(before.last(), Some(Step::Compute(_))) {
            return false;
        }
        let is_freed = |input: u32| {
            input == v
                || self.sharing.applied.iter().any(|pair| pair.0 == input)
                || frees.iter().any(|step| matches!(step, Step::Free(freed) if freed.0 == input))
        };
        let applied = taken_over(&self.sharing.pairs, is_freed);
        applied.iter().any(|pair| pair.0 == v)
    }

    /// Waits for the end of the copies out of a held value that is to be freed now.
    pub(super) fn wait_for_hold(&mut self, i: usize, v: u32) {
        let end = self.out_end(v);
        if end > self.started && self.would_be_taken_over(v) {
            // It is the last compute that waits.
            self.started = end;
            self.wait(end + self.sharing.cost, i, v, true);
        } else {
            self.wait(end, i, v, true);
        }
    }
}

/// The pairs that apply when some of the inputs are freed: in listed order, each input and each output at most once.
fn taken_over(pairs: &[(u32, u32)], is_freed: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
    let mut applied: Vec<(u32, u32)> = Vec::new();
    for &pair in pairs {
        if is_freed(pair.0) && applied.iter().all(|other| other.0 != pair.0 && other.1 != pair.1) {
            applied.push(pair);
        }
    }
    applied
}
