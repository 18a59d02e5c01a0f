//! Several cuts at once where values can be moved: the programme of several_cuts.rs with copies and with the time of channels.
//!
//! Beside run(i, n) and keep(i, v) there are, for each value that may move and each store s, with 1 for
//!
//! - start(v, s): v is in s at the start;
//! - present(i, v, s): v is in s at the beginning of interval i, or on its way there;
//! - begun(i, v, s): a copy to s is begun in interval i;
//! - back(i, v, s): v is not live at the beginning of interval i, and what first makes it live there is a copy from s;
//! - moved(i, v, s): v is not live at the beginning of interval i, and what makes it live next is a copy from s.
//!
//! The program waits stall(i) in interval i, which need not be whole. docs/bounds/moving.md has the rows and why they hold.

use crate::bounds::one_cut::Cuts;
use crate::bounds::several_cuts::{Builder, CONTINUOUS, Choice, Decisions, Intervals, SeveralCuts};
use crate::bounds::simplex::Row;
use crate::problem::Problem;
use crate::spec::Way;

/// For each interval and value one choice per store.
type PerStore = Vec<Vec<Vec<Choice>>>;

/// What is decided about copies.
struct Copies {
    start: Vec<Vec<Choice>>,
    present: PerStore,
    begun: PerStore,
    back: PerStore,
    moved: PerStore,
    stall: Vec<Choice>,
}

/// The programme while it is written.
struct Writer<'a> {
    problem: &'a Problem,
    intervals: &'a Intervals<'a>,
    decisions: Decisions,
    copies: Copies,
    /// The carried input of each carried output.
    carried_from: Vec<Option<usize>>,
    most_time: f64,
    builder: Builder,
}

/// The programme of a chain of nodes; nothing when it is too large, when the nodes are no chain or when one of them alone does
/// not fit. What it proves holds up to the cost `most_time`.
pub(super) fn chain_with_stores(
    problem: &Problem,
    cuts: &Cuts,
    chain: &[usize],
    most_time: f64,
) -> Option<SeveralCuts> {
    let intervals = Intervals::new(cuts, chain)?;
    let mut builder = Builder::default();
    let decisions = Decisions::new(&intervals, cuts.budget, &mut builder)?;
    let certain = decisions.certain;
    let mut carried_from = vec![None; problem.values.len()];
    for &(input, output) in &problem.carries {
        if problem.value(input).swap && problem.value(output).swap {
            carried_from[output.index()] = Some(input.index());
        }
    }
    let n_cuts = intervals.n_cuts();
    let none = || vec![vec![vec![Choice::No; problem.stores.len()]; problem.values.len()]; n_cuts + 2];
    let copies = Copies {
        start: vec![vec![Choice::No; problem.stores.len()]; problem.values.len()],
        present: none(),
        begun: none(),
        back: none(),
        moved: none(),
        stall: Vec::new(),
    };
    let mut writer =
        Writer { problem, intervals: &intervals, decisions, copies, carried_from, most_time, builder };
    writer.open_variables();
    writer.cover_needs();
    writer.cover_copies();
    writer.limit_stores();
    for channel in (0..problem.channels.len()).filter(|&c| problem.channels[c].overlaps) {
        (0..=n_cuts).for_each(|i| writer.limit_time_from(i, channel));
        (1..=n_cuts).for_each(|i| writer.limit_time_until(i, channel));
    }
    let pairs = (1..n_cuts).map(|i| (i, i + 1));
    let ends = (1..n_cuts.saturating_sub(1)).map(|i| (i, n_cuts));
    for (first, last) in pairs.chain(ends) {
        writer.unite(first, last);
    }
    SeveralCuts::of(writer.builder, certain, intervals.flat)
}

