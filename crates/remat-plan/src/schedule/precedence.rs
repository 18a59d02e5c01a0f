//! Which nodes run before which: the one place where that is computed.
//!
//! A node runs after the makers of its inputs. A node that overwrites state runs after the other readers of that state. In
//! *every* plan this second rule holds only for state that cannot be made again ([`Precedence::in_every_plan`]); where
//! every node runs once, it holds for everything that is overwritten ([`Precedence::with_single_runs`]).
//!
//! Facts about ancestors and descendants are propagated as bit sets, 64 facts at a time. Time and memory of everything
//! here: linear in the edges.

use crate::schedule::flat::{Flat, NONE};

/// For each node the nodes directly before and after it, ascending.
pub(crate) struct Precedence {
    earlier: Vec<Vec<u32>>,
    later: Vec<Vec<u32>>,
}

impl Precedence {
    /// The order of first runs that holds in every plan.
    pub(crate) fn in_every_plan(flat: &Flat) -> Precedence {
        Precedence::new(flat, |v| flat.lasting[v as usize])
    }

    /// The order that holds where no node runs twice.
    pub(crate) fn with_single_runs(flat: &Flat) -> Precedence {
        Precedence::new(flat, |_| true)
    }

    /// `holds_readers`: whether the readers of an overwritten value run before it is overwritten.
    fn new(flat: &Flat, holds_readers: impl Fn(u32) -> bool) -> Precedence {
        let n_nodes = flat.n_nodes();
        let mut earlier: Vec<Vec<u32>> = vec![Vec::new(); n_nodes];
        let mut later: Vec<Vec<u32>> = vec![Vec::new(); n_nodes];
        for (n, before) in earlier.iter_mut().enumerate() {
            let makers = flat.inputs.get(n).iter().map(|&v| flat.producer[v as usize]).filter(|&m| m != NONE);
            let state = flat.consumes.get(n).iter().filter(|&&v| holds_readers(v));
            let readers =
                state.flat_map(|&v| flat.readers.get(v as usize)).copied().filter(|&m| m != n as u32);
            before.extend(makers.chain(readers));
            before.sort_unstable();
            before.dedup();
            for &m in before.iter() {
                later[m as usize].push(n as u32);
            }
        }
        Precedence { earlier, later }
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.earlier.len()
    }

    /// The nodes directly before `n`.
    pub(crate) fn earlier(&self, n: usize) -> &[u32] {
        &self.earlier[n]
    }

    /// The nodes directly after `n`.
    pub(crate) fn later(&self, n: usize) -> &[u32] {
        &self.later[n]
    }

    /// The nodes that run before `n`.
    pub(crate) fn ancestors(&self, n: usize) -> Vec<bool> {
        Precedence::reach(&self.earlier, n)
    }

    /// The node `n` and those that run after it.
    pub(crate) fn descendants(&self, n: usize) -> Vec<bool> {
        let mut is_after = Precedence::reach(&self.later, n);
        is_after[n] = true;
        is_after
    }

    fn reach(edges: &[Vec<u32>], from: usize) -> Vec<bool> {
        let mut reached = vec![false; edges.len()];
        let mut stack = vec![from as u32];
        while let Some(n) = stack.pop() {
            for &m in &edges[n as usize] {
                if !std::mem::replace(&mut reached[m as usize], true) {
                    stack.push(m);
                }
            }
        }
        reached
    }

    /// The union of the facts of all ancestors of each node.
    pub(crate) fn of_ancestors(&self, own: &[u64]) -> Vec<u64> {
        let mut facts = vec![0u64; own.len()];
        for (n, earlier) in self.earlier.iter().enumerate() {
            facts[n] = earlier.iter().fold(0, |bits, &m| bits | facts[m as usize] | own[m as usize]);
        }
        facts
    }

    /// The union of the facts of all descendants of each node.
    pub(crate) fn of_descendants(&self, own: &[u64]) -> Vec<u64> {
        let mut facts = vec![0u64; own.len()];
        for (n, later) in self.later.iter().enumerate().rev() {
            facts[n] = later.iter().fold(0, |bits, &m| bits | facts[m as usize] | own[m as usize]);
        }
        facts
    }
}
