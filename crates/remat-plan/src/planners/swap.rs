//! Keep or move: nothing is recomputed, and the nodes run in the problem's order. What G10 and FlashNeuron do.
//!
//! A decision is about a *span*: the steps between two consecutive uses of a value, or before the first and after the last
//! use of state, which then rests in a store between training steps. Where memory is above the budget, the spans over
//! that step are moved in the order of time per cost of the two copies (the longest ones first, Belady's rule), each to the store
//! whose channels have the least to do. Several exponents of that score and several leads of the copies in are tried, each with an exact timetable;
//! then single spans that make the program wait are exchanged.
//!
//! It reaches the lowest memory that any plan in this order reaches: in the end everything that is not used at a step is
//! elsewhere. Time: O(values * log values) for each step that is found above the budget, and a timetable for each trial.
//! Mathematics: docs/planners/swap.md.

use crate::answer::{not_reached, outcome, outcome_moving};
use crate::outcome::{Outcome, StopReason};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::NONE;
use crate::schedule::gaps::{Gap, Schedule, schedule_moving};
use crate::schedule::limits::Limits;
use crate::schedule::moving::Moving;
use crate::schedule::moving::timetable::{Timetable, timetable};

/// Work of effort 1: about a second.
const UNIT_WORK: f64 = 2e8;
/// Exponents of the cost of a copy in the score of a span.
const COST_POWERS: [f64; 3] = [1.0, 0.5, 2.0];
/// Work of a timetable for each slot.
const WORK_PER_SLOT: f64 = 20.0;
/// How early copies in may begin, as parts of the cost of the step.
const LEADS: [f64; 4] = [0.01, 0.0, 0.1, 1.0];

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let order: Vec<u32> = (0..problem.nodes.len() as u32).collect();
    if problem.stores.is_empty() {
        return outcome(problem, request, "swap", &order, StopReason::BudgetMet);
    }
    let moving = Moving::new(problem);
    let mut limits = Limits::new(request, UNIT_WORK);
    match greedy(&moving, budget, &mut limits) {
        Ok(found) => {
            let stop = StopReason::BudgetMet;
            outcome_moving(problem, request, "swap", found.timetable, stop, problem.base_cost())
        }
        Err(peak) => not_reached(problem, request, peak),
    }
}

/// A sequence with its timetable.
#[derive(Clone)]
pub(crate) struct Moved {
    #[allow(dead_code)]
    pub(crate) sequence: Vec<u32>,
    pub(crate) timetable: Timetable,
}

/// The best of several greedy choices within the budget, or the lowest peak.
pub(crate) fn greedy(moving: &Moving, budget: i64, limits: &mut Limits) -> Result<Moved, i64> {
    let mut greedy = Greedy { moving, budget, barred: Vec::new(), best: None, lowest: i64::MAX };
    for power in COST_POWERS {
        greedy.offer(power, &LEADS, limits);
        if greedy.best.is_some() && !limits.spend(0.0) {
            break;
        }
    }
    greedy.exchange(limits);
    greedy.best.map(|best| best.moved).ok_or(greedy.lowest)
}

/// The best choice so far, with its settings.
struct Best {
    moved: Moved,
    power: f64,
    lead: f64,
    spans: Vec<Span>,
    is_moved: Vec<bool>,
}

/// Choices and what came of them.
struct Greedy<'a> {
    moving: &'a Moving<'a>,
    budget: i64,
    /// Spans that are kept.
    barred: Vec<usize>,
    best: Option<Best>,
    lowest: i64,
}

