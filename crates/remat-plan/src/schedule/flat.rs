//! The problem as flat arrays, and the exact peak of a sequence of computes: the inner loop of every planner.
//!
//! A planner stores only computes; frees follow from last uses ([`crate::free_early`]). Walking the sequence
//! backwards, a value is needed before a step if the step reads it or if it is needed after the step and the step
//! does not make it. So one backward pass gives the memory of every step: the bytes needed before it, its outputs and
//! workspace, less what it overwrites or shares. Time: linear in the operands of the computes.

use crate::ids::NodeId;
use crate::problem::Problem;

/// Lists of ids, one after the other in one array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    start: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    pub(crate) fn new<I: Iterator<Item = u32>>(lists: impl Iterator<Item = I>) -> Lists {
        let mut all = Lists { start: vec![0], items: Vec::new() };
        for list in lists {
            all.items.extend(list);
            all.start.push(all.items.len() as u32);
        }
        all
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> &[u32] {
        &self.items[self.range(i)]
    }

    /// Positions of list `i` in the array of all items, for side tables with one entry per item.
    #[inline]
    pub(crate) fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.start[i] as usize..self.start[i + 1] as usize
    }

    pub(crate) fn n_items(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn item(&self, at: usize) -> u32 {
        self.items[at]
    }
}

/// A problem in arrays; bytes are signed because differences of memory occur.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    pub(crate) fixed: i64,
    pub(crate) bytes: Vec<i64>,
    pub(crate) cost: Vec<f64>,
    /// Outputs + workspace - consumed bytes of each node.
    pub(crate) extra: Vec<i64>,
    pub(crate) inputs: Lists,
    pub(crate) outputs: Lists,
    pub(crate) consumes: Lists,
    /// Nodes that read each value, ascending.
    pub(crate) readers: Lists,
    /// Usable reuse pairs of each node, flattened: input, output, input, output, ...
    pub(crate) reuse: Lists,
    /// The maker of each value, or `NONE` for inputs.
    pub(crate) producer: Vec<u32>,
    /// Values that cannot be made again.
    pub(crate) lasting: Vec<bool>,
    pub(crate) is_output: Vec<bool>,
    /// How often each node runs at least.
    pub(crate) least_runs: Vec<u32>,
}

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// What a sequence of computes costs and needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measure {
    pub(crate) cost: f64,
    pub(crate) peak: i64,
    /// Index of the last compute with that memory.
    pub(crate) at: usize,
}

impl Measure {
    /// What to prefer: within the budget the cheaper one, above it the lower one. Smaller is better.
    pub(crate) fn rank(&self, budget: i64) -> (i64, f64, i64) {
        (self.peak.max(budget), self.cost, self.peak)
    }
}

impl Flat {
    pub(crate) fn new(problem: &Problem) -> Flat {
        let ids = |list: &[crate::ids::ValueId]| list.iter().map(|v| v.0).collect::<Vec<_>>().into_iter();
        let bytes: Vec<i64> = problem.values.iter().map(|value| value.bytes.0 as i64).collect();
        let total = |list: &[crate::ids::ValueId]| list.iter().map(|v| bytes[v.index()]).sum::<i64>();
        Flat {
            fixed: problem.fixed_bytes.0 as i64,
            cost: problem.nodes.iter().map(|node| node.cost).collect(),
            extra: problem
                .nodes
                .iter()
                .map(|node| total(&node.outputs) + node.workspace_bytes.0 as i64 - total(&node.consumes))
                .collect(),
            inputs: Lists::new(problem.nodes.iter().map(|node| ids(&node.inputs))),
            outputs: Lists::new(problem.nodes.iter().map(|node| ids(&node.outputs))),
            consumes: Lists::new(problem.nodes.iter().map(|node| ids(&node.consumes))),
            readers: Lists::new(problem.value_ids().map(|v| problem.readers(v).iter().map(|n| n.0))),
            reuse: Lists::new(problem.nodes.iter().map(|node| {
                let usable = node
                    .reuse
                    .iter()
                    .filter(|(i, o)| problem.bytes(*o) <= problem.bytes(*i) && !node.consumes.contains(i));
                usable.flat_map(|(i, o)| [i.0, o.0]).collect::<Vec<_>>().into_iter()
            })),
            producer: problem.value_ids().map(|v| problem.producer(v).map_or(NONE, |n| n.0)).collect(),
            lasting: problem.value_ids().map(|v| !problem.is_recomputable(v)).collect(),
            is_output: problem.value_ids().map(|v| problem.is_output(v)).collect(),
            least_runs: vec![1; problem.nodes.len()],
            bytes,
        }
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.cost.len()
    }

    pub(crate) fn n_values(&self) -> usize {
        self.bytes.len()
    }

