//! Compiled dynamic tensor rematerialization: simulate the step, and evict a value when memory is full.
//!
//! The nodes run in order. Before one runs, its missing inputs are recomputed; when memory would exceed the budget,
//! the live value with the lowest score
//!
//! ```text
//!     score(v) = recompute cost(v)^b / (bytes(v) * distance to next use(v)^a)
//! ```
//!
//! is evicted. A runtime system can only guess the next use from the past; here the whole step is known, so the
//! distance is exact, as in Belady's rule for caches. Many settings of (a, b) are tried, then random perturbations of
//! the scores, in the problem's order and with eager updates; the cheapest schedule that fits is kept. One run takes
//! O(n + evictions * live values), and about a thirtieth of that with thousands of live values.
//! Source: Kirisame et al., Dynamic Tensor Rematerialization, 2021.

use crate::answer::{not_reached, outcome};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, NONE};
use crate::schedule::limits::Limits;
use crate::schedule::order;
use crate::schedule::random::Random;

/// Work of effort 1: about a quarter of a second.
const UNIT_WORK: f64 = 5e7;
/// Work between two looks at the limits.
const WORK_PER_CHECK: f64 = 1e5;
/// With this many live values or more, a part of them is noted for eviction at once, for a part of the order.
const NOTES_FROM: usize = 1000;
const NOTES_FRACTION: usize = 32;
const NODES_FRACTION: usize = 200;
/// A run that computes more than this many times the number of nodes is hopeless.
const MOST_COMPUTES: usize = 12;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let mut limits = Limits::new(request, UNIT_WORK);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let (computes, measure) = best_run(problem, budget, request.seed, &mut limits);
    if measure.peak <= budget {
        outcome(problem, request, "eviction", &computes, limits.reason())
    } else {
        not_reached(problem, request, measure.peak)
    }
}

/// The cheapest schedule within the budget, or the one with the lowest peak; in the problem's own numbering.
pub(crate) fn best_run(
    problem: &Problem,
    budget: i64,
    seed: u64,
    limits: &mut Limits,
) -> (Vec<u32>, Measure) {
    best_runs(problem, budget, seed, 1, limits).swap_remove(0)
}

/// The best schedules of different cost, best first, at most `most` and at least one.
pub(crate) fn best_runs(
    problem: &Problem,
    budget: i64,
    seed: u64,
    most: usize,
    limits: &mut Limits,
) -> Vec<(Vec<u32>, Measure)> {
    let reordered = order::eager(problem);
    let mut flats = vec![Flat::new(problem)];
    flats.extend(reordered.as_ref().map(|other| Flat::new(&other.problem)));
    let mut best: Vec<(usize, Vec<u32>, Measure)> = Vec::new();
    let mut random = Random::new(seed);
    let mut scratch = Vec::new();
    let mut offer = |which: usize, computes: Vec<u32>, best: &mut Vec<(usize, Vec<u32>, Measure)>| {
        let measure = flats[which].measure(&computes, &mut scratch);
        let rank = measure.rank(budget);
        let place = best.partition_point(|known| known.2.rank(budget) < rank);
        let is_new = best.get(place).is_none_or(|known| known.2.rank(budget) != rank);
        if is_new && place < most {
            best.insert(place, (which, computes, measure));
            best.truncate(most);
        }
    };

    // The order without recomputes is the answer at loose budgets and the fallback at any.
    for (which, flat) in flats.iter().enumerate() {
        offer(which, (0..flat.n_nodes() as u32).collect(), &mut best);
    }
    let base_cost = best[0].2.cost;
    for round in 0usize.. {
        let measure = &best[0].2;
        if measure.peak <= budget && measure.cost <= base_cost {
            break;
        }
        let which = round % flats.len();
        let flat = &flats[which];
        let setting = Setting::number(round / flats.len(), &mut random);
        let mut run = Run::new(flat, budget, setting, &mut random);
        let is_complete = run.all(limits);
        let run_work = run.work;
        if is_complete {
            let mut computes = run.computes;
            flat.prune(&mut computes);
            offer(which, computes, &mut best);
        }
        if !limits.spend(run_work + flat.n_nodes() as f64 * 8.0) {
            break;
        }
    }
    let restored = best.into_iter().map(|(which, computes, measure)| match (&reordered, which) {
        (Some(other), 1) => (other.restore(&computes), measure),
        _ => (computes, measure),
    });
    restored.collect()
}

/// How values are scored in one run.
#[derive(Clone, Copy)]
struct Setting {
    distance_power: f64,
    cost_power: f64,
    /// Spread of the random factor on the scores.
    noise: f64,
    /// Count the cost of evicted ancestors too.
    whole_chain: bool,
    /// The share of the room above the fixed memory that a run may fill; less than the budget leaves slack.
    fill: f64,
}

