//! A lower bound on the cost of every plan within a budget: several cuts through time at once.
//!
//! Take nodes c(1), c(2), ..., c(K), each an ancestor of the next, so that their first runs come in this order in every plan. They
//! divide the step into intervals 0, ..., K. With run(i, n) = 1 if n runs in interval i, and keep(i, v) = 1 if v is
//! live at the first run of c(i), the beginning of interval i:
//!
//! - a run needs its inputs: each was kept or is made in the interval, `keep(i, v) + run(i, maker v) >= run(i, n)`;
//! - what is kept was there before: `keep(i-1, v) + run(i-1, maker v) >= keep(i, v)`;
//! - what is live at c(i) fits beside its operands: `bytes · keep(i) <= room(i)`;
//! - every node runs: `run(0, n) + ... + run(K, n) >= 1`, in the intervals where precedence allows it.
//!
//! The cheapest choice bounds every plan from below. One cut alone is the bound of one_cut.rs; here a value that is needed
//! again and again between tight moments is paid for again and again.
//!
//! As a linear programme this is weak in two respects. Half a run in each of two intervals costs no more than one run: so the
//! rules above are also stated for two neighbouring intervals as one, and for all intervals from one on, with runs that are at
//! most the sum of theirs; then a cut more at the end never weakens the bound. And a fraction of a value fills the room to
//! the last byte: so the room is also stated in units of the larger values, rounded to whole numbers. The rest is branch
//! and bound.
//!
//! Which cuts: cut_chain.rs. The bound holds for every order of execution. Mathematics: docs/bounds/several-cuts.md.

use crate::bounds::one_cut::{Cuts, room_at};
use crate::bounds::simplex::{Doubt, Programme, Row, Solved};
use crate::schedule::flat::{Flat, NONE};
use crate::schedule::limits::Limits;

/// Programmes with a larger dictionary are not worth building.
const MOST_ENTRIES: usize = 6_000_000;
/// Rows in units of the largest values, for every cut.
const ROUNDED_ROWS: usize = 6;
/// When a variable is chosen to branch on: gains in units of the cost of a node, and the weight of one that keeps nothing.
const LEAST_GAIN: f64 = 1e-3;
const MOST_GAIN: f64 = 1e3;
const SMALL_WEIGHT: f64 = 1e-3;

/// A variable of the programme, or a constant where the precedence of nodes decides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Choice {
    No,
    Yes,
    Open(u32),
}

/// The programme of a chain of cuts.
pub(crate) struct SeveralCuts {
    programme: Programme,
    /// Cost of what runs in any case, above one run of every node.
    certain: f64,
    /// For each variable, the size of the value that it keeps, as a share of the largest.
    weight: Vec<f64>,
    /// A typical cost of running a node.
    scale: f64,
    open: Vec<Branch>,
}

/// The rows and costs while they are collected.
#[derive(Default)]
pub(super) struct Builder {
    cost: Vec<f64>,
    weight: Vec<f64>,
    pub(super) rows: Vec<Row>,
}

/// The weight of a variable that need not be whole.
pub(super) const CONTINUOUS: f64 = -1.0;

impl Builder {
    pub(super) fn open(&mut self, cost: f64, weight: f64) -> Choice {
        self.cost.push(cost);
        self.weight.push(weight);
        Choice::Open(self.cost.len() as u32 - 1)
    }

    /// The sum of `options` is at least `need`.
    pub(super) fn cover(&mut self, need: Choice, options: &[Choice]) {
        if need == Choice::No || options.iter().any(|&option| option == Choice::Yes || option == need) {
            return;
        }
        let mut terms: Vec<(u32, f64)> = Vec::new();
        for option in options {
            if let Choice::Open(x) = *option {
                terms.push((x, 1.0));
            }
        }
        let at_least = match need {
            Choice::Open(x) => {
                terms.push((x, -1.0));
                0.0
            }
            _ => 1.0,
        };
        self.rows.push(Row { terms, at_least });
    }

    /// The kept values fit into the room. Their sizes in units of one of them, rounded to whole numbers (mixed-integer
    /// rounding), say the same of whole choices but more of fractions.
    pub(super) fn fit(&mut self, kept: &[(u32, i64)], room: i64) {
        let row = |size: &dyn Fn(i64) -> f64, room: f64| {
            let terms = kept.iter().map(|&(x, bytes)| (x, -size(bytes))).filter(|term| term.1 != 0.0);
            Row { terms: terms.collect(), at_least: -room }
        };
        let whole = room.max(1) as f64;
        self.rows.push(row(&|bytes| bytes as f64 / whole, room as f64 / whole));
        let mut units: Vec<i64> =
            kept.iter().map(|&(_, bytes)| bytes).filter(|&bytes| 0 < bytes && bytes <= room).collect();
        units.sort_unstable_by(|a, b| b.cmp(a));
        units.dedup();
        for unit in units.into_iter().take(ROUNDED_ROWS) {
            let n_fitting = room / unit;
            let rest = (room % unit) as f64 / unit as f64;
            if rest == 0.0 {
                continue;
            }
            let rounded = |bytes: i64| {
                let part = (bytes % unit) as f64 / unit as f64;
                (bytes / unit) as f64 + (part - rest).max(0.0) / (1.0 - rest)
            };
            let scale = 1.0 / n_fitting as f64;
            self.rows.push(row(&|bytes| scale * rounded(bytes), 1.0));
        }
    }
}

