//! Which spans lie over a slot, the best first: lists of spans at the nodes of a tree over the slots.
//!
//! A stretch of slots is the union of O(log slots) nodes; a span is in the list of each of them, and the spans over a slot are
//! in the lists on the way from its leaf to the root. Spans come in the order of their rank, so every list is sorted, and what
//! is used up is passed over once.

use std::ops::Range;

pub(super) struct Cover {
    n_leaves: usize,
    /// Pairs of rank and span, by node.
    lists: Vec<Vec<(u32, u32)>>,
    /// How many of each list are used up.
    first: Vec<usize>,
}

impl Cover {
    pub(super) fn new(n_slots: usize) -> Cover {
        let n_leaves = n_slots.next_power_of_two();
        Cover { n_leaves, lists: vec![Vec::new(); 2 * n_leaves], first: vec![0; 2 * n_leaves] }
    }

    /// Adds a stretch of a span; spans come in the order of their rank.
    pub(super) fn add(&mut self, rank: u32, span: u32, slots: Range<usize>) {
        let (mut low, mut high) = (slots.start + self.n_leaves, slots.end + self.n_leaves);
        while low < high {
            if low % 2 == 1 {
                self.lists[low].push((rank, span));
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.lists[high].push((rank, span));
            }
            (low, high) = (low / 2, high / 2);
        }
    }

    /// The open span of the best rank over a slot. What is not open never becomes so again.
    pub(super) fn best(&mut self, slot: usize, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(u32, u32)> = None;
        let mut node = self.n_leaves + slot;
        while node > 0 {
            let list = &self.lists[node];
            let first = &mut self.first[node];
            while *first < list.len() && !is_open(list[*first].1 as usize) {
                *first += 1;
            }
            if let Some(&head) = list.get(*first)
                && best.is_none_or(|best| head.0 < best.0)
            {
                best = Some(head);
            }
            node /= 2;
        }
        best.map(|(_, span)| span as usize)
    }
}
