//! The cheapest plan with stores by brute force, without any of the ideas of the exhaustive planner.
//!
//! A plan is a sequence of steps that are not frees, each followed by any set of frees. All of these are tried, states in the order
//! of their time so far; only a state that is the same in every respect is not visited twice. For a handful of values.

use remat_plan::{Problem, Way};
use std::collections::{BTreeSet, HashSet};

#[derive(Clone, PartialEq)]
struct State {
    live: u32,
    done: u32,
    stored: Vec<u32>,
    owed: Vec<u32>,
    now: f64,
    channels: Vec<f64>,
    arrival: Vec<f64>,
    written: Vec<Vec<f64>>,
    read: Vec<Vec<f64>>,
}

impl State {
    fn end(&self) -> f64 {
        self.channels.iter().copied().fold(self.now, f64::max)
    }

    fn key(&self) -> Vec<u64> {
        let sets = [self.live, self.done].into_iter().chain(self.stored.clone()).chain(self.owed.clone());
        let times = self.channels.iter().chain(&self.arrival);
        let times = times.chain(self.written.iter().flatten()).chain(self.read.iter().flatten());
        let times = times.map(|&time| if time <= self.now { 0.0 } else { time });
        sets.map(u64::from).chain([self.now.to_bits()]).chain(times.map(f64::to_bits)).collect()
    }

    fn copies_out(&self, v: usize) -> f64 {
        let stores = (0..self.stored.len()).filter(|&s| self.stored[s] & 1 << v != 0);
        stores.map(|s| self.written[s][v]).fold(0.0, f64::max)
    }
}

/// What brute force says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Naive {
    /// The least cost.
    Cost(f64),
    /// No plan costs at most what was asked.
    None,
    /// More states than asked for.
    Unknown,
}

/// The least cost of all plans within a budget, if it is at most `limit`.
pub(crate) fn cheapest(problem: &Problem, budget: u64, limit: f64, most_states: usize) -> Naive {
    let mut queue: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut states: Vec<State> = Vec::new();
    let mut seen: HashSet<Vec<u64>> = HashSet::new();
    let mut push = |state: State, states: &mut Vec<State>, queue: &mut BTreeSet<(u64, usize)>| {
        if state.end() <= limit && seen.insert(state.key()) {
            queue.insert((state.end().to_bits(), states.len()));
            states.push(state);
        }
    };
    for state in starts(problem) {
        freed(&state, |next, _| push(next, &mut states, &mut queue));
    }
    while let Some((cost, at)) = queue.pop_first() {
        let state = states[at].clone();
        if is_final(problem, &state) {
            return Naive::Cost(f64::from_bits(cost));
        }
        if states.len() > most_states {
            return Naive::Unknown;
        }
        for n in 0..problem.nodes.len() {
            compute(problem, &state, n, budget, |next| push(next, &mut states, &mut queue));
        }
        for next in copies(problem, &state, budget) {
            freed(&next, |next, _| push(next, &mut states, &mut queue));
        }
    }
    Naive::None
}

fn size(problem: &Problem, set: u32) -> u64 {
    (0..problem.values.len()).filter(|v| set & 1 << v != 0).map(|v| problem.values[v].bytes.0).sum()
}

fn starts(problem: &Problem) -> Vec<State> {
    let n_values = problem.values.len();
    let none = vec![0u32; problem.stores.len()];
    let times = vec![vec![0.0; n_values]; none.len()];
    let mut all = vec![State {
        live: problem.inputs.iter().fold(0, |set, v| set | 1 << v.index()),
        done: 0,
        stored: none.clone(),
        owed: none,
        now: 0.0,
        channels: vec![0.0; problem.channels.len()],
        arrival: vec![0.0; n_values],
        written: times.clone(),
        read: times,
    }];
    for (input, output) in &problem.carries {
        for state in all.clone() {
            for chosen in 1u32..1 << problem.stores.len() {
                let mut next = state.clone();
                next.live &= !(1 << input.index());
                for s in (0..problem.stores.len()).filter(|s| chosen & 1 << s != 0) {
                    next.stored[s] |= 1 << input.index();
                    next.owed[s] |= 1 << output.index();
                }
                all.push(next);
            }
        }
    }
    all.retain(|state| {
        state.stored.iter().enumerate().all(|(s, &set)| {
            let may_move = (0..n_values).all(|v| set & 1 << v == 0 || problem.values[v].swap);
            may_move && problem.stores[s].capacity_bytes.is_none_or(|most| size(problem, set) <= most.0)
        })
    });
    all
}