/// The chain of nodes, and what precedence says about the intervals between their first runs: interval i begins with the
/// first run of `chain[i - 1]`.
pub(super) struct Intervals<'a> {
    pub(super) flat: &'a Flat,
    chain: &'a [usize],
    ancestors: Vec<Vec<bool>>,
    descendants: Vec<Vec<bool>>,
}

impl<'a> Intervals<'a> {
    /// Nothing when the nodes are no chain.
    pub(super) fn new(cuts: &'a Cuts, chain: &'a [usize]) -> Option<Intervals<'a>> {
        let ancestors: Vec<Vec<bool>> = chain.iter().map(|&c| cuts.order.ancestors(c)).collect();
        let descendants = chain.iter().map(|&c| cuts.order.descendants(c)).collect();
        let is_chain = (1..chain.len()).all(|i| ancestors[i][chain[i - 1]]);
        is_chain.then_some(Intervals { flat: cuts.flat, chain, ancestors, descendants })
    }

    pub(super) fn n_cuts(&self) -> usize {
        self.chain.len()
    }

    /// Whether a node has run before interval `i` in every plan.
    fn has_run(&self, i: usize, n: usize) -> bool {
        i > 0 && self.ancestors[i - 1][n]
    }

    /// Whether it runs for the first time after interval `i` in every plan.
    pub(super) fn is_later(&self, i: usize, n: usize) -> bool {
        i < self.n_cuts() && self.descendants[i][n]
    }

    /// Whether it has its first run in the intervals `first..=last` in every plan.
    pub(super) fn must_run(&self, first: usize, last: usize, n: usize) -> bool {
        let begins = first == 0 || self.descendants[first - 1][n];
        begins && (last == self.n_cuts() || self.ancestors[last][n])
    }

    fn may_run(&self, i: usize, n: usize) -> bool {
        let runs_once = self.flat.outputs.get(n).iter().all(|&v| self.flat.lasting[v as usize]);
        !(self.is_later(i, n) || self.has_run(i, n) && runs_once)
    }

    pub(super) fn maker(&self, v: usize) -> Option<usize> {
        let producer = self.flat.producer[v];
        (producer != NONE).then_some(producer as usize)
    }

    /// Which nodes and values can be of use in each interval: what must or may run there for the first time, what later
    /// intervals can make use of, and all that these need.
    pub(super) fn useful(&self) -> (Vec<Vec<bool>>, Vec<Vec<bool>>) {
        let flat = self.flat;
        let (n_cuts, n_values) = (self.n_cuts(), flat.n_values());
        let mut runs = vec![vec![false; flat.n_nodes()]; n_cuts + 1];
        let mut values = vec![vec![false; n_values]; n_cuts + 1];
        for i in (0..=n_cuts).rev() {
            let is_wanted = |v: usize| match values.get(i + 1) {
                Some(next) => next[v] && !self.maker(v).is_some_and(|n| self.is_later(i, n)),
                None => flat.is_output[v],
            };
            let mut wanted: Vec<u32> = (0..n_values as u32).filter(|&v| is_wanted(v as usize)).collect();
            for (n, is_useful) in runs[i].iter_mut().enumerate() {
                if self.may_run(i, n) && !self.has_run(i, n) {
                    *is_useful = true;
                    wanted.extend(flat.inputs.get(n));
                }
            }
            while let Some(v) = wanted.pop() {
                if std::mem::replace(&mut values[i][v as usize], true) {
                    continue;
                }
                if let Some(n) = self.maker(v as usize).filter(|&n| self.may_run(i, n))
                    && !std::mem::replace(&mut runs[i][n], true)
                {
                    wanted.extend(flat.inputs.get(n));
                }
            }
        }
        (runs, values)
    }
}

/// What is decided in each interval: which nodes run, and which values are kept into it.
pub(super) struct Decisions {
    pub(super) run: Vec<Vec<Choice>>,
    pub(super) keep: Vec<Vec<Choice>>,
    /// Cost of what runs in any case, above one run of every node.
    pub(super) certain: f64,
}

