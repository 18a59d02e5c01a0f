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
use crate::schedule::limits::Limits;
use crate::schedule::moving::Moving;
use crate::schedule::moving::spans::{Span, Spans};
use crate::schedule::moving::timetable::{Timetable, timetable};

/// Work of effort 1: about a second.
const UNIT_WORK: f64 = 2e8;
/// Exponents of the cost of a copy in the score of a span.
const COST_POWERS: [f64; 3] = [1.0, 0.5, 2.0];
/// How much memory is left for copies under way, in times of their duration.
const MARGINS: [f64; 4] = [0.0, 1.0, 2.0, 4.0];
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
            outcome_moving(problem, request, "swap", found.timetable, stop, None)
        }
        Err(peak) => not_reached(problem, request, peak),
    }
}

/// A sequence with its timetable.
#[derive(Clone)]
pub(crate) struct Moved {
    pub(crate) sequence: Vec<u32>,
    pub(crate) timetable: Timetable,
}

/// The best of several greedy choices within the budget, or the lowest peak.
pub(crate) fn greedy(moving: &Moving, budget: i64, limits: &mut Limits) -> Result<Moved, i64> {
    let order: Vec<u32> = (0..moving.n_nodes as u32).collect();
    let mut greedy =
        Greedy { moving, order: &order, budget, barred: Vec::new(), best: None, lowest: i64::MAX };
    for power in COST_POWERS {
        for margin in MARGINS {
            if greedy.best.is_none() || limits.spend(0.0) {
                greedy.offer(power, margin, &LEADS, limits);
            }
        }
    }
    greedy.exchange(limits);
    greedy.best.map(|best| best.moved).ok_or(greedy.lowest)
}

/// The best choice so far, with its settings.
struct Best {
    moved: Moved,
    power: f64,
    margin: f64,
    lead: f64,
    spans: Vec<Span>,
    is_moved: Vec<bool>,
}

/// Choices and what came of them.
struct Greedy<'a> {
    moving: &'a Moving<'a>,
    order: &'a [u32],
    budget: i64,
    /// Spans that are kept.
    barred: Vec<usize>,
    best: Option<Best>,
    lowest: i64,
}

impl Greedy<'_> {
    /// Tries one score; says whether the result is the best so far.
    fn offer(&mut self, power: f64, margin: f64, leads: &[f64], limits: &mut Limits) -> bool {
        let mut spans = Spans::new(self.moving, self.order, self.budget);
        // A plan that keeps everything always exists.
        let kept_all = spans.memory.iter().copied().max().unwrap_or(self.moving.flat.fixed);
        self.lowest = self.lowest.min(kept_all);
        self.barred.iter().for_each(|&at| spans.is_barred[at] = true);
        let (sequence, work) = spans.relieve(power, margin);
        limits.spend(work);
        let base_cost = self.moving.problem.base_cost();
        let mut is_best = false;
        for &lead in leads {
            limits.spend(WORK_PER_SLOT * sequence.len() as f64);
            let table = timetable(self.moving, &sequence, self.budget, lead * base_cost);
            let Some(timetable) = table else { continue };
            self.lowest = self.lowest.min(timetable.peak);
            let is_better = self
                .best
                .as_ref()
                .is_none_or(|best| timetable.cost < best.moved.timetable.cost * (1.0 - 1e-9));
            if timetable.peak <= self.budget && is_better {
                let moved = Moved { sequence: sequence.clone(), timetable };
                let is_moved = (0..spans.list.len()).map(|at| spans.is_moved(at)).collect();
                let spans = spans.list.clone();
                self.best = Some(Best { moved, power, margin, lead, spans, is_moved });
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
            let (power, margin, lead) = (best.power, best.margin, best.lead);
            let Some(&(_, at)) = spans.iter().reduce(|a, b| if b.0 > a.0 { b } else { a }) else { return };
            tried.push(at);
            self.barred.push(at);
            if !self.offer(power, margin, &[lead], limits) {
                self.barred.pop();
            }
        }
    }
}