fn is_final(problem: &Problem, state: &State) -> bool {
    let elsewhere = state.owed.iter().fold(0, |all, set| all | set);
    let is_there = |v: usize| (state.live | elsewhere) & 1 << v != 0;
    state.done.count_ones() as usize == problem.nodes.len()
        && state.owed.iter().zip(&state.stored).all(|(owed, stored)| owed & !stored == 0)
        && problem.outputs.iter().all(|v| is_there(v.index()))
}

/// Every set of frees, and what is live before them.
fn freed(state: &State, mut visit: impl FnMut(State, u32)) {
    let mut set = state.live;
    loop {
        let mut next = state.clone();
        for v in (0..state.arrival.len()).filter(|v| set & 1 << v != 0) {
            next.now = next.now.max(next.arrival[v]).max(next.copies_out(v));
        }
        next.live &= !set;
        visit(next, set);
        if set == 0 {
            return;
        }
        set = (set - 1) & state.live;
    }
}

fn compute(problem: &Problem, state: &State, n: usize, budget: u64, mut visit: impl FnMut(State)) {
    let node = &problem.nodes[n];
    let has = |set: u32, v: usize| set & 1 << v != 0;
    if node.inputs.iter().any(|v| !has(state.live, v.index())) || (has(state.done, n) && !node.recompute) {
        return;
    }
    let consumed = node.consumes.iter().fold(0u32, |set, v| set | 1 << v.index());
    let made = node.outputs.iter().fold(0u32, |set, v| set | 1 << v.index());
    let mut after = state.clone();
    after.live = state.live & !consumed | made;
    // The times of this one do not count; its sets of frees do.
    freed(&after, |_, frees| {
        let mut next = state.clone();
        let (mut taken, mut shared) = (0u32, 0u64);
        for (i, o) in &node.reuse {
            let (bi, bo) = (problem.values[i.index()].bytes.0, problem.values[o.index()].bytes.0);
            let is_free = taken & (1 << i.index() | 1 << o.index()) == 0;
            if is_free
                && bo <= bi
                && !has(state.live, o.index())
                && !node.consumes.contains(i)
                && has(frees, i.index())
            {
                taken |= 1 << i.index() | 1 << o.index();
                shared += bo;
            }
        }
        let used =
            problem.fixed_bytes.0 + size(problem, state.live) + size(problem, made) + node.workspace_bytes.0;
        if used > budget + size(problem, consumed) + shared {
            return;
        }
        for v in &node.inputs {
            next.now = next.now.max(state.arrival[v.index()]);
            if has(consumed | taken, v.index()) {
                next.now = next.now.max(state.copies_out(v.index()));
            }
        }
        next.now += node.cost;
        for v in 0..problem.values.len() {
            if has(made & !state.live, v) {
                next.arrival[v] = 0.0;
            }
        }
        next.done |= 1 << n;
        next.stored.iter_mut().for_each(|set| *set &= !consumed);
        next.live = after.live;
        for v in (0..problem.values.len()).filter(|&v| has(frees, v)) {
            next.now = next.now.max(next.arrival[v]).max(next.copies_out(v));
        }
        next.live &= !frees;
        visit(next);
    });
}

fn copies(problem: &Problem, state: &State, budget: u64) -> Vec<State> {
    let mut all = Vec::new();
    for v in (0..problem.values.len()).filter(|&v| problem.values[v].swap) {
        for (s, store) in problem.stores.iter().enumerate() {
            let (is_live, is_stored) = (state.live & 1 << v != 0, state.stored[s] & 1 << v != 0);
            let begin = |way: Way, ready: f64| {
                let link = store.link(way);
                let c = link.channel.index();
                let mut next = state.clone();
                let end = state.now.max(state.channels[c]).max(ready) + link.cost(problem.values[v].bytes);
                next.channels[c] = end;
                if !problem.channels[c].overlaps {
                    next.now = end;
                }
                (next, end)
            };
            if is_live && !is_stored {
                let (mut next, end) = begin(Way::Out, state.arrival[v]);
                next.stored[s] |= 1 << v;
                next.written[s][v] = end;
                if store.capacity_bytes.is_none_or(|most| size(problem, next.stored[s]) <= most.0) {
                    all.push(next);
                }
            }
            if is_stored && !is_live {
                let (mut next, end) = begin(Way::In, state.written[s][v]);
                next.live |= 1 << v;
                (next.arrival[v], next.read[s][v]) = (end, end);
                if problem.fixed_bytes.0 + size(problem, next.live) <= budget {
                    all.push(next);
                }
            }
            if is_stored {
                let mut next = state.clone();
                next.now = next.now.max(state.written[s][v]).max(state.read[s][v]);
                next.stored[s] &= !(1 << v);
                all.push(next);
            }
        }
    }
    all
}
