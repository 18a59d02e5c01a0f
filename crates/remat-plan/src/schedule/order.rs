//! Other orders of execution for a problem.
//!
//! Planners that follow the problem's order get another order by planning a renumbered problem. The one that
//! matters most in training: an update that waits for the end of the step holds its gradient until then. [`eager`]
//! runs every node of the optimizer phase as soon as its inputs exist and the other readers of the state it
//! overwrites have run. In small problems any order can be the right one ([`shuffled`]). Time: linear.

use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::precedence::Precedence;
use crate::schedule::random::Random;
use crate::spec::Phase;

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
    let before = Precedence::with_single_runs(&Flat::new(problem));
    let is_update = |n: usize| problem.nodes[n].phase == Phase::Optimizer;
    let mut waits: Vec<usize> = (0..n_nodes).map(|n| before.earlier(n).len()).collect();
    let mut original = Vec::with_capacity(n_nodes);
    let mut ready: Vec<u32> = Vec::new();
    // Updates that wait for nothing run first; every other one is released by the last node it waits for.
    ready.extend((0..n_nodes).rev().filter(|&n| is_update(n) && waits[n] == 0).map(|n| n as u32));
    for n in problem.node_ids() {
        if !is_update(n.index()) {
            ready.push(n.0);
        }
        while let Some(next) = ready.pop() {
            original.push(next);
            for &update in before.later(next as usize).iter().filter(|&&later| is_update(later as usize)) {
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
    Some(reordered(problem, original))
}

/// The problem in any order that its dependencies allow.
pub(crate) fn shuffled(problem: &Problem, random: &mut Random) -> Reordered {
    let before = Precedence::with_single_runs(&Flat::new(problem));
    let mut waits: Vec<usize> = (0..before.n_nodes()).map(|n| before.earlier(n).len()).collect();
    let mut ready: Vec<u32> = (0..before.n_nodes() as u32).filter(|&n| waits[n as usize] == 0).collect();
    let mut original = Vec::with_capacity(before.n_nodes());
    while !ready.is_empty() {
        let next = ready.swap_remove(random.below(ready.len()));
        original.push(next);
        for &later in before.later(next as usize) {
            waits[later as usize] -= 1;
            if waits[later as usize] == 0 {
                ready.push(later);
            }
        }
    }
    reordered(problem, original)
}

fn reordered(problem: &Problem, original: Vec<u32>) -> Reordered {
    let mut spec = problem.spec().clone();
    spec.nodes = original.iter().map(|&n| problem.nodes[n as usize].clone()).collect();
    let problem = Problem::new(spec).expect("the new order respects every dependency");
    Reordered { problem, original }
}