impl Setting {
    /// The fixed settings first, then random ones.
    fn number(i: usize, random: &mut Random) -> Setting {
        const DISTANCE: [f64; 4] = [1.0, 0.5, 0.0, 2.0];
        const COST: [f64; 3] = [1.0, 0.5, 2.0];
        let n_fixed = DISTANCE.len() * COST.len() * 2;
        if i < n_fixed {
            let (distance_power, cost_power) = (DISTANCE[i % 4], COST[i / 4 % 3]);
            return Setting {
                distance_power,
                cost_power,
                noise: 0.0,
                whole_chain: i < n_fixed / 2,
                fill: 1.0,
            };
        }
        Setting {
            distance_power: 2.0 * random.unit(),
            cost_power: 0.3 + 1.5 * random.unit(),
            noise: 0.8 * random.unit(),
            whole_chain: random.below(3) > 0,
            fill: 1.0,
        }
    }
}

/// One simulated execution.
struct Run<'a> {
    flat: &'a Flat,
    room: i64,
    setting: Setting,
    noise: Vec<f64>,
    now: usize,
    held: i64,
    live: Vec<bool>,
    /// The live values that may be evicted, in no particular order, and the place of each in the list.
    evictable: Vec<u32>,
    place: Vec<u32>,
    pins: Vec<u32>,
    next_read: Vec<u32>,
    /// Cost of making an evicted value again, as estimated when it was evicted.
    chain_cost: Vec<f64>,
    stack: Vec<(u32, u32)>,
    /// Values to evict next, the last one first, and the last node for which they are good.
    noted: Vec<u32>,
    noted_until: usize,
    computes: Vec<u32>,
    work: f64,
}

