//! Local search on the sequence of computes: simulated annealing with an adaptive price on memory.
//!
//! In: a valid sequence, within the budget or not. Out: the cheapest sequence within the budget that was met on the
//! way, or the lowest. The objective is cost + price * penalty, where the penalty is the sum over all steps of the
//! bytes above the budget, with a weight per node. The price is steered: it rises while the sequence is over the budget
//! and falls while it is within, so the search moves along the border of what is feasible, where the cheapest plans
//! are. (With a fixed price annealing is hardly better than greedy: too low, and it never returns into the
//! budget; too high, and it cannot move.) The weights are steered in the same way, node by node: without them a value
//! that is live for two hundred steps looks a hundred times as heavy as one that is live for two.
//!
//! Moves: drop a value that is live at a step with much memory (insert its recompute, with as much of its chain as is
//! missing, before its next use); delete a recompute; shift a compute to an earlier or later place. A round cools from
//! a start temperature to a low one; rounds begin at the best plan so far and differ in their start temperature.

use crate::planners::flat::{Flat, Measure};
use crate::planners::limits::Limits;
use crate::planners::random::Random;
use crate::planners::tape::{Change, HEAD, Item, TAIL, Tape};

/// Moves between two looks at the clock.
const MOVES_PER_CHECK: usize = 512;
/// Moves between two adjustments of the price.
const MOVES_PER_PRICE: usize = 64;
/// The longest chain of recomputes that one move inserts.
const LONGEST_CHAIN: usize = 40;

/// Moves per slot in one cooling.
const MOVES_PER_SLOT: usize = 240;
/// Start temperatures of the rounds in turn, in units of a typical cost: hot rounds leave the valley, mild ones search
/// its floor.
const TEMPERATURES: [f64; 4] = [1.0, 0.1, 0.4, 0.05];
const LAST_TEMPERATURE: f64 = 0.002;
/// Work per visited slot, in the unit of the limits.
const WORK_PER_SLOT: f64 = 4.0;

/// A sequence of computes with its cost and peak.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) computes: Vec<u32>,
    pub(crate) measure: Measure,
}

impl Found {
    pub(crate) fn new(flat: &Flat, computes: Vec<u32>) -> Found {
        let measure = flat.measure(&computes, &mut Vec::new());
        Found { computes, measure }
    }

    /// Whether this is to be preferred: within the budget the cheaper one, above it the lower one.
    pub(crate) fn is_better_than(&self, other: &Found, budget: i64) -> bool {
        self.measure.rank(budget) < other.measure.rank(budget)
    }
}

/// Improves `start` until the limits are reached or the cost is at most `target`. The result is never worse.
pub(crate) fn improve(
    flat: &Flat,
    budget: i64,
    start: &Found,
    target: f64,
    seed: u64,
    limits: &mut Limits,
) -> Found {
    let mut search = Search::new(flat, budget, start.clone(), seed);
    let mut round = 0;
    while !search.is_done(target) && search.round(round, target, limits) {
        round += 1;
    }
    search.best
}

struct Search<'a> {
    tape: Tape<'a>,
    budget: i64,
    random: Random,
    price: f64,
    /// A typical cost of one recompute, the unit of the temperature.
    unit: f64,
    best: Found,
    change: Change,
    stack: Vec<(u32, u32)>,
}

