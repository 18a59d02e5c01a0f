//! All plans of a tiny problem with stores.
//!
//! A state is what later steps depend on: the live values, the nodes that have run, what is in each store and what must be
//! there at the end; and times: the clock, when each channel is free, and the ends of the copies under way. The search takes
//! states in the order of a cost that no continuation undercuts, so the first final one is the optimum. docs/planners/exhaustive.md
//! proves the facts that keep the number of states finite and small:
//!
//! - *Times.* Every rule of the clock is a maximum or a sum, so of two states that differ in their times only, one whose times are
//!   all no later is never worse. A time that has passed is as good as no time.
//! - *Frees and discards* wait for ends that do not move, so the later they are, the better: before a compute or a copy into
//!   memory only the smallest sets that make it fit are freed, and before a copy to a store that is full only the smallest sets
//!   of values are discarded. What nothing can need any more goes as soon as that takes no waiting.
//! - *Reuse.* A free directly after a compute lets an output take over the storage, and then the compute waits for the copies of that
//!   input which are under way. So for each such input it is decided at the compute whether it is freed there; if not, it is
//!   *blocked* until a step other than a free comes between.
//! - *More is better.* A state with more live values and more in stores without a limit frees what is too much (state.rs).
//! - *Copies are read.* A copy that nothing reads and nothing promises can be left out, so every copy owes a read.
//! - *Whether there is a plan* does not depend on time: a first search, in which nothing takes any, says so.

mod bound;
mod state;
mod steps;

use crate::ids::{StoreId, ValueId};
use crate::plan::Step;
use crate::planners::exhaustive::{Cost, Node, ones};
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::spec::{Link, Way};
use state::{MOST_STORES, Place, State, States, Times};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nodes and values that a problem may have.
const MOST_IDS: usize = 32;
/// Comparisons of states, and sets looked at, that take as long as a state.
const COMPARISONS_PER_STATE: usize = 32;
/// One in so many of the states that are met may be kept, which limits the memory: each takes some hundred bytes.
const STATES_PER_KEPT: usize = 4;

/// How a search ends.
pub(super) enum Answer {
    /// A cheapest plan: what is in a store at the start, and the steps.
    Found(Vec<(ValueId, StoreId)>, Vec<Step>, f64),
    None,
    TooLarge,
}

/// Searches all plans that cost less than `below`, up to an amount of work counted in states. `None` says that there is no such plan.
pub(super) fn search(problem: &Problem, flat: &Flat, budget: i64, below: f64, most: usize) -> Answer {
    let is_tiny = flat.n_nodes() <= MOST_IDS && flat.n_values() <= MOST_IDS;
    if !is_tiny || problem.stores.len() > MOST_STORES {
        return Answer::TooLarge;
    }
    let mut search = Search::new(problem, flat, budget, below, true);
    search.most = most.saturating_mul(COMPARISONS_PER_STATE);
    // Each state that may rest doubles the beginnings for each store, which may be far too many to list.
    if ((search.resting().count() * problem.stores.len()) as f64).exp2() > (most / STATES_PER_KEPT) as f64 {
        return Answer::TooLarge;
    }
    // Whether there is any plan does not depend on time, and without time far fewer states differ.
    let timeless = timeless(problem);
    let flat_timeless = Flat::new(&timeless);
    let mut any = Search::new(&timeless, &flat_timeless, budget, f64::INFINITY, false);
    any.most = search.most;
    if below.is_infinite() {
        match any.run() {
            Answer::Found(..) => {}
            none_or_too_large => return none_or_too_large,
        }
    }
    search.work.set(any.work.get());
    search.run()
}

/// The problem as if nothing took any time.
fn timeless(problem: &Problem) -> Problem {
    let mut spec = problem.spec().clone();
    spec.nodes.iter_mut().for_each(|node| node.cost = 0.0);
    for store in &mut spec.stores {
        for link in [&mut store.out, &mut store.back] {
            (link.latency, link.cost_per_byte) = (0.0, 0.0);
        }
    }
    Problem::new(spec).expect("costs make no difference")
}