impl Greedy<'_> {
    /// Tries one score; says whether the result is the best so far.
    fn offer(&mut self, power: f64, leads: &[f64], limits: &mut Limits) -> bool {
        let mut spans = Spans::new(self.moving, self.budget);
        // A plan that keeps everything always exists.
        let kept_all = spans.memory.iter().copied().max().unwrap_or(self.moving.flat.fixed);
        self.lowest = self.lowest.min(kept_all);
        self.barred.iter().for_each(|&at| spans.is_moved[at] = true);
        let (sequence, work) = spans.relieve(power);
        limits.spend(work);
        let Some(sequence) = sequence else { return false };
        let mut is_best = false;
        for &lead in leads {
            limits.spend(WORK_PER_SLOT * sequence.len() as f64);
            let table = timetable(self.moving, &sequence, self.budget, lead * spans.base_cost);
            let Some(timetable) = table else { continue };
            self.lowest = self.lowest.min(timetable.peak);
            let is_better = self
                .best
                .as_ref()
                .is_none_or(|best| timetable.cost < best.moved.timetable.cost * (1.0 - 1e-9));
            if timetable.peak <= self.budget && is_better {
                let moved = Moved { sequence: sequence.clone(), timetable };
                let (spans, is_moved) = (spans.spans.clone(), spans.is_moved.clone());
                self.best = Some(Best { moved, power, lead, spans, is_moved });
                is_best = true;
            }
        }
        is_best
    }

    /// Keeps what makes the program wait most, one span after the other, and moves something else instead.
    fn exchange(&mut self, limits: &mut Limits) {
        let mut tried: Vec<usize> = Vec::new();
        while limits.spend(0.0) {
            let Some(best) = &self.best else { return };
            let mut spans: Vec<(f64, usize)> = Vec::new();
            for wait in &best.moved.timetable.waits {
                let found = best.spans.iter().enumerate().rev().find(|(at, span)| {
                    let is_near = if wait.is_out { span.from <= wait.node + 1 } else { span.to <= wait.node };
                    span.value == wait.value && is_near && best.is_moved[*at] && !tried.contains(at)
                });
                spans.extend(found.map(|(at, _)| (wait.time, at)));
            }
            let (power, lead) = (best.power, best.lead);
            let Some(&(_, at)) = spans.iter().reduce(|a, b| if b.0 > a.0 { b } else { a }) else { return };
            tried.push(at);
            self.barred.push(at);
            if !self.offer(power, &[lead], limits) {
                self.barred.pop();
            }
        }
    }
}

/// One span that may be moved: value, the slots over which it is then not in memory, and the decision it stands for.
#[derive(Clone, Copy)]
struct Span {
    value: u32,
    from: u32,
    to: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The gap before this read.
    Gap(u32),
    /// An input that rests in a store until its first read; the output that carries it rests there after its last one.
    State,
    /// An output that leaves after its last use and comes back in the end.
    Last,
}

struct Spans<'a> {
    moving: &'a Moving<'a>,
    budget: i64,
    base_cost: f64,
    memory: Vec<i64>,
    before: Vec<f64>,
    gaps: Vec<Gap>,
    last: Vec<u32>,
    spans: Vec<Span>,
    is_moved: Vec<bool>,
    /// The store that a value was last moved to, or `NONE`.
    home: Vec<u32>,
    /// What the channels have to do, and what each limited store holds at each slot.
    load: Vec<f64>,
    filled: Vec<Vec<i64>>,
}

