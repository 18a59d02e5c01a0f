//! Local search on the sequence of computes: simulated annealing with an adaptive price on memory.
//!
//! In: valid sequences, within the budget or not. Out: the cheapest sequence within the budget that was met on the way,
//! or the lowest. The objective is cost + price * penalty, where the penalty is the sum over all steps of the
//! bytes above the budget, with a weight per node. The price is steered: it rises while the sequence is over the budget
//! and falls while it is within, so the search moves along the border of what is feasible, where the cheapest plans
//! are. (With a fixed price annealing is hardly better than greedy: too low, and it never returns into the
//! budget; too high, and it cannot move.) The weights are steered in the same way, node by node: without them a value
//! that is live for two hundred steps looks a hundred times as heavy as one that is live for two.
//!
//! A search has several lineages, each with its own start, and works on them in turn, one cooling each. Which of them lead to
//! good plans is seen after a few coolings and not from the starts, so the caller drops the worst ones from time to time.
//! Tried and dropped: one lineage with ever more coolings, which stays in the valley of its start.

use crate::planners::best::moves::{Kind, Moves};
use crate::planners::best::news::News;
use crate::schedule::flat::{Flat, Measure};
use crate::schedule::limits::Limits;
use crate::schedule::moving::Moving;
use crate::schedule::random::Random;
use crate::schedule::tape::{Most, Tape};
use crate::units::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Moves between two looks at the clock.
const MOVES_PER_CHECK: usize = 512;
/// Moves between two adjustments of the price and the temperature.
const MOVES_PER_PRICE: usize = 64;
/// Start temperatures of the coolings of a lineage in turn, in units of a typical cost, with their moves per slot: hot ones
/// leave the valley and need time to settle in another, mild ones search its floor.
const COOLINGS: [(f64, usize); 4] = [(1.0, 240), (0.1, 80), (0.4, 240), (0.05, 80)];
const MEAN_MOVES_PER_SLOT: usize = 160;
const LAST_TEMPERATURE: f64 = 0.002;
/// Work per visited slot, in the unit of the limits.
const WORK_PER_SLOT: f64 = 2.5;
const TYPICAL_SLOTS_PER_MOVE: f64 = 60.0;
/// How many of a hundred moves send a value to a store, where there are stores.
const SENDS_PERCENT: usize = 30;
/// What is less than this part of the cost is no gain.
pub(crate) const SMALL_GAIN: f64 = 1e-5;

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

    /// The peak, fixed bytes included.
    pub(crate) fn peak(&self) -> Bytes {
        Bytes(self.measure.peak.max(0) as u64)
    }

    /// Whether this is to be preferred: within the budget the cheaper one, above it the lower one.
    pub(crate) fn is_better_than(&self, other: &Found, budget: i64) -> bool {
        self.measure.rank(budget) < other.measure.rank(budget)
    }
}

/// When a search ends before its limits.
#[derive(Clone, Copy)]
pub(crate) struct Ending<'a> {
    /// A cost below which no plan exists.
    pub(crate) target: f64,
    /// Set by another thread once it is proved that there is nothing left to find.
    pub(crate) is_over: &'a AtomicBool,
    /// Coolings without gain after which the search gives up.
    pub(crate) patience: usize,
    /// Hears of better plans.
    pub(crate) news: &'a News<'a>,
}

/// What one start led to, and what was learned on the way.
#[derive(Clone)]
pub(crate) struct Lineage {
    pub(crate) best: Found,
    n_coolings: usize,
    price: f64,
    weights: Vec<f64>,
}

impl Lineage {
    pub(crate) fn new(flat: &Flat, start: Found) -> Lineage {
        let (cost, bytes, _) = typical(flat);
        Lineage { best: start, n_coolings: 0, price: cost / bytes / 4.0, weights: vec![1.0; flat.n_nodes()] }
    }
}

/// Sums of cost and bytes over the values that can be made again, and their number; none is zero.
fn typical(flat: &Flat) -> (f64, f64, f64) {
    let (mut cost, mut bytes, mut count) = (0.0, 0.0, 0.0f64);
    for v in (0..flat.n_values()).filter(|&v| !flat.lasting[v] && flat.bytes[v] > 0) {
        cost += flat.cost[flat.producer[v] as usize];
        bytes += flat.bytes[v] as f64;
        count += 1.0;
    }
    // Free nodes only: any positive cost will do.
    (if cost > 0.0 { cost } else { 1.0 }, bytes.max(1.0), count.max(1.0))
}

