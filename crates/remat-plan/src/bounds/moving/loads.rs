//! What it takes to bring each value across a cut through a store: copies before the cut and after it.
//!
//! The time before the first run of a node is at least the work of the program there and at least the load of each
//! channel there; so is the time after it. Each of these is a *row*. A copy on a channel that does not overlap is work of the
//! program. A channel has several rows on each side, because a copy out begins after its value was made and a copy in ends before
//! its value is read: with a *margin* m, the time is at least m plus the copies of values that are made no earlier than m, or
//! after whose first read the program has at least m to do.

use crate::ids::ValueId;
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::flat::NONE;
use crate::schedule::precedence::Precedence;
use crate::spec::Way;

/// Rows of each channel and side.
const MOST_MARGINS: usize = 4;
/// Up to this many nodes the work before and after each is counted exactly.
const MOST_COUNTED: usize = 2_000;

/// A way of a value through a store: what it adds to which rows.
pub(super) struct Route {
    pub(super) store: usize,
    pub(super) loads: Vec<(usize, f64)>,
}

/// The rows of a cut: for before and after the work of the program, then the margins of each channel.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    n_channels: usize,
    /// For before and for after, ascending, the first one zero.
    margins: [Vec<f64>; 2],
    /// Cost of the node at the cut, which every copy after the cut comes after.
    own: f64,
}

impl Rows {
    pub(super) fn len(n_channels: usize) -> usize {
        2 * Rows::of_side(n_channels)
    }

    fn of_side(n_channels: usize) -> usize {
        1 + n_channels * MOST_MARGINS
    }

    /// The work of the program before the cut.
    pub(super) const PROGRAM_BEFORE: usize = 0;

    /// The work of the program after the cut.
    pub(super) fn program_after(n_channels: usize) -> usize {
        Rows::of_side(n_channels)
    }

    /// What each row of a channel has without any copy.
    pub(super) fn constants(&self) -> Vec<f64> {
        let mut constants = vec![0.0; Rows::len(self.n_channels)];
        for (side, margins) in self.margins.iter().enumerate() {
            let own = if side == 1 { self.own } else { 0.0 };
            for channel in 0..self.n_channels {
                for (i, margin) in margins.iter().enumerate() {
                    constants[self.row(channel, side, i)] = margin + own;
                }
            }
        }
        constants
    }

    fn row(&self, channel: usize, side: usize, margin: usize) -> usize {
        side * Rows::of_side(self.n_channels) + 1 + channel * MOST_MARGINS + margin
    }
}

/// The side of the cut on which nodes have their first run in every plan.
pub(super) struct Sides {
    pub(super) at: usize,
    pub(super) is_before: Vec<bool>,
    pub(super) is_after: Vec<bool>,
}