impl<'a> Spans<'a> {
    fn new(moving: &'a Moving<'a>, budget: i64) -> Spans<'a> {
        let flat = &moving.flat;
        let n_nodes = moving.n_nodes;
        let order: Vec<u32> = (0..n_nodes as u32).collect();
        let mut memory = vec![0; n_nodes];
        flat.walk_back(&order, &mut Vec::new(), |i, used, _| {
            memory[i] = used;
            true
        });
        let mut before = vec![0.0];
        before.extend(flat.cost[..n_nodes].iter().scan(0.0, |sum, cost| {
            *sum += cost;
            Some(*sum)
        }));
        let is_limited = |s: usize| moving.problem.stores[s].capacity_bytes.is_some();
        let mut spans = Spans {
            moving,
            budget,
            base_cost: before[n_nodes],
            memory,
            before,
            gaps: vec![Gap::Keep; flat.readers.n_items()],
            last: vec![NONE; moving.n_values],
            spans: Vec::new(),
            is_moved: Vec::new(),
            home: vec![NONE; moving.n_values],
            load: vec![0.0; moving.problem.channels.len()],
            filled: (0..moving.n_stores)
                .map(|s| if is_limited(s) { vec![0; n_nodes + 1] } else { Vec::new() })
                .collect(),
        };
        (0..moving.n_values as u32).filter(|&v| moving.may_move(v)).for_each(|v| spans.list(v));
        spans.is_moved = vec![false; spans.spans.len()];
        spans
    }

    /// The spans of a value.
    fn list(&mut self, value: u32) {
        let flat = &self.moving.flat;
        let v = value as usize;
        let reads = flat.readers.range(v);
        let producer = flat.producer[v];
        let mut free_from = if producer == NONE { 0 } else { producer + 1 };
        for gap in reads.clone() {
            let reader = flat.readers.item(gap);
            let is_state = producer == NONE && gap == reads.start && self.may_rest(value);
            if is_state || reader > free_from || self.shared_before(value, free_from) > 0 {
                let what = if is_state { What::State } else { What::Gap(gap as u32) };
                self.spans.push(Span { value, from: free_from, to: reader, what });
            }
            free_from = reader + 1;
        }
        let n_nodes = self.moving.n_nodes as u32;
        let is_open = free_from < n_nodes || self.shared_before(value, free_from) > 0;
        if flat.is_output[v] && is_open && self.moving.carries[v] == NONE {
            self.spans.push(Span { value, from: free_from, to: n_nodes, what: What::Last });
        }
    }

    /// The bytes of an output that can take over the storage of a value if that leaves before slot `from`.
    fn shared_before(&self, v: u32, from: u32) -> i64 {
        let flat = &self.moving.flat;
        let pairs = if from == 0 { &[][..] } else { flat.reuse.get(from as usize - 1) };
        let shared = pairs.chunks_exact(2).filter(|pair| pair[0] == v);
        shared.map(|pair| flat.bytes[pair[1] as usize]).max().unwrap_or(0)
    }

    /// Whether an input may be in a store between steps.
    fn may_rest(&self, v: u32) -> bool {
        let output = self.moving.carried_by[v as usize];
        output != NONE && self.moving.rest_node[output as usize] != NONE
    }

    /// The slots over which the output that carries a state is in a store.
    fn after_last_use(&self, v: u32) -> (u32, u32) {
        let w = self.moving.carried_by[v as usize] as usize;
        let flat = &self.moving.flat;
        let last_read = flat.readers.get(w).last().map(|reader| reader + 1);
        let made = if flat.producer[w] == NONE { 0 } else { flat.producer[w] + 1 };
        (last_read.unwrap_or(made).max(made), self.moving.n_nodes as u32)
    }

    /// Moves spans until the exact memory is within the budget or nothing is left to move; the sequence and the work.
    fn relieve(&mut self, cost_power: f64) -> (Option<Vec<u32>>, f64) {
        let mut work = 0.0;
        loop {
            let n_moved = self.is_moved.iter().filter(|&&is_moved| is_moved).count();
            work += self.relieve_once(cost_power);
            let schedule = schedule_moving(self.moving, &self.gaps, &self.last);
            let Some(Schedule { computes, serves }) = schedule else { return (None, work) };
            let mut exact = vec![i64::MIN; self.memory.len()];
            self.moving.flat.walk_back(&computes, &mut Vec::new(), |i, used, _| {
                exact[serves[i] as usize] = exact[serves[i] as usize].max(used);
                true
            });
            work += 10.0 * computes.len() as f64;
            // Which outputs share storage was an estimate.
            let is_done = exact.iter().all(|&used| used <= self.budget)
                || n_moved == self.is_moved.iter().filter(|&&is_moved| is_moved).count();
            self.memory = exact;
            if is_done {
                let (n_kept, more) = self.keep_again();
                let computes = match n_kept {
                    0 => Some(computes),
                    _ => {
                        schedule_moving(self.moving, &self.gaps, &self.last).map(|schedule| schedule.computes)
                    }
                };
                return (computes, work + more);
            }
        }
    }

    fn relieve_once(&mut self, cost_power: f64) -> f64 {
        let mut work = 0.0;
        let mut is_hopeless = vec![false; self.memory.len()];
        loop {
            let peak = (0..self.memory.len()).filter(|&k| !is_hopeless[k]).max_by_key(|&k| self.memory[k]);
            let Some(k) = peak.filter(|&k| self.memory[k] > self.budget) else { return work };
            let mut over: Vec<(f64, usize)> = Vec::new();
            for (at, span) in self.spans.iter().enumerate() {
                if !self.is_moved[at] && self.covers(span, k as u32) {
                    over.push((self.score(span, cost_power), at));
                }
            }
            over.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            work += 4.0 * (self.spans.len() + self.memory.len()) as f64 + 20.0 * over.len() as f64;
            for &(_, at) in &over {
                if self.memory[k] <= self.budget {
                    break;
                }
                work += self.take(at);
            }
            is_hopeless[k] = true;
        }
    }

    fn covers(&self, span: &Span, k: u32) -> bool {
        let is_after = span.what == What::State && {
            let (from, to) = self.after_last_use(span.value);
            (from <= k && k < to) || self.shares(self.moving.carried_by[span.value as usize], from, k)
        };
        (span.from <= k && k < span.to) || is_after || self.shares(span.value, span.from, k)
    }

    /// Whether an output of node `k` can take over the storage of a value that leaves before slot `from`.
    fn shares(&self, v: u32, from: u32, k: u32) -> bool {
        from == k + 1 && self.shared_before(v, from) > 0
    }

    /// Time out of memory for the cost of the copies.
    fn score(&self, span: &Span, cost_power: f64) -> f64 {
        let v = span.value;
        let mut time = self.before[span.to as usize] - self.before[span.from as usize];
        if span.what == What::State {
            let (from, to) = self.after_last_use(v);
            time += self.before[to as usize] - self.before[from as usize];
        }
        let cost = self.moving.stores_of(v).map(|s| self.moving.out_cost(v, s) + self.moving.back_cost(v, s));
        let cost = cost.fold(f64::INFINITY, f64::min);
        let per_byte = cost / self.moving.flat.bytes[v as usize] as f64;
        (time.max(1e-9 * self.base_cost) / per_byte.powf(cost_power)).min(f64::MAX)
    }

    /// Moves a span to the store that has the least to do; returns the work.
    fn take(&mut self, at: usize) -> f64 {
        let span = self.spans[at];
        let v = span.value;
        let stores: Vec<u32> = self.moving.stores_of(v).filter(|&s| self.has_space(&span, s)).collect();
        let total = |s: u32| {
            let store = &self.moving.problem.stores[s as usize];
            let out = self.load[store.out.channel.index()] + self.moving.out_cost(v, s);
            let back = self.load[store.back.channel.index()] + self.moving.back_cost(v, s);
            out.max(back)
        };
        // Where the value was before it need not be copied to again.
        let best = match self.home[v as usize] {
            home if stores.contains(&home) => Some(home),
            _ => stores.into_iter().min_by(|&a, &b| total(a).total_cmp(&total(b))),
        };
        let Some(s) = best else {
            self.is_moved[at] = true;
            return 8.0;
        };
        let store = &self.moving.problem.stores[s as usize];
        if std::mem::replace(&mut self.home[v as usize], s) != s {
            self.load[store.out.channel.index()] += self.moving.out_cost(v, s);
        }
        self.load[store.back.channel.index()] += self.moving.back_cost(v, s);
        self.is_moved[at] = true;
        let bytes = self.moving.flat.bytes[v as usize];
        for (from, to) in self.stored_over(&span) {
            if let Some(filled) = self.filled[s as usize].get_mut(from as usize..to as usize) {
                filled.iter_mut().for_each(|filled| *filled += bytes);
            }
        }
        self.leave(bytes, span.from, span.to);
        if span.from > 0 {
            self.memory[span.from as usize - 1] -= self.shared_before(v, span.from);
        }
        let node = self.moving.in_node(v, s).expect("the store can hold the value");
        match span.what {
            What::Gap(gap) => self.gaps[gap as usize] = Gap::Move(s),
            What::Last => self.last[v as usize] = node,
            What::State => {
                let (from, to) = self.after_last_use(v);
                self.leave(bytes, from, to);
                self.gaps[self.moving.flat.readers.range(v as usize).start] = Gap::Move(s);
                let w = self.moving.carried_by[v as usize] as usize;
                self.last[w] = self.moving.rest_node[w];
            }
        }
        f64::from(span.to - span.from) + 8.0
    }

    /// Keeps moved spans after all where there is memory for them, the largest first; their number, and the work.
    fn keep_again(&mut self) -> (usize, f64) {
        let mut moved: Vec<usize> = (0..self.spans.len())
            .filter(|&at| {
                self.is_moved[at]
                    && matches!(self.spans[at].what, What::Gap(gap) if self.gaps[gap as usize] != Gap::Keep)
            })
            .collect();
        moved.sort_by_key(|&at| (-self.moving.flat.bytes[self.spans[at].value as usize], at));
        let (mut n_kept, mut work) = (0, 0.0);
        for at in moved {
            let Span { value, from, to, what } = self.spans[at];
            let What::Gap(gap) = what else { continue };
            let bytes = self.moving.flat.bytes[value as usize];
            let slots = from.saturating_sub(1) as usize..to as usize;
            work += slots.len() as f64;
            let shared = self.shared_before(value, from);
            let more = |slot: usize| if slot < from as usize { shared } else { bytes };
            if slots.clone().all(|slot| self.memory[slot] + more(slot) <= self.budget) {
                slots.for_each(|slot| self.memory[slot] += more(slot));
                self.gaps[gap as usize] = Gap::Keep;
                self.is_moved[at] = false;
                n_kept += 1;
            }
        }
        (n_kept, work)
    }

    fn leave(&mut self, bytes: i64, from: u32, to: u32) {
        let slots = self.memory.get_mut(from as usize..to as usize).unwrap_or_default();
        slots.iter_mut().for_each(|used| *used -= bytes);
    }

    /// The slots at which a store holds the value of a moved span, from the earliest beginning of its copy out on.
    fn stored_over(&self, span: &Span) -> Vec<(u32, u32)> {
        let producer = self.moving.flat.producer[span.value as usize];
        let made = if producer == NONE { 0 } else { producer };
        let mut slots = vec![(made, span.to + 1)];
        if span.what == What::State {
            let w = self.moving.carried_by[span.value as usize] as usize;
            let producer = self.moving.flat.producer[w];
            slots.push((if producer == NONE { 0 } else { producer }, self.moving.n_nodes as u32 + 1));
        }
        slots
    }

    fn has_space(&self, span: &Span, s: u32) -> bool {
        let capacity = self.moving.problem.stores[s as usize].capacity_bytes;
        capacity.is_none_or(|capacity| {
            let bytes = self.moving.flat.bytes[span.value as usize];
            self.stored_over(span).iter().all(|&(from, to)| {
                let filled = &self.filled[s as usize];
                let to = (to as usize).min(filled.len());
                filled[(from as usize).min(to)..to].iter().all(|&filled| filled + bytes <= capacity.0 as i64)
            })
        })
    }
}