impl<'a> Run<'a> {
    fn new(flat: &'a Flat, budget: i64, setting: Setting, random: &mut Random) -> Run<'a> {
        let n_values = flat.n_values();
        let noise =
            (0..n_values)
                .map(|_| {
                    if setting.noise > 0.0 {
                        (setting.noise * (2.0 * random.unit() - 1.0)).exp()
                    } else {
                        1.0
                    }
                })
                .collect();
        let mut run = Run {
            flat,
            room: ((budget - flat.fixed) as f64 * setting.fill) as i64,
            setting,
            noise,
            now: 0,
            held: 0,
            live: vec![false; n_values],
            evictable: Vec::new(),
            place: vec![NONE; n_values],
            pins: vec![0; n_values],
            next_read: (0..n_values).map(|v| flat.readers.range(v).start as u32).collect(),
            chain_cost: vec![0.0; n_values],
            stack: Vec::new(),
            noted: Vec::new(),
            noted_until: 0,
            computes: Vec::with_capacity(flat.n_nodes() * 2),
            work: 0.0,
        };
        for v in (0..n_values).filter(|&v| flat.producer[v] == NONE) {
            run.add(v);
        }
        run
    }

    /// Runs the whole step; fails when the plan would be hopelessly long or read overwritten state, or when a
    /// limit is reached.
    fn all(&mut self, limits: &mut Limits) -> bool {
        for n in 0..self.flat.n_nodes() {
            self.now = n;
            if !self.ensure(n) {
                return false;
            }
            if self.work > WORK_PER_CHECK {
                let work = std::mem::take(&mut self.work);
                if !limits.spend(work) {
                    return false;
                }
            }
            for &v in self.flat.inputs.get(n) {
                self.next_read[v as usize] += 1;
                // A value without further reads may still serve as a source of recomputes; it is cheap to evict.
            }
        }
        true
    }

    fn has_read(&self, v: usize) -> bool {
        (self.next_read[v] as usize) < self.flat.readers.range(v).end
    }

    fn add(&mut self, v: usize) {
        if std::mem::replace(&mut self.live[v], true) {
            return;
        }
        self.held += self.flat.bytes[v];
        if !self.flat.lasting[v] && self.flat.bytes[v] > 0 {
            self.place[v] = self.evictable.len() as u32;
            self.evictable.push(v as u32);
        }
    }

    fn remove(&mut self, v: usize) {
        self.live[v] = false;
        self.held -= self.flat.bytes[v];
        let at = std::mem::replace(&mut self.place[v], NONE);
        if at != NONE {
            self.evictable.swap_remove(at as usize);
            if let Some(&moved) = self.evictable.get(at as usize) {
                self.place[moved as usize] = at;
            }
        }
    }

    /// Runs a node after everything it needs: depth first with an explicit stack of (node, next input).
    fn ensure(&mut self, n: usize) -> bool {
        self.enter(n as u32);
        while let Some((n, k)) = self.stack.last_mut() {
            let node = *n as usize;
            if let Some(&v) = self.flat.inputs.get(node).get(*k as usize) {
                *k += 1;
                if !self.live[v as usize] {
                    if self.flat.lasting[v as usize] {
                        return false;
                    }
                    let producer = self.flat.producer[v as usize];
                    self.enter(producer);
                }
                continue;
            }
            self.stack.pop();
            self.compute(node);
            if self.computes.len() > MOST_COMPUTES * self.flat.n_nodes() {
                return false;
            }
        }
        true
    }

    fn enter(&mut self, n: u32) {
        for &v in self.flat.inputs.get(n as usize) {
            self.pins[v as usize] += 1;
        }
        self.stack.push((n, 0));
    }

    fn compute(&mut self, n: usize) {
        let flat = self.flat;
        // Outputs that are live already are not needed twice.
        for &v in flat.outputs.get(n) {
            if self.live[v as usize] && self.pins[v as usize] == 0 {
                self.remove(v as usize);
            }
        }
        let is_order_run = self.stack.is_empty();
        let shared = flat.shared_bytes(n, |v| {
            let v = v as usize;
            // On behalf of the order, an input dies at its last read; elsewhere it is assumed to live on.
            !is_order_run
                || self.pins[v] > 1
                || self.next_read[v] as usize + 1 < flat.readers.range(v).end
                || flat.is_output[v]
                || flat.lasting[v]
        });
        self.make_room(flat.extra[n] - shared);
        for &v in flat.inputs.get(n) {
            self.pins[v as usize] -= 1;
        }
        self.computes.push(n as u32);
        self.work += (flat.inputs.get(n).len() + flat.outputs.get(n).len()) as f64 + 4.0;
        for &v in flat.consumes.get(n) {
            self.remove(v as usize);
        }
        for &v in flat.outputs.get(n) {
            self.add(v as usize);
        }
        if shared > 0 {
            for pair in flat.reuse.get(n).chunks_exact(2) {
                let v = pair[0] as usize;
                if self.live[v] && self.pins[v] == 0 && !flat.lasting[v] && !flat.is_output[v] {
                    let is_last = self.next_read[v] as usize + 1 >= flat.readers.range(v).end;
                    if is_order_run && is_last {
                        self.chain_cost[v] = self.recompute_cost(v);
                        self.remove(v);
                    }
                }
            }
        }
    }

    /// Evicts until `extra` more bytes fit, or nothing is left to evict.
    fn make_room(&mut self, extra: i64) {
        while self.held + extra > self.room {
            let Some(v) = self.next_to_evict() else { return };
            self.chain_cost[v as usize] = self.recompute_cost(v as usize);
            self.remove(v as usize);
        }
    }

    /// The live value with the lowest score. Among thousands of live values searching for each one from scratch would take most of the
    /// time, so several are noted at once; the notes are good for a short while, since scores change slowly.
    fn next_to_evict(&mut self) -> Option<u32> {
        if self.now > self.noted_until {
            self.noted.clear();
        }
        while let Some(v) = self.noted.pop() {
            if self.place[v as usize] != NONE && self.may_evict(v as usize) {
                return Some(v);
            }
        }
        self.work += self.evictable.len() as f64 * 3.0;
        let mut scored: Vec<(f64, u32)> = Vec::new();
        let mut worst: Option<(f64, u32)> = None;
        let takes_notes = self.evictable.len() >= NOTES_FROM;
        for &v in &self.evictable {
            let value = v as usize;
            if !self.may_evict(value) {
                continue;
            }
            let distance = if self.has_read(value) {
                self.flat.readers.item(self.next_read[value] as usize) as usize - self.now + 1
            } else {
                2 * self.flat.n_nodes()
            };
            let score = self.score(value, distance as f64);
            if takes_notes {
                scored.push((score, v));
            } else if worst.is_none_or(|(lowest, w)| score < lowest || (score == lowest && v < w)) {
                worst = Some((score, v));
            }
        }
        if scored.is_empty() {
            return worst.map(|(_, v)| v);
        }
        let by_score = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let n_notes = (scored.len() / NOTES_FRACTION).max(1);
        if n_notes < scored.len() {
            scored.select_nth_unstable_by(n_notes, by_score);
            scored.truncate(n_notes);
        }
        scored.sort_unstable_by(by_score);
        self.noted.extend(scored.iter().rev().map(|&(_, v)| v));
        self.noted_until = self.now + self.flat.n_nodes() / NODES_FRACTION;
        self.noted.pop()
    }

    /// Whether a live value is not needed by what runs or waits, and is not an output that is complete.
    fn may_evict(&self, v: usize) -> bool {
        self.pins[v] == 0 && (self.has_read(v) || !self.flat.is_output[v])
    }

    fn score(&self, v: usize, distance: f64) -> f64 {
        let cost = if self.setting.whole_chain {
            self.recompute_cost(v)
        } else {
            self.flat.cost[self.flat.producer[v] as usize]
        };
        let far = distance.powf(self.setting.distance_power);
        self.noise[v] * cost.powf(self.setting.cost_power) / (self.flat.bytes[v] as f64 * far)
    }

    /// The cost of the maker and of its missing inputs, as far as known.
    fn recompute_cost(&self, v: usize) -> f64 {
        let producer = self.flat.producer[v] as usize;
        let missing = self.flat.inputs.get(producer).iter().filter(|&&w| !self.live[w as usize]);
        self.flat.cost[producer] + missing.map(|&w| self.chain_cost[w as usize]).sum::<f64>()
    }
}
