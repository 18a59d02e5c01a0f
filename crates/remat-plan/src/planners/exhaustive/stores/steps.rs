//! The steps that lead from a state to others.

use crate::ids::{NodeId, StoreId, ValueId};
use crate::plan::Step;
use crate::planners::exhaustive::stores::Search;
use crate::planners::exhaustive::stores::state::{Place, State, Times};
use crate::planners::exhaustive::{Node, ones};
use crate::spec::Way;

impl Search<'_> {
    pub(super) fn expand(&mut self, at: usize) {
        let place = self.states.all[at].place;
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
                if place.blocked != 0 || self.is_of_use(&self.states.all[at], v as usize, s) {
                    self.copy_out(at, v, s);
                }
            }
            for v in ones(place.stored[s] & self.movable & wanted & !place.live) {
                self.copy_in(at, v, s);
            }
            if place.blocked != 0 {
                for v in ones(place.stored[s] & !place.owed[s]) {
                    self.discard_alone(at, v, s);
                }
                for v in ones(place.stored[s] & place.live & self.movable & !place.blocked) {
                    self.copy_in(at, v, s);
                }
            }
        }
    }

    /// Whether a copy to a store can be of use: a value without bytes is never freed, and one that is back from another store as soon
    /// needs no second copy.
    fn is_of_use(&self, state: &State, v: usize, s: usize) -> bool {
        let State { place, times, .. } = state;
        if place.promised[s] & 1 << v != 0 {
            return true;
        }
        let back = |s: usize| self.link(s, Way::In);
        let cost = |s: usize| back(s).cost(self.problem.values[v].bytes);
        let is_as_good = |other: usize| {
            place.stored[other] & 1 << v != 0
                && self.problem.stores[other].capacity_bytes.is_none()
                && back(other).channel == back(s).channel
                && cost(other) <= cost(s)
                && times.end(self.copied(v, other, Way::Out)) <= times.now
        };
        self.flat.bytes[v] > 0 && !(0..self.n_stores()).any(is_as_good)
    }

    fn compute(&mut self, at: usize, n: usize) {
        let State { place, times, .. } = &self.states.all[at];
        let (place, times) = (*place, times.clone());
        let Node { reads, makes, consumes, donors, .. } = self.nodes[n];
        if place.owed.iter().any(|set| set & consumes != 0) {
            return;
        }
        let under_way = ones(reads & donors)
            .filter(|&v| self.end_of_copies_out(&place, &times, v as usize) > times.now)
            .fold(0, |set, v| set | 1 << v);
        // Every set of inputs under way that are freed directly after the node.
        let mut freed_after = under_way;
        loop {
            let blocked = under_way & !freed_after;
            // The node itself comes between a blocked value and a free after the node.
            let candidates = place.live & !under_way & (!reads & !place.blocked | reads & donors);
            // Another input can hand over its storage in the place of one under way, so that nothing waits for the copy; then it dies
            // although there is room.
            let others = if freed_after == 0 { 0 } else { reads & donors & !under_way };
            let certain = subsets(others).map(|others| freed_after | others);
            let sets: Vec<u64> =
                certain.flat_map(|certain| self.smallest_sets(n, place.live, certain, candidates)).collect();
            for dying in sets {
                let (mut place, mut times, mut steps) = (place, times.clone(), Vec::new());
                self.free(dying & !reads, &mut place, &mut times, &mut steps);
                ones(reads).for_each(|v| times.wait(times.end(self.arrival(v as usize))));
                for v in ones(consumes | self.taken_over(n, &place, dying)) {
                    times.wait(self.end_of_copies_out(&place, &times, v as usize));
                }
                times.now += self.flat.cost[n];
                steps.push(Step::Compute(NodeId::new(n)));
                ones(makes & !place.live).for_each(|v| times.set(self.arrival(v as usize), 0.0));
                place.stored.iter_mut().for_each(|set| *set &= !consumes);
                place.live = place.live & !consumes | makes;
                place.done |= 1 << n;
                self.free(dying & reads, &mut place, &mut times, &mut steps);
                place.blocked = blocked;
                self.reach(at, place, times, steps);
            }
            if freed_after == 0 || self.is_over() {
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
        self.smallest(certain, candidates, |dying| excess(dying) <= 0)
    }

    fn copy_out(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states.all[at];
        let (place, times) = (*place, times.clone());
        let need = self.bytes(place.stored[s] | 1 << v);
        let fits = |discarded: u64| need - self.bytes(discarded) <= self.capacity(s);
        for discarded in self.smallest(0, place.stored[s] & !place.owed[s], fits) {
            let (mut place, mut times, mut steps) = (place, times.clone(), Vec::new());
            for v in ones(discarded) {
                self.discard(v, s, &mut place, &mut times, &mut steps);
            }
            let end = self.transfer(v, s, Way::Out, times.end(self.arrival(v as usize)), &mut times);
            times.set(self.copied(v as usize, s, Way::Out), end);
            steps.push(Step::Out(ValueId(v), StoreId::new(s)));
            place.stored[s] |= 1 << v;
            // A copy that comes between a blocked value and its free is of use as that.
            if self.owes && place.blocked == 0 {
                place.owed[s] |= 1 << v & !place.promised[s];
            }
            place.blocked = 0;
            self.reach(at, place, times, steps);
        }
    }

    fn copy_in(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states.all[at];
        let (mut place, mut times, mut before) = (*place, times.clone(), Vec::new());
        self.free(place.live & 1 << v, &mut place, &mut times, &mut before);
        let need = self.flat.fixed + self.bytes(place.live | 1 << v) - self.budget;
        for dying in self.smallest(0, place.live & !place.blocked, |dying| need - self.bytes(dying) <= 0) {
            let (mut place, mut times, mut steps) = (place, times.clone(), before.clone());
            self.free(dying, &mut place, &mut times, &mut steps);
            let written = times.end(self.copied(v as usize, s, Way::Out));
            let end = self.transfer(v, s, Way::In, written, &mut times);
            times.set(self.copied(v as usize, s, Way::In), end);
            times.set(self.arrival(v as usize), end);
            steps.push(Step::In(ValueId(v), StoreId::new(s)));
            place.live |= 1 << v;
            place.owed[s] &= !(1 << v);
            place.blocked = 0;
            self.reach(at, place, times, steps);
        }
    }

    fn discard_alone(&mut self, at: usize, v: u32, s: usize) {
        let State { place, times, .. } = &self.states.all[at];
        let (mut place, mut times, mut steps) = (*place, times.clone(), Vec::new());
        self.discard(v, s, &mut place, &mut times, &mut steps);
        place.blocked = 0;
        self.reach(at, place, times, steps);
    }

    fn discard(&self, v: u32, s: usize, place: &mut Place, times: &mut Times, steps: &mut Vec<Step>) {
        for way in [Way::Out, Way::In] {
            times.wait(times.end(self.copied(v as usize, s, way)));
        }
        steps.push(Step::Discard(ValueId(v), StoreId::new(s)));
        place.stored[s] &= !(1 << v);
    }

    /// Begins a copy; its end.
    fn transfer(&self, v: u32, s: usize, way: Way, ready: f64, times: &mut Times) -> f64 {
        let link = self.link(s, way);
        let channel = link.channel.index();
        let start = times.now.max(times.end(channel)).max(ready);
        let end = start + link.cost(self.problem.values[v as usize].bytes);
        times.set(channel, end);
        if !self.problem.channels[channel].overlaps {
            times.now = end;
        }
        end
    }

    /// The smallest sets that suffice, each with `certain` in it; more of the candidates always suffices too.
    fn smallest(&self, certain: u64, candidates: u64, suffices: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        let mut open = vec![(certain, candidates & !certain)];
        while let Some((set, mut rest)) = open.pop().filter(|_| !self.is_over()) {
            self.count(1);
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
}

/// All subsets, the empty one too.
fn subsets(set: u64) -> impl Iterator<Item = u64> {
    let next = move |&subset: &u64| (subset != 0).then(|| (subset - 1) & set);
    std::iter::successors(Some(set), next)
}
