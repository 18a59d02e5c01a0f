//! Other orders of execution for a problem.
//!
//! Planners that follow the problem's order get another order by planning a renumbered problem. The one that
//! matters most in training: an update that waits for the end of the step holds its gradient until then. [`eager`]
//! runs every node of the optimizer phase as soon as its inputs exist and the other readers of the state it
//! overwrites have run. Time: linear.

use crate::problem::{Phase, Problem};

/// A problem with its nodes in another order; node i of it is node `original[i]` of the original.
pub(crate) struct Reordered {
    pub(crate) problem: Problem,
    pub(crate) original: Vec<u32>,
}

impl Reordered {
    /// A sequence of computes in terms of the original problem.
    pub(crate) fn restore(&self, computes: &[u32]) -> Vec<u32> {
        computes.iter().map(|&n| self.original[n as usize]).collect()
    }
}

/// The problem with every update as early as possible, or nothing when that is its order already.
pub(crate) fn eager(problem: &Problem) -> Option<Reordered> {
    let n_nodes = problem.nodes.len();
    // An optimizer node waits for the makers of its inputs and for the other readers of what it overwrites.
    let mut waits = vec![0u32; n_nodes];
    let mut released_by: Vec<Vec<u32>> = vec![Vec::new(); n_nodes];
    for id in problem.node_ids().filter(|&n| problem.node(n).phase == Phase::Optimizer) {
        let node = problem.node(id);
        let makers = node.inputs.iter().filter_map(|&v| problem.producer(v));
        let readers = node.consumes.iter().flat_map(|&v| problem.readers(v)).copied();
        for earlier in makers.chain(readers).filter(|&earlier| earlier != id) {
            waits[id.index()] += 1;
            released_by[earlier.index()].push(id.0);
        }
    }
    let mut original = Vec::with_capacity(n_nodes);
    let mut ready: Vec<u32> = Vec::new();
    let is_free = |n: usize, waits: &[u32]| problem.nodes[n].phase == Phase::Optimizer && waits[n] == 0;
    // Updates that wait for nothing run first; every other one is released by the last node it waits for.
    ready.extend((0..n_nodes).rev().filter(|&n| is_free(n, &waits)).map(|n| n as u32));
    for n in problem.node_ids() {
        if problem.node(n).phase != Phase::Optimizer {
            ready.push(n.0);
        }
        while let Some(next) = ready.pop() {
            original.push(next);
            for &update in &released_by[next as usize] {
                waits[update as usize] -= 1;
                if waits[update as usize] == 0 {
                    ready.push(update);
                }
            }
        }
    }
    if original.iter().enumerate().all(|(i, &n)| i == n as usize) {
        return None;
    }
    let mut spec = problem.spec().clone();
    spec.nodes = original.iter().map(|&n| problem.nodes[n as usize].clone()).collect();
    let problem = Problem::new(spec).expect("the new order respects every dependency");
    Some(Reordered { problem, original })
}