impl Writer<'_> {
    fn n_cuts(&self) -> usize {
        self.intervals.n_cuts()
    }

    fn n_stores(&self) -> usize {
        self.problem.stores.len()
    }

    fn movable(&self) -> impl Iterator<Item = usize> + use<> {
        let values: Vec<usize> =
            (0..self.problem.values.len()).filter(|&v| self.problem.values[v].swap).collect();
        values.into_iter()
    }

    /// What a copy takes, and its share that the program does itself.
    fn time(&self, v: usize, s: usize, way: Way) -> (f64, f64) {
        let link = self.problem.stores[s].link(way);
        let time = link.cost(self.problem.values[v].bytes);
        let overlaps = self.problem.channels[link.channel.index()].overlaps;
        (time, if overlaps { 0.0 } else { time })
    }

    fn open_variables(&mut self) {
        let (_, useful) = self.intervals.useful();
        let n_cuts = self.n_cuts();
        for output in 0..self.carried_from.len() {
            let Some(input) = self.carried_from[output] else { continue };
            // At the start it is in memory or in stores.
            let weight = self.problem.values[input].bytes.0 as f64;
            let kept = self.builder.open(0.0, 0.0);
            self.decisions.keep[0][input] = kept;
            for s in 0..self.n_stores() {
                let start = self.builder.open(0.0, weight);
                self.copies.start[input][s] = start;
                self.copies.present[0][input][s] = start;
                self.builder
                    .rows
                    .push(Row { terms: [kept, start].map(|x| term(x, -1.0)).into(), at_least: -1.0 });
            }
        }
        for v in self.movable() {
            let weight = self.problem.values[v].bytes.0 as f64;
            let is_later = |i: usize| self.intervals.maker(v).is_some_and(|n| self.intervals.is_later(i, n));
            let later: Vec<bool> = (0..=n_cuts).map(is_later).collect();
            for s in 0..self.n_stores() {
                for i in 0..=n_cuts {
                    // Its maker is a descendant of the cut, so it cannot be there already.
                    let exists = i == 0 || !later[i - 1];
                    if i > 0 && useful[i][v] && exists {
                        self.copies.present[i][v][s] = self.builder.open(0.0, 0.0);
                        self.copies.moved[i][v][s] = self.builder.open(0.0, 0.0);
                    }
                    if useful[i][v] && self.copies.present[i][v][s] != Choice::No {
                        let own = self.time(v, s, Way::In).1;
                        self.copies.back[i][v][s] = self.builder.open(own, weight);
                    }
                    let is_wanted = match i < n_cuts {
                        true => useful[i + 1][v],
                        false => self.carried_from[v].is_some(),
                    };
                    if is_wanted && !later[i] {
                        let own = self.time(v, s, Way::Out).1;
                        self.copies.begun[i][v][s] = self.builder.open(own, weight);
                    }
                }
            }
        }
        self.copies.moved[0] = self.copies.start.clone();
        self.copies.stall = (0..=n_cuts).map(|_| self.builder.open(self.most_time, CONTINUOUS)).collect();
    }

    /// What makes a value live in the intervals `first..=last`, whose runs are `run`.
    fn supply(&self, first: usize, last: usize, v: usize, run: &[Choice]) -> Vec<Choice> {
        let made = self.intervals.maker(v).map_or(Choice::No, |n| run[n]);
        let back = (first..=last).flat_map(|i| self.copies.back[i][v].iter().copied());
        [self.decisions.keep[first][v], made].into_iter().chain(back).collect()
    }

    fn supply_in(&self, i: usize, v: usize) -> Vec<Choice> {
        self.supply(i, i, v, &self.decisions.run[i])
    }

    /// Inputs of what runs and what is kept into the next interval; every node runs; outputs are there at the end.
    fn cover_needs(&mut self) {
        let (flat, n_cuts) = (self.intervals.flat, self.n_cuts());
        for i in 0..=n_cuts {
            let run = self.decisions.run[i].clone();
            self.cover_runs(i, i, &run);
        }
        for n in 0..flat.n_nodes() {
            let runs: Vec<Choice> = self.decisions.run.iter().map(|run| run[n]).collect();
            self.builder.cover(Choice::Yes, &runs);
        }
        for v in (0..flat.n_values()).filter(|&v| flat.is_output[v]) {
            let mut options = self.supply_in(n_cuts, v);
            if let Some(input) = self.carried_from[v] {
                options.extend(&self.copies.start[input]);
            }
            self.builder.cover(Choice::Yes, &options);
        }
    }

    fn cover_runs(&mut self, first: usize, last: usize, run: &[Choice]) {
        for (n, &runs) in run.iter().enumerate() {
            for &v in self.intervals.flat.inputs.get(n) {
                let options = self.supply(first, last, v as usize, run);
                self.builder.cover(runs, &options);
            }
        }
        let next = self.decisions.keep.get(last + 1).cloned().unwrap_or_default();
        for (v, &is_kept) in next.iter().enumerate() {
            let options = self.supply(first, last, v, run);
            self.builder.cover(is_kept, &options);
        }
    }

    /// Where copies come from.
    fn cover_copies(&mut self) {
        let n_cuts = self.n_cuts();
        for v in self.movable() {
            for i in 0..=n_cuts {
                let supply = self.supply_in(i, v);
                for s in 0..self.n_stores() {
                    let Copies { present, begun, back, moved, .. } = &self.copies;
                    self.builder.cover(back[i][v][s], &[present[i][v][s]]);
                    self.builder.cover(back[i][v][s], &[moved[i][v][s]]);
                    self.builder.cover(begun[i][v][s], &supply);
                    if i < n_cuts {
                        self.builder.cover(present[i + 1][v][s], &[present[i][v][s], begun[i][v][s]]);
                        let stays: Vec<Choice> = supply.iter().copied().chain([moved[i][v][s]]).collect();
                        self.builder.cover(moved[i + 1][v][s], &stays);
                    }
                }
            }
            let Some(input) = self.carried_from[v] else { continue };
            for s in 0..self.n_stores() {
                let options = [self.copies.present[n_cuts][v][s], self.copies.begun[n_cuts][v][s]];
                self.builder.cover(self.copies.start[input][s], &options);
            }
        }
    }

    /// What is in a store fits there.
    fn limit_stores(&mut self) {
        for (s, store) in self.problem.stores.iter().enumerate() {
            let Some(capacity) = store.capacity_bytes else { continue };
            for i in 0..=self.n_cuts() {
                let size = |v: usize| self.problem.values[v].bytes.0 as i64;
                let stored: Vec<(u32, i64)> = (0..self.problem.values.len())
                    .filter_map(|v| match self.copies.present[i][v][s] {
                        Choice::Open(x) => Some((x, size(v))),
                        _ => None,
                    })
                    .collect();
                if !stored.is_empty() {
                    self.builder.fit(&stored, capacity.0.min(i64::MAX as u64) as i64);
                }
            }
        }
    }

    /// The time of an interval: what the program does and how long it waits, as terms and a constant.
    fn time_of(&self, i: usize, terms: &mut Vec<(u32, f64)>) -> f64 {
        let mut certain = 0.0;
        for (n, &runs) in self.decisions.run[i].iter().enumerate() {
            match runs {
                Choice::Yes => certain += self.intervals.flat.cost[n],
                Choice::Open(x) => terms.push((x, self.intervals.flat.cost[n])),
                Choice::No => {}
            }
        }
        for v in 0..self.problem.values.len() {
            for s in 0..self.n_stores() {
                let both = [(Way::Out, &self.copies.begun), (Way::In, &self.copies.back)];
                for (way, choices) in both {
                    if let Choice::Open(x) = choices[i][v][s] {
                        terms.push((x, self.time(v, s, way).1));
                    }
                }
            }
        }
        terms.push(term(self.copies.stall[i], self.most_time));
        certain
    }

    /// Copies that are begun in an interval end between its beginning and the end of the step.
    fn limit_time_from(&mut self, first: usize, channel: usize) {
        let mut terms = Vec::new();
        let mut certain = 0.0;
        for i in first..=self.n_cuts() {
            certain += self.time_of(i, &mut terms);
            for v in 0..self.problem.values.len() {
                for s in 0..self.n_stores() {
                    let both = [(Way::Out, &self.copies.begun), (Way::In, &self.copies.back)];
                    for (way, choices) in both {
                        if let Choice::Open(x) = choices[i][v][s]
                            && self.problem.stores[s].link(way).channel.index() == channel
                        {
                            terms.push((x, -self.time(v, s, way).0));
                        }
                    }
                }
            }
        }
        self.push_time(terms, certain);
    }

    /// What is only in a store when an interval begins was copied there before, or was there at the start.
    fn limit_time_until(&mut self, end: usize, channel: usize) {
        let mut terms = Vec::new();
        let certain: f64 = (0..end).map(|i| self.time_of(i, &mut terms)).sum();
        for v in 0..self.problem.values.len() {
            for s in (0..self.n_stores())
                .filter(|&s| self.problem.stores[s].link(Way::Out).channel.index() == channel)
            {
                let Choice::Open(moved) = self.copies.moved[end][v][s] else { continue };
                let time = self.time(v, s, Way::Out).0;
                terms.push((moved, -time));
                if let Choice::Open(start) = self.copies.start[v][s] {
                    terms.push((start, time));
                }
            }
        }
        self.push_time(terms, certain);
    }

    fn push_time(&mut self, mut terms: Vec<(u32, f64)>, certain: f64) {
        let unit = self.most_time.max(f64::MIN_POSITIVE);
        terms.retain(|term| term.1 != 0.0);
        terms.iter_mut().for_each(|term| term.1 /= unit);
        self.builder.rows.push(Row { terms, at_least: -certain / unit });
    }

    /// The needs of the intervals `first..=last` as one, as in several_cuts.rs.
    fn unite(&mut self, first: usize, last: usize) {
        let mut united = Vec::new();
        for n in 0..self.intervals.flat.n_nodes() {
            let parts: Vec<Choice> = (first..=last).map(|i| self.decisions.run[i][n]).collect();
            let runs = if self.intervals.must_run(first, last, n) {
                Choice::Yes
            } else if parts.iter().any(|&part| part != Choice::No) {
                self.builder.open(0.0, 0.0)
            } else {
                Choice::No
            };
            self.builder.cover(runs, &parts);
            united.push(runs);
        }
        self.cover_runs(first, last, &united);
    }
}

/// A term of a row for a choice that is open.
fn term(choice: Choice, factor: f64) -> (u32, f64) {
    match choice {
        Choice::Open(x) => (x, factor),
        Choice::Yes | Choice::No => unreachable!("the choice was opened"),
    }
}
