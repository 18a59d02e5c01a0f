//! The policy with both of its halves: swap what can be hidden, recompute the rest.
//!
//! While the peak exceeds the budget, the values that are live at the peak step and not used there are the candidates. The one that is
//! inactive for the longest time is the candidate to swap, at the price of the stall that cannot be hidden; the one with
//! the largest ratio of bytes to recompute cost is the candidate to recompute. The cheaper decision of the two is
//! taken, measured exactly, and undone when it makes the peak higher. A copy in is hidden under the computing time between the peak and its
//! reader that no other copy of its channel has taken. Time: O(n) for each decision.

use super::{Chains, UNIT_WORK};
use crate::answer::{not_reached, outcome_moving};
use crate::outcome::{Outcome, StopReason};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::NONE;
use crate::schedule::gaps::{Gap, Schedule, keep_all, schedule_moving};
use crate::schedule::limits::Limits;
use crate::schedule::moving::Moving;
use crate::schedule::moving::timetable::timetable;

/// How early copies in may begin, as parts of the cost of the step.
const LEADS: [f64; 3] = [0.01, 0.1, 1.0];

pub(super) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let moving = Moving::new(problem);
    let mut limits = Limits::new(request, UNIT_WORK);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    let mut policy = Policy::new(&moving);
    let peak = policy.run(budget, &mut limits);
    if peak > budget {
        return not_reached(problem, request, peak);
    }
    let mut sequence = std::mem::take(&mut policy.now.computes);
    moving.flat.prune(&mut sequence);
    let tables =
        LEADS.iter().filter_map(|lead| timetable(&moving, &sequence, budget, lead * problem.base_cost()));
    match tables.reduce(|a, b| if b.cost < a.cost { b } else { a }) {
        Some(table) => {
            let stop = StopReason::BudgetMet;
            outcome_moving(problem, request, "mu-two", table, stop, None)
        }
        // A store is too small for what was moved there; keeping everything needs none.
        None => not_reached(problem, request, policy.kept_all),
    }
}

/// A decision and what it costs.
#[derive(Clone, Copy)]
struct Candidate {
    /// The gap, or `NONE` for an output after its last use.
    gap: u32,
    value: u32,
    /// The store to move to, or `NONE` to recompute.
    store: u32,
    overhead: f64,
    score: f64,
    /// The node of the order before which the value could leave.
    since: u32,
}

struct Policy<'a> {
    moving: &'a Moving<'a>,
    gaps: Vec<Gap>,
    last: Vec<u32>,
    now: Schedule,
    kept_all: i64,
    /// The time before each node of the order, and the stretches that copies in have taken of each channel.
    before: Vec<f64>,
    taken: Vec<Vec<(f64, f64)>>,
    /// What each store holds if everything that moves is there at once.
    filled: Vec<u64>,
}