impl<'a> Search<'a> {
    fn new(flat: &'a Flat, budget: i64, start: Found, seed: u64) -> Search<'a> {
        let makers = (0..flat.n_values()).filter(|&v| !flat.lasting[v] && flat.bytes[v] > 0);
        let (mut cost, mut bytes, mut count) = (0.0, 0.0, 0.0f64);
        for v in makers {
            cost += flat.cost[flat.producer[v] as usize];
            bytes += flat.bytes[v] as f64;
            count += 1.0;
        }
        // Free nodes only: any positive unit will do.
        let cost = if cost > 0.0 { cost } else { 1.0 };
        Search {
            tape: Tape::new(flat, budget, &start.computes),
            budget,
            random: Random::new(seed),
            price: cost / bytes.max(1.0) / 4.0,
            unit: cost / count.max(1.0),
            best: start,
            change: Change::default(),
            stack: Vec::new(),
        }
    }

    fn is_done(&self, target: f64) -> bool {
        self.best.measure.peak <= self.budget && self.best.measure.cost <= target
            || self.tape.slots.is_empty()
    }

    /// Remembers the present sequence if it is within the budget and cheaper than the best.
    fn note(&mut self) {
        let best = &self.best.measure;
        if self.tape.excess == 0 && (best.peak > self.budget || self.tape.cost < best.cost * (1.0 - 1e-12)) {
            self.best = Found::new(self.tape.flat, self.tape.computes());
        }
    }

    /// One cooling; says whether to go on.
    fn round(&mut self, round: usize, target: f64, limits: &mut Limits) -> bool {
        let n_slots = self.tape.slots.len();
        let n_moves = MOVES_PER_SLOT * n_slots.max(50);
        // Every fourth round goes on from where the last one ended.
        if !round.is_multiple_of(4) {
            let computes = std::mem::take(&mut self.best.computes);
            self.tape.load(&computes);
            self.best.computes = computes;
        }
        let moves_per_note = n_slots / 1000 + 1;
        let start = self.unit * TEMPERATURES[round % 4] * (0.5 + self.random.unit());
        let end = self.unit * LAST_TEMPERATURE;
        for i in 0..n_moves {
            if i % MOVES_PER_CHECK == 0 {
                let work = self.tape.work as f64 * WORK_PER_SLOT;
                self.tape.work = 0;
                if self.is_done(target) || !limits.spend(work) {
                    return false;
                }
            }
            if i % MOVES_PER_PRICE == 0 {
                self.price *= if self.tape.excess > 0 { 1.03 } else { 0.97 };
            }
            if i % (4 * n_slots) == 0 {
                self.tape.adjust_weights(1.2, 0.97);
            }
            self.step(start * (end / start).powf(i as f64 / n_moves as f64));
            // Copying the sequence takes as long as many moves, so it is not done after each of them.
            if i % moves_per_note == 0 {
                self.note();
            }
        }
        self.note();
        // Above the budget the lowest peak is what counts.
        if self.best.measure.peak > self.budget {
            let now = Found::new(self.tape.flat, self.tape.computes());
            if now.is_better_than(&self.best, self.budget) {
                self.best = now;
            }
        }
        true
    }

    fn step(&mut self, temperature: f64) {
        let kind = self.random.below(100);
        let proposed = match kind {
            0..40 => self.propose_drop(),
            40..65 => self.propose_delete(),
            _ => self.propose_shift(),
        };
        self.tape.work += 4;
        if proposed.is_none() {
            return;
        }
        let change = std::mem::take(&mut self.change);
        if let Some(effect) = self.tape.try_change(&change) {
            let delta = effect.cost + self.price * effect.penalty;
            if delta <= 0.0 || delta <= -temperature * self.random.unit().ln() {
                self.tape.apply(&change);
            }
        }
        self.change = change;
    }

    /// A random slot, mostly one with much memory.
    fn high_slot(&mut self) -> u32 {
        let n = self.tape.slots.len();
        let mut best = self.tape.slots[self.random.below(n)];
        for _ in 0..self.random.below(4) {
            let other = self.tape.slots[self.random.below(n)];
            if self.tape.memory(other) > self.tape.memory(best) {
                best = other;
            }
        }
        best
    }

    /// A value that is live at a slot but not used there, if one is met within a few tries.
    fn waiting_value(&mut self, slot: u32) -> Option<u32> {
        let flat = self.tape.flat;
        let words = self.tape.needed_words(slot);
        let n_live: u32 = words.iter().map(|word| word.count_ones()).sum();
        if n_live == 0 {
            return None;
        }
        for _ in 0..4 {
            let mut index = self.random.below(n_live as usize) as u32;
            let words = self.tape.needed_words(slot);
            let mut word = 0;
            while words[word].count_ones() <= index {
                index -= words[word].count_ones();
                word += 1;
            }
            let mut bits = words[word];
            for _ in 0..index {
                bits &= bits - 1;
            }
            let v = word * 64 + bits.trailing_zeros() as usize;
            let node = self.tape.node[slot as usize] as usize;
            if !flat.lasting[v] && flat.bytes[v] > 0 && !flat.inputs.get(node).contains(&(v as u32)) {
                return Some(v as u32);
            }
        }
        None
    }

    fn propose_drop(&mut self) -> Option<()> {
        let slot = self.high_slot();
        let v = self.waiting_value(slot)?;
        let flat = self.tape.flat;
        let mut user = self.tape.next[slot as usize];
        while user != TAIL && !flat.inputs.get(self.tape.node[user as usize] as usize).contains(&v) {
            user = self.tape.next[user as usize];
            self.tape.work += 1;
        }
        self.change.window.clear();
        self.change.resume = self.tape.prev[user as usize];
        self.change.end = user;
        let eagerness = if self.random.below(2) == 0 { 100 } else { 60 };
        self.chain(flat.producer[v as usize], user, eagerness)
    }

    /// Appends the recompute of a node before `user` to the window, after those of its inputs that are not live
    /// there; each of these is recomputed too with the given percentage, and otherwise kept live until then.
    fn chain(&mut self, node: u32, user: u32, eagerness: usize) -> Option<()> {
        let flat = self.tape.flat;
        self.stack.clear();
        self.stack.push((node, 0));
        while let Some((n, k)) = self.stack.last_mut() {
            let n = *n;
            if let Some(&v) = flat.inputs.get(n as usize).get(*k as usize) {
                *k += 1;
                let producer = flat.producer[v as usize];
                if !flat.lasting[v as usize]
                    && !self.tape.is_needed(user, v)
                    && !self.change.window.contains(&Item::New(producer))
                    && self.random.below(100) < eagerness
                {
                    self.stack.push((producer, 0));
                    if self.stack.len() + self.change.window.len() > LONGEST_CHAIN {
                        return None;
                    }
                }
                continue;
            }
            self.stack.pop();
            self.change.window.push(Item::New(n));
        }
        Some(())
    }

    fn propose_delete(&mut self) -> Option<()> {
        if self.tape.repeated.is_empty() {
            return None;
        }
        let n = self.tape.repeated[self.random.below(self.tape.repeated.len())];
        let runs = &self.tape.runs[n as usize];
        let slot = runs[self.random.below(runs.len())];
        self.change.window.clear();
        self.change.resume = self.tape.prev[slot as usize];
        self.change.end = self.tape.next[slot as usize];
        Some(())
    }

    fn propose_shift(&mut self) -> Option<()> {
        let flat = self.tape.flat;
        let slot = self.tape.slots[self.random.below(self.tape.slots.len())];
        let node = self.tape.node[slot as usize] as usize;
        let later = self.random.below(2) == 0;
        // As far as the operands allow, or a random distance of any order of magnitude.
        let to_the_limit = self.random.below(2) == 0;
        let distance = 1usize << self.random.below(8);
        let distance = if to_the_limit { usize::MAX } else { 1 + self.random.below(distance) };
        let blocks = |other: u32| {
            let other = other as usize;
            if later {
                flat.outputs.get(node).iter().any(|v| flat.inputs.get(other).contains(v))
            } else {
                flat.outputs.get(other).iter().any(|v| flat.inputs.get(node).contains(v))
            }
        };
        self.change.window.clear();
        let mut reached = slot;
        let mut passed = 0;
        loop {
            let other =
                if later { self.tape.next[reached as usize] } else { self.tape.prev[reached as usize] };
            if other == TAIL || other == HEAD || passed == distance || blocks(self.tape.node[other as usize])
            {
                break;
            }
            reached = other;
            passed += 1;
            self.change.window.push(Item::Old(other));
        }
        self.tape.work += passed as u64;
        if passed == 0 {
            return None;
        }
        if later {
            self.change.resume = self.tape.prev[slot as usize];
            self.change.end = self.tape.next[reached as usize];
            self.change.window.push(Item::Old(slot));
        } else {
            self.change.resume = self.tape.prev[reached as usize];
            self.change.end = self.tape.next[slot as usize];
            self.change.window.push(Item::Old(slot));
            self.change.window.reverse();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planners::Request;
    use crate::problem::{Node, Phase, Problem, ProblemSpec, Value};
    use crate::{Bytes, ValueId};

    /// A chain and its mirror image, as forward and backward are, with state that the last nodes overwrite and
    /// outputs that may take over the storage of their input.
    fn mirror(n: usize) -> Problem {
        let value = |name: String, bytes: usize| Value { name, bytes: Bytes(bytes as u64) };
        let id = ValueId::new;
        let mut spec = ProblemSpec {
            name: "mirror".into(),
            cost_unit: "1".into(),
            fixed_bytes: Bytes(3),
            values: (0..2 * n).map(|v| value(format!("v{v}"), 10 + 7 * v % 13)).collect(),
            inputs: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        for i in 0..2 * n {
            let (mut inputs, mut reuse) = (Vec::new(), Vec::new());
            if i > 0 {
                inputs.push(id(i - 1));
                reuse.push((id(i - 1), id(i)));
            }
            if i > n {
                inputs.push(id(2 * n - 1 - i));
                reuse.push((id(2 * n - 1 - i), id(i)));
            }
            spec.nodes.push(Node {
                name: format!("n{i}"),
                op: "o".into(),
                phase: if i < n { Phase::Forward } else { Phase::Backward },
                cost: (1 + i * 5 % 7) as f64,
                workspace_bytes: Bytes(0),
                inputs,
                outputs: vec![id(i)],
                recompute: i % 11 != 5,
                consumes: vec![],
                reuse,
                module: None,
            });
        }
        for (k, reader) in [1, n / 2, 2 * n - 2].into_iter().enumerate() {
            let (old, new) = (id(2 * n + 2 * k), id(2 * n + 2 * k + 1));
            spec.values.extend([value(format!("w{k}"), 20), value(format!("w{k}.new"), 20)]);
            spec.inputs.push(old);
            spec.outputs.push(new);
            spec.nodes[reader].inputs.push(old);
            spec.nodes.push(Node {
                name: format!("update{k}"),
                inputs: vec![old, id(2 * n - 1)],
                outputs: vec![new],
                recompute: false,
                consumes: vec![old],
                reuse: vec![],
                ..spec.nodes[reader].clone()
            });
        }
        Problem::new(spec).expect("valid")
    }

    #[test]
    fn the_incremental_account_equals_the_full_one_after_every_move() {
        let problem = mirror(20);
        let flat = Flat::new(&problem);
        let order = Found::new(&flat, (0..flat.n_nodes() as u32).collect());
        let budget = order.measure.peak * 7 / 10;
        let mut search = Search::new(&flat, budget, order, 7);
        let mut scratch = Vec::new();
        let mut n_feasible = 0;
        for i in 0..30_000 {
            search.step(search.unit);
            if i % 64 == 0 {
                search.price *= if search.tape.excess > 0 { 1.03 } else { 0.97 };
                search.tape.adjust_weights(1.2, 0.97);
            }
            let computes = search.tape.computes();
            let (mut excess, mut cost) = (0, 0.0);
            flat.walk_back(&computes, &mut scratch, |at, used, _| {
                excess += (used - budget).max(0);
                cost += flat.cost[computes[at] as usize];
                true
            });
            assert_eq!(search.tape.excess, excess, "after move {i}");
            assert!((search.tape.cost - cost).abs() < 1e-6, "after move {i}");
            let steps = crate::free_early(&problem, &crate::planners::flat::node_ids(&computes));
            let simulation =
                crate::simulate(&problem, &steps).unwrap_or_else(|error| panic!("after move {i}: {error}"));
            assert_eq!(excess == 0, simulation.peak.0 as i64 <= budget, "after move {i}");
            n_feasible += usize::from(excess == 0);
        }
        assert!(n_feasible > 1000, "the search must move along the border of the feasible: {n_feasible}");
    }

    #[test]
    fn searching_finds_a_plan_within_the_budget_and_improves_it() {
        let problem = mirror(40);
        let flat = Flat::new(&problem);
        let order = Found::new(&flat, (0..flat.n_nodes() as u32).collect());
        let budget = order.measure.peak / 2;
        let request = Request { effort: Some(1.0), ..Request::new(Bytes(0)) };
        let run =
            |work: f64| improve(&flat, budget, &order, 0.0, 1, &mut Limits::new(&request, work)).measure;
        let (short, long) = (run(1e6), run(3e7));
        assert!(short.peak <= budget && long.peak <= budget, "{short:?} {long:?}");
        assert!(long.cost < short.cost, "{short:?} {long:?}");
    }
}
