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

use crate::ids::{NodeId, StoreId, ValueId};
use crate::plan::Step;
use crate::planners::exhaustive::{Cost, Mixer, Node, ones};
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::spec::{Link, Way};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

/// Stores that a state has room for.
const MOST_STORES: usize = 3;
/// Nodes and values that a problem may have.
const MOST_IDS: usize = 32;

/// Sets of values for each store.
type Sets = [u64; MOST_STORES];

/// What matters of the past apart from time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Place {
    live: u64,
    done: u64,
    stored: Sets,
    /// What must be in a store at the end, because its partner was there at the start.
    promised: Sets,
    /// Values that may not be freed before a step other than a free.
    blocked: u64,
}

/// A state, the steps that led to it, and the state before them.
struct State {
    place: Place,
    times: Times,
    steps: Vec<Step>,
    before: usize,
    is_dominated: bool,
}

/// The clock and the ends of copies: of each channel, of the last copy into each value, and of the last copies of each value to
/// and from each store.
#[derive(Clone)]
struct Times {
    now: f64,
    ends: Vec<f64>,
}

impl Times {
    fn wait(&mut self, end: f64) {
        self.now = self.now.max(end);
    }

    /// Whether nothing is later than in `other`.
    fn is_no_later(&self, other: &Times) -> bool {
        self.now <= other.now && self.ends.iter().zip(&other.ends).all(|(&a, &b)| a <= b.max(other.now))
    }
}

/// How a search ends.
pub(super) enum Answer {
    /// A cheapest plan: what is in a store at the start, and the steps.
    Found(Vec<(ValueId, StoreId)>, Vec<Step>, f64),
    None,
    TooLarge,
}

/// Searches all plans, up to a number of states.
pub(super) fn search(problem: &Problem, flat: &Flat, budget: i64, most: usize) -> Answer {
    let is_tiny = flat.n_nodes() <= MOST_IDS && flat.n_values() <= MOST_IDS;
    if !is_tiny || problem.stores.len() > MOST_STORES {
        return Answer::TooLarge;
    }
    let mut search = Search::new(problem, flat, budget);
    // Each state that may rest doubles the beginnings for each store, which may be far too many to list.
    if ((search.resting().count() * problem.stores.len()) as f64).exp2() > most as f64 {
        return Answer::TooLarge;
    }
    search.begin();
    while let Some(Reverse((Cost(cost), _, at))) = search.queue.pop() {
        if search.states[at].is_dominated {
            continue;
        }
        if search.is_final(&search.states[at].place) {
            let (stored, steps) = search.path(at);
            return Answer::Found(stored, steps, cost);
        }
        if search.states.len() > most {
            return Answer::TooLarge;
        }
        search.expand(at);
    }
    Answer::None
}