impl<'a> Policy<'a> {
    fn new(moving: &'a Moving<'a>) -> Policy<'a> {
        let flat = &moving.flat;
        let mut before = vec![0.0];
        for n in 0..moving.n_nodes {
            before.push(before[n] + flat.cost[n]);
        }
        Policy {
            moving,
            gaps: keep_all(flat),
            last: vec![NONE; moving.n_values],
            now: Schedule::default(),
            kept_all: flat.fixed,
            before,
            taken: vec![Vec::new(); moving.problem.channels.len()],
            filled: vec![0; moving.n_stores],
        }
    }

    /// Decides until the peak is within the budget or nothing is left; the peak.
    fn run(&mut self, budget: i64, limits: &mut Limits) -> i64 {
        let moving = self.moving;
        let mut scratch = Vec::new();
        let mut chains = Chains::new(&moving.flat);
        self.now = schedule_moving(moving, &self.gaps, &self.last).expect("nothing is recomputed");
        let mut measure = moving.flat.measure(&self.now.computes, &mut scratch);
        self.kept_all = measure.peak.max(moving.flat.fixed);
        // Gaps and the ends of values, twice each: against moving and against recomputing.
        let n_gaps = self.gaps.len();
        let mut barred = [vec![false; n_gaps + moving.n_values], vec![false; n_gaps + moving.n_values]];
        let mut has_changed = false;
        while measure.peak > budget && moving.n_nodes > 0 {
            let candidates = self.candidates(measure.at, &barred, &mut chains, &mut scratch);
            if !limits.spend(chains.take_work() + 20.0 * self.now.computes.len() as f64) {
                break;
            }
            let best = |swaps: bool| {
                let of_kind = candidates.iter().filter(|candidate| (candidate.store != NONE) == swaps);
                of_kind.reduce(|a, b| if b.score > a.score { b } else { a })
            };
            let taken = match (best(true), best(false)) {
                (Some(swap), Some(again)) => *if swap.overhead <= again.overhead { swap } else { again },
                (swap, again) => match swap.or(again) {
                    Some(one) => *one,
                    None if std::mem::take(&mut has_changed) => {
                        barred.iter_mut().for_each(|barred| barred.fill(false));
                        continue;
                    }
                    None => break,
                },
            };
            let peak = self.now.serves[measure.at];
            let undo = self.decide(taken);
            let next = schedule_moving(moving, &self.gaps, &self.last);
            let next = next.map(|next| (moving.flat.measure(&next.computes, &mut scratch), next));
            match next {
                Some((better, next)) if better.peak <= measure.peak => {
                    (self.now, measure) = (next, better);
                    has_changed = true;
                    self.reserve(taken, peak);
                }
                _ => {
                    for (place, gap, node) in undo {
                        match place {
                            Place::Gap(at) => self.gaps[at] = gap,
                            Place::Last(v) => self.last[v] = node,
                        }
                    }
                }
            }
            // Moved once is decided; what was recomputed but shared may be dropped again.
            let key = if taken.gap == NONE { n_gaps + taken.value as usize } else { taken.gap as usize };
            let is_final = taken.gap == NONE || !matches!(self.gaps[taken.gap as usize], Gap::Share);
            if is_final {
                barred[usize::from(taken.store == NONE)][key] = true;
            }
        }
        measure.peak
    }

    /// What can leave memory at the peak.
    fn candidates(
        &self,
        at: usize,
        barred: &[Vec<bool>; 2],
        chains: &mut Chains,
        scratch: &mut Vec<bool>,
    ) -> Vec<Candidate> {
        let flat = &self.moving.flat;
        let (running, serves) = (self.now.computes[at] as usize, self.now.serves[at]);
        let mut found = Vec::new();
        flat.walk_back(&self.now.computes, scratch, |i, _, needed| {
            if i > at {
                return true;
            }
            for v in (0..self.moving.n_values).filter(|&v| needed[v] && flat.bytes[v] > 0) {
                if flat.inputs.get(running).contains(&(v as u32)) {
                    continue;
                }
                let reads = flat.readers.get(v);
                let next =
                    reads.partition_point(|&n| n < serves || (n == serves && running == serves as usize));
                let gap = (next < reads.len()).then(|| flat.readers.range(v).start + next);
                let key = gap.unwrap_or(self.gaps.len() + v);
                if !barred[0][key] {
                    found.extend(self.swap(v as u32, gap, next, serves));
                }
                let Some(gap) = gap.filter(|_| !flat.lasting[v] && !barred[1][key]) else { continue };
                if matches!(self.gaps[gap], Gap::Keep | Gap::Share) {
                    let overhead = chains.cost(flat, &self.gaps, v, reads[next]);
                    let score = flat.bytes[v] as f64 / overhead;
                    let (gap, value) = (gap as u32, v as u32);
                    found.push(Candidate { gap, value, store: NONE, overhead, score, since: 0 });
                }
            }
            false
        });
        found
    }

    /// Moving a value over the peak: the store with the smallest stall.
    fn swap(&self, v: u32, gap: Option<usize>, next: usize, serves: u32) -> Option<Candidate> {
        let flat = &self.moving.flat;
        let is_kept = gap.map_or(self.last[v as usize] == NONE, |gap| self.gaps[gap] == Gap::Keep);
        if !is_kept || !flat.is_output[v as usize] && gap.is_none() {
            return None;
        }
        let reads = flat.readers.get(v as usize);
        let n_nodes = self.moving.n_nodes as u32;
        let until = gap.map_or(n_nodes, |_| reads[next]);
        let made = flat.producer[v as usize];
        let since = if next > 0 {
            reads[next - 1] + 1
        } else if made == NONE {
            0
        } else {
            made + 1
        };
        let inactive = self.before[until as usize] - self.before[(since as usize).min(until as usize)];
        let stall = |s: u32| self.copy_out(v, s, gap, since, serves).0 + self.copy_in(v, s, gap, serves).0;
        let has_space = |&s: &u32| {
            let filled = self.filled[s as usize] + flat.bytes[v as usize] as u64;
            self.moving.problem.stores[s as usize].capacity_bytes.is_none_or(|most| filled <= most.0)
        };
        let stores = self.moving.stores_of(v).filter(has_space);
        let store = stores.min_by(|&a, &b| stall(a).total_cmp(&stall(b)))?;
        let stall = stall(store);
        let gap = gap.map_or(NONE, |gap| gap as u32);
        Some(Candidate { gap, value: v, store, overhead: stall, score: inactive, since })
    }

    /// The stall of the copy in of a decision, and the stretch that it takes.
    fn copy_in(&self, v: u32, s: u32, gap: Option<usize>, peak: u32) -> (f64, (f64, f64)) {
        let flat = &self.moving.flat;
        let input = self.moving.carries[v as usize];
        match gap {
            Some(gap) => self.hidden(v, s, peak, flat.readers.item(gap)),
            // State that rests comes back for its first reader, whose copy can begin with the step.
            None if input != NONE => match flat.readers.get(input as usize).first() {
                Some(&reader) => self.hidden(input, s, 0, reader),
                None => (0.0, (0.0, 0.0)),
            },
            None => self.hidden(v, s, peak, self.moving.n_nodes as u32),
        }
    }

    /// What of the copy out of a decision cannot be hidden: before the peak, or for state that rests before the end of the step.
    fn copy_out(&self, v: u32, s: u32, gap: Option<usize>, since: u32, peak: u32) -> (f64, (f64, f64)) {
        let moving = self.moving;
        let is_first = gap == Some(moving.flat.readers.range(v as usize).start);
        let output = if gap.is_none() {
            v
        } else if is_first {
            moving.carried_by[v as usize]
        } else {
            NONE
        };
        let rests = output != NONE && moving.rest_node[output as usize] != NONE;
        let (from, until) = if rests {
            let made = moving.flat.producer[output as usize];
            (if made == NONE { 0 } else { made + 1 }, moving.n_nodes as u32)
        } else {
            (since, peak.max(since))
        };
        let channel = moving.problem.stores[s as usize].out.channel.index();
        let cost = moving.out_cost(v, s);
        if !moving.problem.channels[channel].overlaps {
            return (0.0, (0.0, 0.0));
        }
        let mut start = self.before[from as usize];
        for &(begin, end) in &self.taken[channel] {
            if begin < start + cost && end > start {
                start = end;
            }
        }
        ((start + cost - self.before[until as usize]).max(0.0), (start, start + cost))
    }

    /// Algorithm C: what of a copy in cannot be hidden between the peak and its reader, and the stretch that it takes.
    fn hidden(&self, v: u32, s: u32, peak: u32, reader: u32) -> (f64, (f64, f64)) {
        let link = &self.moving.problem.stores[s as usize].back;
        let channel = link.channel.index();
        let cost = self.moving.back_cost(v, s);
        let end = self.before[reader as usize];
        if !self.moving.problem.channels[channel].overlaps {
            return (cost + self.moving.out_cost(v, s), (end, end));
        }
        let earliest = self.before[(peak as usize + 1).min(self.before.len() - 1)];
        // Backwards from the reader, over the stretches that are taken; they are in order of time.
        let mut free_until = end;
        for &(from, to) in self.taken[channel].iter().rev() {
            if to <= free_until - cost || from >= free_until {
                if from >= free_until {
                    continue;
                }
                break;
            }
            free_until = from;
        }
        let start = (free_until - cost).max(earliest.min(end));
        let stall = (cost - (free_until - start).max(0.0)).max(0.0);
        (stall, (start.min(free_until), free_until))
    }

    /// Takes the stretches of the channels that the copies of a decision need.
    fn reserve(&mut self, taken: Candidate, peak: u32) {
        let Candidate { value, store, .. } = taken;
        if store == NONE {
            return;
        }
        self.filled[store as usize] += self.moving.flat.bytes[value as usize] as u64;
        let gap = (taken.gap != NONE).then_some(taken.gap as usize);
        let back = self.copy_in(value, store, gap, peak).1;
        let out = self.copy_out(value, store, gap, taken.since, peak).1;
        let links = &self.moving.problem.stores[store as usize];
        for (channel, stretch) in [(links.back.channel.index(), back), (links.out.channel.index(), out)] {
            let list = &mut self.taken[channel];
            let at = list.partition_point(|other| other.0 < stretch.0);
            if stretch.1 > stretch.0 {
                list.insert(at, stretch);
            }
        }
    }

    /// Carries a decision out; what was there before.
    fn decide(&mut self, taken: Candidate) -> Vec<(Place, Gap, u32)> {
        let mut undo = Vec::new();
        let moving = self.moving;
        if taken.store == NONE {
            let at = taken.gap as usize;
            undo.push((Place::Gap(at), self.gaps[at], NONE));
            self.gaps[at] = if self.gaps[at] == Gap::Keep { Gap::Share } else { Gap::Drop };
            return undo;
        }
        let v = taken.value as usize;
        // State rests on both sides of the step.
        let (input, output) = match taken.gap {
            NONE => (moving.carries[v], taken.value),
            gap if gap as usize == moving.flat.readers.range(v).start => (taken.value, moving.carried_by[v]),
            _ => (NONE, NONE),
        };
        if taken.gap != NONE {
            let at = taken.gap as usize;
            undo.push((Place::Gap(at), self.gaps[at], NONE));
            self.gaps[at] = Gap::Move(taken.store);
        }
        if input != NONE && output != NONE && moving.rest_node[output as usize] != NONE {
            let w = output as usize;
            undo.push((Place::Last(w), Gap::Keep, self.last[w]));
            self.last[w] = moving.rest_node[w];
            let first = moving.flat.readers.range(input as usize);
            if taken.gap == NONE && !first.is_empty() && self.gaps[first.start] == Gap::Keep {
                undo.push((Place::Gap(first.start), Gap::Keep, NONE));
                self.gaps[first.start] = Gap::Move(taken.store);
            }
        } else if taken.gap == NONE {
            undo.push((Place::Last(v), Gap::Keep, self.last[v]));
            self.last[v] = moving.in_node(taken.value, taken.store).unwrap_or(NONE);
        }
        undo
    }
}

/// Where a decision is written down.
enum Place {
    Gap(usize),
    Last(usize),
}
