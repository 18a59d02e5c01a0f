//! Memory over the slots of a sequence, with the highest slot at hand: a tree of maxima.
//!
//! An inner node has the maximum of its two halves plus what was added to both of them, so nothing is ever pushed down.
//! Adding to a stretch, reading a slot and finding the highest one take O(log slots).

use std::ops::Range;

/// Takes a slot out of the search for the highest.
const EXCLUDED: i64 = i64::MIN / 4;

pub(super) struct Peaks {
    /// The number of leaves, a power of two.
    n_leaves: usize,
    most: Vec<i64>,
    added: Vec<i64>,
    excluded: Vec<usize>,
}

impl Peaks {
    pub(super) fn new(memory: &[i64]) -> Peaks {
        let n_leaves = memory.len().next_power_of_two();
        let mut most = vec![EXCLUDED; 2 * n_leaves];
        most[n_leaves..n_leaves + memory.len()].copy_from_slice(memory);
        for node in (1..n_leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Peaks { n_leaves, most, added: vec![0; 2 * n_leaves], excluded: Vec::new() }
    }

    /// Adds to all slots of a stretch.
    pub(super) fn add(&mut self, slots: Range<usize>, bytes: i64) {
        if !slots.is_empty() {
            self.add_below(1, 0..self.n_leaves, &slots, bytes);
        }
    }

    fn add_below(&mut self, node: usize, covered: Range<usize>, slots: &Range<usize>, bytes: i64) {
        if slots.end <= covered.start || covered.end <= slots.start {
            return;
        }
        if slots.start <= covered.start && covered.end <= slots.end {
            self.most[node] += bytes;
            self.added[node] += bytes;
            return;
        }
        let middle = usize::midpoint(covered.start, covered.end);
        self.add_below(2 * node, covered.start..middle, slots, bytes);
        self.add_below(2 * node + 1, middle..covered.end, slots, bytes);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    pub(super) fn get(&self, slot: usize) -> i64 {
        let mut node = (self.n_leaves + slot) / 2;
        let mut sum = self.most[self.n_leaves + slot];
        while node > 0 {
            sum += self.added[node];
            node /= 2;
        }
        sum
    }

    /// The highest slot, the last one of equals, and its memory; slots that were taken out do not count.
    pub(super) fn highest(&self) -> (usize, i64) {
        let mut node = 1;
        while node < self.n_leaves {
            node = if self.most[2 * node + 1] >= self.most[2 * node] { 2 * node + 1 } else { 2 * node };
        }
        (node - self.n_leaves, self.most[1])
    }

    /// Takes a slot out of the search for the highest one.
    pub(super) fn exclude(&mut self, slot: usize) {
        self.add(slot..slot + 1, EXCLUDED);
        self.excluded.push(slot);
    }

    /// The memory of every slot.
    pub(super) fn write_to(mut self, memory: &mut [i64]) {
        for slot in std::mem::take(&mut self.excluded) {
            self.add(slot..slot + 1, -EXCLUDED);
        }
        for (slot, used) in memory.iter_mut().enumerate() {
            *used = self.get(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::random::Random;

    #[test]
    fn the_tree_agrees_with_a_list() {
        let mut random = Random::new(5);
        for n_slots in 1..40 {
            let mut list: Vec<i64> = (0..n_slots).map(|_| random.below(20) as i64).collect();
            let mut is_open = vec![true; n_slots];
            let mut tree = Peaks::new(&list);
            for _ in 0..60 {
                let (a, b) = (random.below(n_slots), random.below(n_slots + 1));
                let slots = a.min(b)..a.max(b);
                let bytes = random.below(9) as i64 - 4;
                list[slots.clone()].iter_mut().for_each(|used| *used += bytes);
                tree.add(slots, bytes);
                let open = (0..n_slots).filter(|&k| is_open[k]);
                let Some(highest) = open.max_by_key(|&k| list[k]) else { break };
                assert_eq!(tree.highest(), (highest, list[highest]));
                if random.below(4) == 0 {
                    tree.exclude(highest);
                    is_open[highest] = false;
                }
            }
            let mut written = vec![0; n_slots];
            tree.write_to(&mut written);
            assert_eq!(written, list);
        }
    }
}