/// The ways of each value of the problem; none for values that stay.
pub(super) struct Routes<'a> {
    problem: &'a Problem,
    flat: &'a Flat,
    /// The partner of each value in `carries`: of inputs the output, of outputs the input.
    carried_to: Vec<Option<ValueId>>,
    carried_from: Vec<Option<ValueId>>,
    /// What the program does in every plan before the first run of each node ends, and from its beginning on.
    until: Vec<f64>,
    from: Vec<f64>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(problem: &'a Problem, flat: &'a Flat, order: &Precedence) -> Routes<'a> {
        let mut carried_to = vec![None; flat.n_values()];
        let mut carried_from = vec![None; flat.n_values()];
        for &(input, output) in &problem.carries {
            if problem.value(input).swap && problem.value(output).swap {
                carried_to[input.index()] = Some(output);
                carried_from[output.index()] = Some(input);
            }
        }
        let n_nodes = flat.n_nodes();
        let (mut until, mut from) = (vec![0.0f64; n_nodes], vec![0.0f64; n_nodes]);
        if n_nodes <= MOST_COUNTED {
            let sum = |side: Vec<bool>| (0..n_nodes).filter(|&n| side[n]).map(|n| flat.cost[n]).sum::<f64>();
            for n in 0..n_nodes {
                until[n] = sum(order.ancestors(n)) + flat.cost[n];
                from[n] = sum(order.descendants(n));
            }
        } else {
            // The longest path is a part of it.
            let longest =
                |nodes: &[u32], of: &[f64]| nodes.iter().map(|&m| of[m as usize]).fold(0.0, f64::max);
            for n in 0..n_nodes {
                until[n] = longest(order.earlier(n), &until) + flat.cost[n];
            }
            for n in (0..n_nodes).rev() {
                from[n] = longest(order.later(n), &from) + flat.cost[n];
            }
        }
        Routes { problem, flat, carried_to, carried_from, until, from }
    }

    /// When a value is made at the earliest.
    fn made(&self, v: usize) -> f64 {
        match self.flat.producer[v] {
            NONE => 0.0,
            maker => self.until[maker as usize],
        }
    }

    /// What the program has to do at least after a value that is not live at the cut has become live.
    fn rest(&self, v: usize, sides: &Sides) -> f64 {
        self.readers_after(v, sides).map(|n| self.from[n]).fold(0.0, f64::max)
    }

    fn readers_after(&self, v: usize, sides: &Sides) -> impl Iterator<Item = usize> {
        let readers = self.flat.readers.get(v).iter().map(|&n| n as usize);
        readers.filter(|&n| n != sides.at && sides.is_after[n])
    }

    /// The rows of a cut that some values may cross.
    pub(super) fn rows(&self, values: &[u32], sides: &Sides) -> Rows {
        let margins_of = |time: &dyn Fn(usize) -> f64| {
            let mut times: Vec<f64> = values.iter().map(|&v| time(v as usize)).collect();
            times.push(0.0);
            times.sort_unstable_by(f64::total_cmp);
            times.dedup();
            let n_margins = times.len().min(MOST_MARGINS);
            (0..n_margins).map(|i| times[i * times.len() / n_margins]).collect::<Vec<_>>()
        };
        // What no plan undercuts is the cost of the ancestors, also where the maker of a value is none of them.
        let before: f64 = self.until[sides.at] - self.flat.cost[sides.at];
        Rows {
            n_channels: self.problem.channels.len(),
            margins: [margins_of(&|v| self.made(v).min(before)), margins_of(&|v| self.rest(v, sides))],
            own: self.flat.cost[sides.at],
        }
    }

    /// The ways of a value that is needed after the cut. Every plan in which it is neither live at the cut nor made
    /// after it has at least the copies of one of them.
    pub(super) fn of(&self, v: usize, rows: &Rows, sides: &Sides) -> Vec<Route> {
        if !self.problem.values[v].swap {
            return Vec::new();
        }
        // A reader after the cut needs it in memory; a carried output may be in its store at the end.
        let is_read_after = self.readers_after(v, sides).next().is_some();
        let is_read_before = self.flat.readers.get(v).iter().any(|&n| sides.is_before[n as usize]);
        let comes_back = is_read_after || self.carried_from[v].is_none();
        let stores = 0..self.problem.stores.len();
        let mut routes = Vec::new();
        let (made, rest) = (self.made(v), self.rest(v, sides));
        for store in stores.clone() {
            let back: Vec<(usize, f64)> = match comes_back {
                true => self.copy(v, store, Way::In, rows, 1, rest).collect(),
                false => Vec::new(),
            };
            let out = self.copy(v, store, Way::Out, rows, 0, made);
            routes.push(Route { store, loads: out.chain(back.iter().copied()).collect() });
            let Some(partner) = self.carried_to[v] else { continue };
            // It was in the store at the start. Then its partner is there at the end.
            let mut loads = back;
            let maker = self.flat.producer[partner.index()];
            if maker != NONE && sides.is_after[maker as usize] {
                loads.extend(self.copy(partner.index(), store, Way::Out, rows, 1, 0.0));
            }
            if !is_read_before {
                routes.push(Route { store, loads });
                continue;
            }
            // A reader before the cut needed it, from this store or from another that had it at the start too.
            for other in stores.clone() {
                let first = self.copy(v, other, Way::In, rows, 0, 0.0);
                routes.push(Route { store, loads: loads.iter().copied().chain(first).collect() });
            }
        }
        routes
    }

    /// What a copy adds on one side of the cut to the rows with a margin of up to `most`.
    fn copy(
        &self,
        v: usize,
        store: usize,
        way: Way,
        rows: &Rows,
        side: usize,
        most: f64,
    ) -> impl Iterator<Item = (usize, f64)> {
        let link = self.problem.stores[store].link(way);
        let time = link.cost(self.problem.values[v].bytes);
        let channel = link.channel.index();
        let program = side * Rows::of_side(rows.n_channels);
        let overlaps = self.problem.channels[channel].overlaps;
        let margins =
            rows.margins[side].iter().enumerate().filter(move |(_, margin)| overlaps && **margin <= most);
        let of_channel = margins.map(move |(i, _)| rows.row(channel, side, i));
        of_channel
            .chain((!overlaps).then_some(program))
            .map(move |row| (row, time))
            .collect::<Vec<_>>()
            .into_iter()
    }
}