struct Search<'a> {
    problem: &'a Problem,
    flat: &'a Flat,
    budget: i64,
    nodes: Vec<Node>,
    outputs: u64,
    /// Values that may be copied.
    movable: u64,
    /// The nodes that run before each node in every plan.
    ancestors: Vec<u64>,
    /// Only plans that cost less are of use.
    below: f64,
    /// Whether copies must be read.
    owes: bool,
    /// What was done so far, in comparisons, and the most.
    work: Cell<usize>,
    most: usize,
    states: States,
    queue: BinaryHeap<Reverse<(Cost, usize, usize)>>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, flat: &'a Flat, budget: i64, below: f64, owes: bool) -> Search<'a> {
        let set = |belongs: &dyn Fn(ValueId) -> bool| {
            problem.value_ids().filter(|&v| belongs(v)).fold(0, |set, v| set | 1 << v.index())
        };
        let nodes: Vec<Node> = (0..flat.n_nodes()).map(|n| Node::new(flat, n)).collect();
        let mut is_limited = [false; MOST_STORES];
        for (is_limited, store) in is_limited.iter_mut().zip(&problem.stores) {
            *is_limited = store.capacity_bytes.is_some();
        }
        Search {
            problem,
            flat,
            budget,
            ancestors: bound::ancestors(flat, &nodes),
            nodes,
            outputs: set(&|v| problem.is_output(v)),
            movable: set(&|v| problem.value(v).swap),
            below,
            owes,
            work: Cell::new(0),
            most: usize::MAX,
            states: States::new(is_limited),
            queue: BinaryHeap::new(),
        }
    }

    fn run(&mut self) -> Answer {
        self.begin();
        while let Some(Reverse((Cost(cost), _, at))) = self.queue.pop() {
            if self.states.all[at].is_dominated {
                continue;
            }
            if self.is_final(&self.states.all[at].place) {
                let (stored, steps) = self.path(at);
                return Answer::Found(stored, steps, cost);
            }
            self.expand(at);
            if self.is_over() {
                return Answer::TooLarge;
            }
        }
        Answer::None
    }

    /// State that may rest in a store, as pairs of input and output.
    fn resting(&self) -> impl Iterator<Item = (ValueId, ValueId)> {
        // Without bytes it may as well stay.
        let may_rest = |&(a, b): &(ValueId, ValueId)| {
            (bit(a) | bit(b)) & !self.movable == 0 && self.flat.bytes[a.index()] > 0
        };
        self.problem.carries.iter().copied().filter(may_rest)
    }

    /// One state for each way in which carried inputs can be in stores at the start.
    fn begin(&mut self) {
        let inputs = self.problem.inputs.iter().fold(0, |set, v| set | 1u64 << v.index());
        let mut places = vec![Place { live: inputs, ..Place::default() }];
        for (input, output) in self.resting() {
            for place in places.clone() {
                // Every set of stores but none.
                for chosen in 1..1u64 << self.n_stores() {
                    let mut next = place;
                    next.live &= !bit(input);
                    for s in ones(chosen) {
                        next.stored[s as usize] |= bit(input);
                        next.promised[s as usize] |= bit(output);
                    }
                    places.push(next);
                }
            }
        }
        for place in places {
            let fits = |s: usize| self.bytes(place.stored[s]) <= self.capacity(s);
            if (0..self.n_stores()).all(fits) {
                self.reach(usize::MAX, place, Times::default(), Vec::new());
            }
        }
    }

    fn n_stores(&self) -> usize {
        self.problem.stores.len()
    }

    fn bytes(&self, values: u64) -> i64 {
        ones(values).map(|v| self.flat.bytes[v as usize]).sum()
    }

    fn capacity(&self, s: usize) -> i64 {
        self.problem.stores[s].capacity_bytes.map_or(i64::MAX, |bytes| bytes.0.min(i64::MAX as u64) as i64)
    }

    fn link(&self, s: usize, way: Way) -> &Link {
        self.problem.stores[s].link(way)
    }

    fn arrival(&self, v: usize) -> usize {
        self.problem.channels.len() + v
    }

    /// Where the end of the last copy between a value and a store is.
    fn copied(&self, v: usize, s: usize, way: Way) -> usize {
        let n_values = self.flat.n_values();
        let of_way = if way == Way::Out { 1 } else { 1 + self.n_stores() };
        self.problem.channels.len() + (of_way + s) * n_values + v
    }

    fn is_final(&self, place: &Place) -> bool {
        let is_done = place.done.count_ones() as usize == self.nodes.len();
        let elsewhere = place.promised.iter().fold(0, |all, set| all | set);
        let is_kept = (0..self.n_stores()).all(|s| place.promised[s] & !place.stored[s] == 0);
        let is_read = place.owed.iter().all(|&set| set == 0);
        is_done && is_kept && is_read && self.outputs & !elsewhere & !place.live == 0
    }

    /// What some plan can still need: a node that has run runs again only for one of its outputs.
    fn useful(&self, done: u64) -> u64 {
        self.nodes.iter().enumerate().rev().fold(self.outputs, |useful, (n, node)| {
            let may_run = done & 1 << n == 0 || (node.may_repeat && node.makes & useful != 0);
            if may_run { useful | node.reads } else { useful }
        })
    }

    fn is_over(&self) -> bool {
        let most_kept = self.most / (COMPARISONS_PER_STATE * STATES_PER_KEPT);
        self.work.get() > self.most || self.states.all.len() > most_kept
    }

    fn count(&self, comparisons: usize) {
        self.work.set(self.work.get() + comparisons);
    }

    /// Notes a state unless it leads to nothing cheaper or one is known that is never worse.
    fn reach(&mut self, before: usize, mut place: Place, mut times: Times, mut steps: Vec<Step>) {
        self.count(COMPARISONS_PER_STATE);
        if place.blocked == 0 {
            self.drop_useless(&mut place, &times, &mut steps);
        }
        times.tidy();
        let cost = self.least_cost(&place, &times);
        if cost >= self.below {
            return;
        }
        let n_left = self.nodes.len() - place.done.count_ones() as usize;
        let (at, n_compared) = self.states.add(State { place, times, steps, before, is_dominated: false });
        self.count(n_compared);
        self.queue.extend(at.map(|at| Reverse((Cost(cost), n_left, at))));
    }

    /// Frees and discards what nothing can need, where that takes no waiting.
    fn drop_useless(&self, place: &mut Place, times: &Times, steps: &mut Vec<Step>) {
        let useful = self.useful(place.done);
        for v in ones(place.live & !useful) {
            if self.end_of_copies(place, times, v as usize) <= times.now {
                steps.push(Step::Free(ValueId(v)));
                place.live &= !(1 << v);
            }
        }
        for s in 0..self.n_stores() {
            for v in ones(place.stored[s] & !useful & !place.live & !place.owed[s]) {
                let ends = [Way::Out, Way::In].map(|way| times.end(self.copied(v as usize, s, way)));
                if ends.iter().all(|&end| end <= times.now) {
                    steps.push(Step::Discard(ValueId(v), StoreId::new(s)));
                    place.stored[s] &= !(1 << v);
                }
            }
        }
    }

    /// When nothing reads or writes the memory of a live value any more.
    fn end_of_copies(&self, place: &Place, times: &Times, v: usize) -> f64 {
        self.end_of_copies_out(place, times, v).max(times.end(self.arrival(v)))
    }

    fn end_of_copies_out(&self, place: &Place, times: &Times, v: usize) -> f64 {
        let stores = (0..self.n_stores()).filter(|&s| place.stored[s] & 1 << v != 0);
        stores.map(|s| times.end(self.copied(v, s, Way::Out))).fold(0.0, f64::max)
    }

    fn free(&self, dying: u64, place: &mut Place, times: &mut Times, steps: &mut Vec<Step>) {
        for v in ones(dying) {
            times.wait(self.end_of_copies(place, times, v as usize));
            times.set(self.arrival(v as usize), 0.0);
            steps.push(Step::Free(ValueId(v)));
        }
        place.live &= !dying;
    }

    /// What is in a store at the start, and the steps that lead to a state.
    fn path(&self, at: usize) -> (Vec<(ValueId, StoreId)>, Vec<Step>) {
        let mut parts = Vec::new();
        let mut next = at;
        while let Some(state) = self.states.all.get(next) {
            parts.push(&state.steps);
            next = state.before;
        }
        let promised = self.states.all[at].place.promised;
        let mut stored = Vec::new();
        for &(input, output) in &self.problem.carries {
            let stores = (0..self.n_stores()).filter(|&s| promised[s] & bit(output) != 0);
            stored.extend(stores.map(|s| (input, StoreId::new(s))));
        }
        (stored, parts.into_iter().rev().flatten().copied().collect())
    }
}

fn bit(v: ValueId) -> u64 {
    1 << v.index()
}