/// One annealing machine; it works on its lineages in turn.
pub(crate) struct Search<'a> {
    tape: Tape<'a>,
    budget: i64,
    random: Random,
    /// A typical cost of one recompute, the unit of the temperature.
    unit: f64,
    moves: Moves,
    /// The stores to which values may be sent, if there are any.
    moving: Option<&'a Moving<'a>>,
    price: f64,
    turn: usize,
    pub(crate) lineages: Vec<Lineage>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(flat: &'a Flat, budget: i64, seed: u64) -> Search<'a> {
        let (cost, _, count) = typical(flat);
        Search {
            tape: Tape::new(flat, budget, &[]),
            budget,
            random: Random::new(seed),
            unit: cost / count,
            moves: Moves::default(),
            moving: None,
            price: 0.0,
            turn: 0,
            lineages: Vec::new(),
        }
    }

    /// The same on the wider problem with copies; `flat` is that problem with a price for each copy.
    pub(crate) fn with_stores(moving: &'a Moving<'a>, flat: &'a Flat, budget: i64, seed: u64) -> Search<'a> {
        Search { moving: Some(moving), ..Search::new(flat, budget, seed) }
    }

    /// The work of one cooling of a sequence of this length, roughly.
    pub(crate) fn work_of_cooling(n_slots: usize) -> f64 {
        (MEAN_MOVES_PER_SLOT * n_slots.max(50)) as f64 * TYPICAL_SLOTS_PER_MOVE * WORK_PER_SLOT
    }

    /// The memory of a search on sequences of this length: a bit per step and value, mainly.
    pub(crate) fn bytes(flat: &Flat, n_slots: usize) -> usize {
        (flat.n_values() / 8).saturating_mul(n_slots)
    }

    /// Improves the lineages until the limits are reached or the ending says so.
    pub(crate) fn run(&mut self, ending: Ending, limits: &mut Limits) {
        if self.tape.flat.n_nodes() == 0 || self.lineages.is_empty() {
            return;
        }
        let mut n_idle = 0;
        while n_idle < ending.patience {
            let before = self.best();
            let at = self.turn % self.lineages.len();
            if self.is_done(ending) || !self.cool(at, ending, limits) {
                return;
            }
            self.turn += 1;
            let now = self.best();
            let gains = now.0 < before.0 || now.1 < before.1 * (1.0 - SMALL_GAIN);
            n_idle = if gains { 0 } else { n_idle + 1 };
        }
    }

    /// The lowest peak, where above the budget, and the least cost of all lineages.
    fn best(&self) -> (i64, f64) {
        let ranks = self.lineages.iter().map(|lineage| lineage.best.measure.rank(self.budget));
        ranks.fold((i64::MAX, f64::INFINITY), |best, rank| {
            let is_better = (rank.0, rank.1) < best;
            if is_better { (rank.0, rank.1) } else { best }
        })
    }

    fn is_done(&self, ending: Ending) -> bool {
        let is_met = |measure: &Measure| measure.peak <= self.budget && measure.cost <= ending.target;
        ending.is_over.load(Ordering::Relaxed)
            || self.lineages.iter().any(|lineage| is_met(&lineage.best.measure))
    }

    /// Remembers the present sequence if it is within the budget and cheaper than the best.
    fn note(&mut self, at: usize, news: &News) {
        let best = &self.lineages[at].best.measure;
        if self.tape.excess == 0 && (best.peak > self.budget || self.tape.cost < best.cost * (1.0 - 1e-12)) {
            self.lineages[at].best = Found::new(self.tape.flat, self.tape.computes());
            news.plan(self.lineages[at].best.measure.cost);
        }
    }

    /// One cooling of a lineage; says whether to continue.
    fn cool(&mut self, at: usize, ending: Ending, limits: &mut Limits) -> bool {
        let lineage = &mut self.lineages[at];
        self.tape.load_weighted(&lineage.best.computes, &lineage.weights);
        self.price = lineage.price;
        let n_slots = self.tape.slots.len();
        let (hot, moves_per_slot) = COOLINGS[lineage.n_coolings % COOLINGS.len()];
        let n_moves = moves_per_slot * n_slots.max(50);
        let moves_per_note = n_slots / 1000 + 1;
        lineage.n_coolings += 1;
        let start = self.unit * hot * (0.5 + self.random.unit());
        let end = self.unit * LAST_TEMPERATURE;
        let begin = limits.progress();
        let (mut temperature, mut used, mut goes_on) = (start, 0.0, true);
        for i in 0..n_moves {
            if i % MOVES_PER_CHECK == 0 {
                let work = self.tape.work as f64 * WORK_PER_SLOT;
                self.tape.work = 0;
                if !limits.spend(work) {
                    goes_on = false;
                    break;
                }
                // A cooling that the limits cut short cools faster, since a plan at a high temperature is worth little.
                used = (limits.progress() - begin) / (1.0 - begin).max(1e-9);
                if self.is_done(ending) {
                    break;
                }
            }
            if i % MOVES_PER_PRICE == 0 {
                self.price *= if self.tape.excess > 0 { 1.03 } else { 0.97 };
                temperature = start * (end / start).powf(used.max(i as f64 / n_moves as f64));
            }
            if i % (4 * n_slots) == 0 {
                self.tape.adjust_weights(1.2, 0.97);
            }
            self.step(temperature);
            // Copying the sequence takes as long as many moves, so it is not done after each of them.
            if i % moves_per_note == 0 {
                self.note(at, ending.news);
            }
        }
        self.note(at, ending.news);
        let lineage = &mut self.lineages[at];
        lineage.price = self.price;
        lineage.weights.copy_from_slice(self.tape.weights());
        // Above the budget the lowest peak is what counts.
        if lineage.best.measure.peak > self.budget {
            let now = Found::new(self.tape.flat, self.tape.computes());
            if now.is_better_than(&lineage.best, self.budget) {
                lineage.best = now;
            }
        }
        goes_on
    }

    fn step(&mut self, temperature: f64) {
        let kind = match self.random.below(100) {
            0..38 => Kind::Drop,
            38..60 => Kind::Delete,
            60..67 => Kind::Swap,
            _ => Kind::Shift,
        };
        self.tape.work += 4;
        let proposed = match self.moving {
            Some(moving) if self.random.below(100) < SENDS_PERCENT => {
                self.moves.propose_send(moving, &mut self.tape, &mut self.random)
            }
            _ => self.moves.propose(kind, &mut self.tape, &mut self.random),
        };
        if proposed.is_none() {
            return;
        }
        let most = Most { price: self.price, objective: -temperature * self.random.unit().ln() };
        if let Some(effect) = self.tape.try_change(&self.moves.change, most)
            && effect.cost + most.price * effect.penalty <= most.objective
        {
            self.tape.apply(&self.moves.change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ValueId;
    use crate::problem::Problem;
    use crate::request::Request;
    use crate::spec::{Node, Phase, ProblemSpec, Value};
    use std::time::Instant;

    /// A chain and its mirror image, as forward and backward are, with state that the last nodes overwrite and
    /// outputs that may take over the storage of their input.
    fn mirror(n: usize) -> Problem {
        let value = |name: String, bytes: usize| Value::new(name, Bytes(bytes as u64));
        let id = ValueId::new;
        let mut spec = ProblemSpec {
            name: "mirror".into(),
            cost_unit: "1".into(),
            fixed_bytes: Bytes(3),
            values: (0..2 * n).map(|v| value(format!("v{v}"), 10 + 7 * v % 13)).collect(),
            inputs: vec![],
            nodes: vec![],
            outputs: vec![],
            ..ProblemSpec::default()
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
        let mut search = Search::new(&flat, budget, 7);
        search.tape.load(&order.computes);
        search.price = Lineage::new(&flat, order).price;
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
            let steps = crate::free_early(&problem, &crate::schedule::flat::node_ids(&computes));
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
        let run = |work: f64| {
            let mut search = Search::new(&flat, budget, 1);
            search.lineages.push(Lineage::new(&flat, order.clone()));
            let is_over = AtomicBool::new(false);
            let news = News::new(&request, Instant::now(), 0.0);
            let ending = Ending { target: 0.0, is_over: &is_over, patience: usize::MAX, news: &news };
            search.run(ending, &mut Limits::new(&request, work));
            search.lineages[0].best.measure
        };
        let (short, long) = (run(1e6), run(3e7));
        assert!(short.peak <= budget && long.peak <= budget, "{short:?} {long:?}");
        assert!(long.cost < short.cost, "{short:?} {long:?}");
    }
}