impl Decisions {
    /// The variables, and the rows about the room at each cut; nothing when a node of the chain alone does not fit.
    pub(super) fn new(intervals: &Intervals, budget: i64, builder: &mut Builder) -> Option<Decisions> {
        let flat = intervals.flat;
        let (useful_runs, useful_values) = intervals.useful();
        let mut certain = -flat.cost.iter().sum::<f64>();
        let (mut run, mut keep) = (Vec::new(), Vec::new());
        for i in 0..=intervals.n_cuts() {
            let of_node = |n: usize| {
                if intervals.must_run(i, i, n) {
                    certain += flat.cost[n];
                    Choice::Yes
                } else if useful_runs[i][n] {
                    builder.open(flat.cost[n], 0.0)
                } else {
                    Choice::No
                }
            };
            run.push((0..flat.n_nodes()).map(of_node).collect());
            let Some(at) = i.checked_sub(1) else {
                // At the beginning there are the inputs of the problem.
                let is_there = |&producer: &u32| if producer == NONE { Choice::Yes } else { Choice::No };
                keep.push(flat.producer.iter().map(is_there).collect());
                continue;
            };
            let node = intervals.chain[at];
            let room = room_at(flat, node, budget)?;
            let mut kept: Vec<(u32, i64)> = Vec::new();
            let of_value = |v: usize| {
                let maker = intervals.maker(v);
                let is_made = maker.is_none_or(|n| intervals.ancestors[at][n]);
                if maker.is_some_and(|n| intervals.descendants[at][n]) {
                    Choice::No
                } else if flat.inputs.get(node).contains(&(v as u32)) {
                    Choice::Yes
                } else if useful_values[i][v] && is_made && flat.bytes[v] == 0 {
                    // There is no reason to free it.
                    Choice::Yes
                } else if useful_values[i][v] {
                    let choice = builder.open(0.0, flat.bytes[v] as f64);
                    if let Choice::Open(x) = choice {
                        kept.push((x, flat.bytes[v]));
                    }
                    choice
                } else {
                    Choice::No
                }
            };
            keep.push((0..flat.n_values()).map(of_value).collect());
            builder.fit(&kept, room);
        }
        Some(Decisions { run, keep, certain })
    }

    /// What must be there for what runs and what is kept.
    fn cover(&self, intervals: &Intervals, builder: &mut Builder) {
        let (flat, n_cuts) = (intervals.flat, intervals.n_cuts());
        for i in 0..=n_cuts {
            let next = self.keep.get(i + 1);
            cover_needs(intervals, &self.run[i], &self.keep[i], next, builder);
        }
        for n in 0..flat.n_nodes() {
            let runs: Vec<Choice> = self.run.iter().map(|run| run[n]).collect();
            builder.cover(Choice::Yes, &runs);
        }
        for v in (0..flat.n_values()).filter(|&v| flat.is_output[v]) {
            let made = intervals.maker(v).map_or(Choice::No, |n| self.run[n_cuts][n]);
            builder.cover(Choice::Yes, &[self.keep[n_cuts][v], made]);
        }
    }

    /// The same for the intervals `first..=last` as one.
    fn unite(&self, intervals: &Intervals, first: usize, last: usize, builder: &mut Builder) {
        let of_node = |n: usize| {
            if intervals.must_run(first, last, n) {
                Choice::Yes
            } else if (first..=last).any(|i| self.run[i][n] != Choice::No) {
                builder.open(0.0, 0.0)
            } else {
                Choice::No
            }
        };
        let united: Vec<Choice> = (0..intervals.flat.n_nodes()).map(of_node).collect();
        for (n, &runs) in united.iter().enumerate() {
            let parts: Vec<Choice> = (first..=last).map(|i| self.run[i][n]).collect();
            builder.cover(runs, &parts);
        }
        cover_needs(intervals, &united, &self.keep[first], self.keep.get(last + 1), builder);
    }
}

/// In an interval: inputs of what runs, and what is kept into the next interval, were kept into this one or are made in it.
fn cover_needs(
    intervals: &Intervals,
    run: &[Choice],
    keep: &[Choice],
    next: Option<&Vec<Choice>>,
    builder: &mut Builder,
) {
    let made = |v: usize| intervals.maker(v).map_or(Choice::No, |n| run[n]);
    for (n, &runs) in run.iter().enumerate() {
        for &v in intervals.flat.inputs.get(n) {
            builder.cover(runs, &[keep[v as usize], made(v as usize)]);
        }
    }
    for (v, &is_kept) in next.into_iter().flatten().enumerate() {
        builder.cover(is_kept, &[keep[v], made(v)]);
    }
}