struct Search<'a> {
    problem: &'a Problem,
    flat: &'a Flat,
    budget: i64,
    nodes: Vec<Node>,
    outputs: u64,
    /// Values that may be copied.
    movable: u64,
    states: Vec<State>,
    /// The states of each place that none dominates.
    known: HashMap<Place, Vec<usize>, BuildHasherDefault<Mixer>>,
    queue: BinaryHeap<Reverse<(Cost, usize, usize)>>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, flat: &'a Flat, budget: i64) -> Search<'a> {
        let set = |belongs: &dyn Fn(ValueId) -> bool| {
            problem.value_ids().filter(|&v| belongs(v)).fold(0, |set, v| set | 1 << v.index())
        };
        Search {
            problem,
            flat,
            budget,
            nodes: (0..flat.n_nodes()).map(|n| Node::new(flat, n)).collect(),
            outputs: set(&|v| problem.is_output(v)),
            movable: set(&|v| problem.value(v).swap),
            states: Vec::new(),
            known: HashMap::default(),
            queue: BinaryHeap::new(),
        }
    }

    /// State that may rest in a store, as pairs of input and output.
    fn resting(&self) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.problem.carries.iter().copied().filter(|&(a, b)| (bit(a) | bit(b)) & !self.movable == 0)
    }

    /// One state for each way in which carried inputs can be in stores at the start.
    fn begin(&mut self) {
        let inputs = self.problem.inputs.iter().fold(0, |set, v| set | 1u64 << v.index());
        let n_times = self.problem.channels.len() + self.flat.n_values() * (1 + 2 * self.n_stores());
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
                let times = Times { now: 0.0, ends: vec![0.0; n_times] };
                self.reach(usize::MAX, place, times, Vec::new());
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
        is_done && is_kept && self.outputs & !elsewhere & !place.live == 0
    }

    /// What some plan can still need: a node that has run runs again only for one of its outputs.
    fn useful(&self, done: u64) -> u64 {
        self.nodes.iter().enumerate().rev().fold(self.outputs, |useful, (n, node)| {
            let may_run = done & 1 << n == 0 || (node.may_repeat && node.makes & useful != 0);
            if may_run { useful | node.reads } else { useful }
        })
    }

    /// A cost that no continuation undercuts: every node that has not run takes its time, and so does every copy that is
    /// still owed to a store.
    fn least_cost(&self, place: &Place, times: &Times) -> f64 {
        let missing = |n: &usize| place.done & 1 << n == 0;
        let mut own =
            times.now + (0..self.nodes.len()).filter(missing).map(|n| self.flat.cost[n]).sum::<f64>();
        let mut channels: Vec<f64> =
            times.ends[..self.problem.channels.len()].iter().map(|&end| end.max(times.now)).collect();
        for s in 0..self.n_stores() {
            let out = self.link(s, Way::Out);
            for v in ones(place.promised[s] & !place.stored[s]) {
                let cost = out.cost(self.problem.values[v as usize].bytes);
                channels[out.channel.index()] += cost;
                if !self.problem.channels[out.channel.index()].overlaps {
                    own += cost;
                }
            }
        }
        channels.into_iter().fold(own, f64::max)
    }

    /// Notes a state unless one is known that is never worse.
    fn reach(&mut self, before: usize, mut place: Place, mut times: Times, mut steps: Vec<Step>) {
        if place.blocked == 0 {
            self.drop_useless(&mut place, &times, &mut steps);
        }
        let Times { now, ends } = &mut times;
        ends.iter_mut().filter(|end| **end <= *now).for_each(|end| *end = 0.0);
        let list = self.known.entry(place).or_default();
        if list.iter().any(|&other| self.states[other].times.is_no_later(&times)) {
            return;
        }
        let (at, states) = (self.states.len(), &mut self.states);
        list.retain(|&other| {
            states[other].is_dominated = times.is_no_later(&states[other].times);
            !states[other].is_dominated
        });
        list.push(at);
        let cost = self.least_cost(&place, &times);
        let n_left = self.nodes.len() - place.done.count_ones() as usize;
        self.states.push(State { place, times, steps, before, is_dominated: false });
        self.queue.push(Reverse((Cost(cost), n_left, at)));
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
            for v in ones(place.stored[s] & !useful & !place.live) {
                let ends = [Way::Out, Way::In].map(|way| times.ends[self.copied(v as usize, s, way)]);
                if ends.iter().all(|&end| end <= times.now) {
                    steps.push(Step::Discard(ValueId(v), StoreId::new(s)));
                    place.stored[s] &= !(1 << v);
                }
            }
        }
    }

    /// When nothing reads or writes the memory of a live value any more.
    fn end_of_copies(&self, place: &Place, times: &Times, v: usize) -> f64 {
        self.end_of_copies_out(place, times, v).max(times.ends[self.arrival(v)])
    }

    fn end_of_copies_out(&self, place: &Place, times: &Times, v: usize) -> f64 {
        let stores = (0..self.n_stores()).filter(|&s| place.stored[s] & 1 << v != 0);
        stores.map(|s| times.ends[self.copied(v, s, Way::Out)]).fold(0.0, f64::max)
    }

    fn free(&self, dying: u64, place: &mut Place, times: &mut Times, steps: &mut Vec<Step>) {
        for v in ones(dying) {
            times.wait(self.end_of_copies(place, times, v as usize));
            times.ends[self.arrival(v as usize)] = 0.0;
            steps.push(Step::Free(ValueId(v)));
        }
        place.live &= !dying;
    }

    fn expand(&mut self, at: usize) {
        let place = self.states[at].place;
        let useful = self.useful(place.done);
        // Where a value is blocked, a step that is of no other use can come between.
        let wanted = if place.blocked == 0 { useful } else { u64::MAX };
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            let has_run = place.done & 1 << n != 0;
            let is_idle = has_run && (!node.may_repeat || node.makes & !place.live & wanted == 0);
            let is_separator = has_run && node.may_repeat && place.blocked != 0;
            if (!is_idle || is_separator) && node.reads & !place.live == 0 {
                self.compute(at, n);
            }
        }
        for s in 0..self.n_stores() {
            for v in ones(place.live & self.movable & wanted & !place.stored[s]) {
                self.copy_out(at, v, s);
            }
            for v in ones(place.stored[s] & self.movable & wanted & !place.live) {
                self.copy_in(at, v, s);
            }
            if place.blocked != 0 {
                for v in ones(place.stored[s]) {
                    self.discard_alone(at, v, s);
                }
            }
        }
    }

    fn compute(&mut self, at: usize, n: usize) {
        let State { place, times, .. } = &self.states[at];
        let (place, times) = (*place, times.clone());
        let Node { reads, makes, consumes, donors, .. } = self.nodes[n];
        let under_way = ones(reads & donors)
            .filter(|&v| self.end_of_copies_out(&place, &times, v as usize) > times.now)
            .fold(0, |set, v| set | 1 << v);
        // Every set of inputs under way that are freed directly after the node.
        let mut freed_after = under_way;
        loop {
            let blocked = under_way & !freed_after;
            // The node itself comes between a blocked value and a free after the node.
            let candidates = place.live & !under_way & (!reads & !place.blocked | reads & donors);
            for dying in self.smallest_sets(n, place.live, freed_after, candidates) {
                let (mut place, mut times, mut steps) = (place, times.clone(), Vec::new());
                self.free(dying & !reads, &mut place, &mut times, &mut steps);
                ones(reads).for_each(|v| times.wait(times.ends[self.arrival(v as usize)]));
                for v in ones(consumes | self.taken_over(n, &place, dying)) {
                    times.wait(self.end_of_copies_out(&place, &times, v as usize));
                }
                times.now += self.flat.cost[n];
                steps.push(Step::Compute(NodeId::new(n)));
                ones(makes & !place.live).for_each(|v| times.ends[self.arrival(v as usize)] = 0.0);
                place.stored.iter_mut().for_each(|set| *set &= !consumes);
                place.live = place.live & !consumes | makes;
                place.done |= 1 << n;
                self.free(dying & reads, &mut place, &mut times, &mut steps);
                place.blocked = blocked;
                self.reach(at, place, times, steps);
            }
            if freed_after == 0 {
                return;
            }
            freed_after = (freed_after - 1) & under_way;
        }
    }

    /// Inputs whose storage an output takes over when some values are freed directly after the node.
    fn taken_over(&self, n: usize, place: &Place, dying: u64) -> u64 {
        let (mut from, mut to) = (0u64, 0u64);
        for pair in self.flat.reuse.get(n).chunks_exact(2) {
            let (input, output) = (1u64 << pair[0], 1u64 << pair[1]);
            if dying & input != 0 && place.live & output == 0 && from & input == 0 && to & output == 0 {
                from |= input;
                to |= output;
            }
        }
        from
    }

    /// The smallest sets of values with which a run fits, each with the values that die in any case. Those that the node
    /// reads die with it, the others before it.
    fn smallest_sets(&self, n: usize, live: u64, certain: u64, candidates: u64) -> Vec<u64> {
        let node = &self.nodes[n];
        let base = self.flat.fixed + self.bytes(live) + self.flat.extra[n] - self.budget;
        let excess = |dying: u64| {
            let dies = |v: u32| dying & 1 << v != 0;
            let shared = self.flat.shared_new(n, |v| !dies(v), |v| live & !dying & 1 << v == 0);
            base - self.bytes(dying & !node.reads) - shared
        };
        smallest(certain, candidates, |dying| excess(dying) <= 0)
    }

    fn copy_out(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states[at];
        let (place, times) = (*place, times.clone());
        let need = self.bytes(place.stored[s] | 1 << v);
        let fits = |discarded: u64| need - self.bytes(discarded) <= self.capacity(s);
        for discarded in smallest(0, place.stored[s], fits) {
            let (mut place, mut times, mut steps) = (place, times.clone(), Vec::new());
            for v in ones(discarded) {
                self.discard(v, s, &mut place, &mut times, &mut steps);
            }
            let end = self.transfer(v, s, Way::Out, times.ends[self.arrival(v as usize)], &mut times);
            times.ends[self.copied(v as usize, s, Way::Out)] = end;
            steps.push(Step::Out(ValueId(v), StoreId::new(s)));
            place.stored[s] |= 1 << v;
            place.blocked = 0;
            self.reach(at, place, times, steps);
        }
    }

    fn copy_in(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states[at];
        let (place, times) = (*place, times.clone());
        let need = self.flat.fixed + self.bytes(place.live | 1 << v) - self.budget;
        for dying in smallest(0, place.live & !place.blocked, |dying| need - self.bytes(dying) <= 0) {
            let (mut place, mut times, mut steps) = (place, times.clone(), Vec::new());
            self.free(dying, &mut place, &mut times, &mut steps);
            let written = times.ends[self.copied(v as usize, s, Way::Out)];
            let end = self.transfer(v, s, Way::In, written, &mut times);
            times.ends[self.copied(v as usize, s, Way::In)] = end;
            times.ends[self.arrival(v as usize)] = end;
            steps.push(Step::In(ValueId(v), StoreId::new(s)));
            place.live |= 1 << v;
            place.blocked = 0;
            self.reach(at, place, times, steps);
        }
    }

    fn discard_alone(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states[at];
        let (mut place, mut times, mut steps) = (*place, times.clone(), Vec::new());
        self.discard(v, s, &mut place, &mut times, &mut steps);
        place.blocked = 0;
        self.reach(at, place, times, steps);
    }

    fn discard(&self, v: u32, s: usize, place: &mut Place, times: &mut Times, steps: &mut Vec<Step>) {
        for way in [Way::Out, Way::In] {
            times.wait(times.ends[self.copied(v as usize, s, way)]);
        }
        steps.push(Step::Discard(ValueId(v), StoreId::new(s)));
        place.stored[s] &= !(1 << v);
    }

    /// Begins a copy; its end.
    fn transfer(&self, v: u32, s: usize, way: Way, ready: f64, times: &mut Times) -> f64 {
        let link = self.link(s, way);
        let channel = link.channel.index();
        let start = times.now.max(times.ends[channel]).max(ready);
        let end = start + link.cost(self.problem.values[v as usize].bytes);
        times.ends[channel] = end;
        if !self.problem.channels[channel].overlaps {
            times.now = end;
        }
        end
    }

    /// What is in a store at the start, and the steps that lead to a state.
    fn path(&self, at: usize) -> (Vec<(ValueId, StoreId)>, Vec<Step>) {
        let mut parts = Vec::new();
        let mut next = at;
        while let Some(state) = self.states.get(next) {
            parts.push(&state.steps);
            next = state.before;
        }
        let promised = self.states[at].place.promised;
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

/// The smallest sets that suffice, each with `certain` in it; more of the candidates always suffices too.
fn smallest(certain: u64, candidates: u64, suffices: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    let mut open = vec![(certain, candidates & !certain)];
    while let Some((set, mut rest)) = open.pop() {
        if suffices(set) {
            if ones(set & !certain).all(|v| !suffices(set & !(1 << v))) {
                found.push(set);
            }
        } else if suffices(set | rest) {
            while rest != 0 {
                let first = rest & rest.wrapping_neg();
                rest &= !first;
                open.push((set | first, rest));
            }
        }
    }
    found
}