    /// Exact cost and peak of a valid sequence.
    pub(crate) fn measure(&self, computes: &[u32], scratch: &mut Vec<bool>) -> Measure {
        let mut result = Measure { cost: 0.0, peak: i64::MIN, at: 0 };
        self.walk_back(computes, scratch, |i, used, _| {
            result.cost += self.cost[computes[i] as usize];
            if used > result.peak {
                result.peak = used;
                result.at = i;
            }
            true
        });
        result
    }

    /// Visits the computes from last to first with the memory while each runs and the flags of the values that
    /// are needed before it; stops when `visit` says so. `needed` is scratch space.
    pub(crate) fn walk_back(
        &self,
        computes: &[u32],
        needed: &mut Vec<bool>,
        mut visit: impl FnMut(usize, i64, &[bool]) -> bool,
    ) {
        needed.clear();
        needed.extend_from_slice(&self.is_output);
        let mut held: i64 = self.fixed;
        held += self
            .is_output
            .iter()
            .zip(&self.bytes)
            .filter(|(is_output, _)| **is_output)
            .map(|(_, b)| b)
            .sum::<i64>();
        for (i, &n) in computes.iter().enumerate().rev() {
            let n = n as usize;
            let shared = self.shared_bytes(n, |v| needed[v as usize]);
            for &v in self.outputs.get(n) {
                if std::mem::replace(&mut needed[v as usize], false) {
                    held -= self.bytes[v as usize];
                }
            }
            for &v in self.inputs.get(n) {
                if !std::mem::replace(&mut needed[v as usize], true) {
                    held += self.bytes[v as usize];
                }
            }
            if !visit(i, held + self.extra[n] - shared, needed) {
                return;
            }
        }
    }

    /// Whether every read value is made before and not overwritten in between, and every node runs.
    pub(crate) fn is_valid(&self, computes: &[u32]) -> bool {
        let mut live: Vec<bool> = self.producer.iter().map(|&producer| producer == NONE).collect();
        let mut has_run = vec![false; self.n_nodes()];
        for &n in computes {
            let n = n as usize;
            if self.inputs.get(n).iter().any(|&v| !live[v as usize]) {
                return false;
            }
            self.consumes.get(n).iter().for_each(|&v| live[v as usize] = false);
            self.outputs.get(n).iter().for_each(|&v| live[v as usize] = true);
            has_run[n] = true;
        }
        has_run.into_iter().zip(&self.least_runs).all(|(ran, &least)| ran || least == 0)
    }

    /// Removes recomputes whose outputs nothing reads before they are made again.
    pub(crate) fn prune(&self, computes: &mut Vec<u32>) {
        let mut n_left = vec![0u32; self.n_nodes()];
        for &n in computes.iter() {
            n_left[n as usize] += 1;
        }
        let mut needed = self.is_output.clone();
        let mut keep = vec![true; computes.len()];
        for (i, &n) in computes.iter().enumerate().rev() {
            let n = n as usize;
            if n_left[n] > self.least_runs[n] && self.outputs.get(n).iter().all(|&v| !needed[v as usize]) {
                n_left[n] -= 1;
                keep[i] = false;
                continue;
            }
            for &v in self.outputs.get(n) {
                needed[v as usize] = false;
            }
            for &v in self.inputs.get(n) {
                needed[v as usize] = true;
            }
        }
        let mut flags = keep.into_iter();
        computes.retain(|_| flags.next().unwrap_or(true));
    }

    /// Bytes of outputs that take over the storage of an input which is not needed after the step. With early frees
    /// no output is live before the step.
    #[inline]
    pub(crate) fn shared_bytes(&self, n: usize, needed_after: impl Fn(u32) -> bool) -> i64 {
        self.shared_new(n, needed_after, |_| true)
    }

    /// The same where outputs may be live already (`is_new` says which are not): these cannot move.
    #[inline]
    pub(crate) fn shared_new(
        &self,
        n: usize,
        needed_after: impl Fn(u32) -> bool,
        is_new: impl Fn(u32) -> bool,
    ) -> i64 {
        match self.reuse.get(n) {
            [] => 0,
            &[input, output] => {
                let applies = !needed_after(input) && is_new(output);
                if applies { self.bytes[output as usize] } else { 0 }
            }
            pairs => {
                // In listed order; an input or output that is taken blocks the later pairs that name it.
                let mut taken: Vec<&[u32]> = Vec::with_capacity(pairs.len() / 2);
                for pair in pairs.chunks_exact(2) {
                    let applies = !needed_after(pair[0]) && is_new(pair[1]);
                    if applies && taken.iter().all(|other| other[0] != pair[0] && other[1] != pair[1]) {
                        taken.push(pair);
                    }
                }
                taken.iter().map(|pair| self.bytes[pair[1] as usize]).sum()
            }
        }
    }
}

/// Ids as the rest of the crate writes them.
pub(crate) fn node_ids(computes: &[u32]) -> Vec<NodeId> {
    computes.iter().map(|&n| NodeId(n)).collect()
}