impl SeveralCuts {
    /// The programme for a chain of nodes; nothing when it is too large, when the nodes are no chain or when one of them
    /// alone does not fit.
    pub(crate) fn new(cuts: &Cuts, chain: &[usize]) -> Option<SeveralCuts> {
        let intervals = Intervals::new(cuts, chain)?;
        let mut builder = Builder::default();
        let decisions = Decisions::new(&intervals, cuts.budget, &mut builder)?;
        decisions.cover(&intervals, &mut builder);
        // Two neighbouring intervals as one, and all from one on.
        let n_cuts = chain.len();
        let pairs = (1..n_cuts).map(|i| (i, i + 1));
        let ends = (1..n_cuts.saturating_sub(1)).map(|i| (i, n_cuts));
        for (first, last) in pairs.chain(ends) {
            decisions.unite(&intervals, first, last, &mut builder);
        }
        SeveralCuts::of(builder, decisions.certain, cuts.flat)
    }

    /// The programme of these rows; nothing when it is too large.
    pub(super) fn of(builder: Builder, certain: f64, flat: &Flat) -> Option<SeveralCuts> {
        if builder.cost.len() * builder.rows.len() > MOST_ENTRIES {
            return None;
        }
        let Builder { cost, weight, rows } = builder;
        let heaviest = weight.iter().copied().fold(1.0, f64::max);
        Some(SeveralCuts {
            programme: Programme::new(cost, rows),
            certain,
            weight: weight.into_iter().map(|bytes| bytes / heaviest).collect(),
            scale: flat.cost.iter().sum::<f64>() / flat.n_nodes() as f64,
            open: vec![Branch { bound: 0.0, decisions: Vec::new(), is_whole: false }],
        })
    }

    /// The number of entries of the dictionary, which says how long everything takes.
    pub(crate) fn size(&self) -> usize {
        self.programme.size()
    }

    /// Continues the branch and bound: the smallest bound over all branches, at most `target`, which may differ from
    /// call to call.
    pub(crate) fn advance(&mut self, target: f64, limits: &mut Limits) -> f64 {
        loop {
            // Of equal bounds the last one: it is near to where the programme was solved last.
            let lowest = (0..self.open.len())
                .reduce(|a, b| if self.open[b].bound <= self.open[a].bound { b } else { a });
            let Some(at) = lowest.filter(|&at| self.open[at].bound < target) else { return target };
            let lowest = self.open[at].bound;
            if self.open[at].is_whole || !limits.spend(self.open.len() as f64) {
                return lowest;
            }
            let branch = self.open.swap_remove(at);
            let divided = self.divide(branch, target, limits);
            self.open.extend(divided);
        }
    }

    /// A branch with its bound, divided in two if that is below the target and does not belong to a whole choice.
    fn divide(&mut self, mut branch: Branch, target: f64, limits: &mut Limits) -> Vec<Branch> {
        for &(x, value) in &branch.decisions {
            self.programme.set_box(x, value, value);
        }
        let solved = self.programme.solve(target - self.certain, limits);
        let next = self.programme.doubts().filter_map(|doubt| Some((self.promise(doubt)?, doubt.variable)));
        let next = next.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        for &(x, _) in &branch.decisions {
            self.programme.set_box(x, 0.0, 1.0);
        }
        let (Solved::Bound(bound) | Solved::Stopped(bound)) = solved;
        branch.bound = branch.bound.max(bound + self.certain);
        let is_stopped = matches!(solved, Solved::Stopped(_));
        match next {
            Some((_, x)) if !is_stopped && branch.bound < target => [0.0, 1.0]
                .map(|value| {
                    let mut decisions = branch.decisions.clone();
                    decisions.push((x, value));
                    Branch { bound: branch.bound, decisions, is_whole: false }
                })
                .into(),
            _ => {
                branch.is_whole = !is_stopped && (branch.bound < target || branch.bound.is_infinite());
                vec![branch]
            }
        }
    }

    /// How promising it is to branch on a variable: by what the bound gains at once on both sides; where it gains nothing, by
    /// the size of the value. Nothing for variables that follow from others.
    fn promise(&self, doubt: Doubt) -> Option<f64> {
        let weight = self.weight[doubt.variable as usize];
        if weight < 0.0 || weight == 0.0 && self.programme.cost(doubt.variable) == 0.0 {
            return None;
        }
        let least = doubt.value.min(1.0 - doubt.value) * (weight + SMALL_WEIGHT);
        let [fall, rise] =
            doubt.gains.map(|gain| gain.min(MOST_GAIN * self.scale) + LEAST_GAIN * self.scale * least);
        Some(fall * rise)
    }
}

/// Decisions, with a bound that holds under them.
struct Branch {
    bound: f64,
    decisions: Vec<(u32, f64)>,
    /// The bound belongs to a whole choice, so nothing is left to decide.
    is_whole: bool,
}
