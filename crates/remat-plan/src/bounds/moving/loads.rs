//! What it takes to bring each value across a cut through a store: copies before the cut and after it.
//!
//! The time before the first run of a node is at least the work of the program there and at least the load of each
//! channel there; so is the time after it. Each of these is a *row*: first the program, then the channels, for before and for
//! after. A copy on a channel that does not overlap is work of the program.

use crate::ids::ValueId;
use crate::problem::Problem;
use crate::schedule::flat::Flat;
use crate::schedule::flat::NONE;
use crate::spec::Way;

/// A way of a value through a store: what it adds to which rows.
pub(super) struct Route {
    pub(super) store: usize,
    pub(super) loads: Vec<(usize, f64)>,
}

/// Which rows there are.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    n_channels: usize,
}

impl Rows {
    pub(super) fn new(problem: &Problem) -> Rows {
        Rows { n_channels: problem.channels.len() }
    }

    pub(super) fn len(self) -> usize {
        2 * (1 + self.n_channels)
    }

    /// The work of the program before the cut.
    pub(super) const PROGRAM_BEFORE: usize = 0;

    /// The work of the program after the cut.
    pub(super) fn program_after(self) -> usize {
        1 + self.n_channels
    }

    /// Where the copies of a channel count.
    fn of(self, problem: &Problem, channel: usize, is_after: bool) -> usize {
        let program = if is_after { self.program_after() } else { Rows::PROGRAM_BEFORE };
        if problem.channels[channel].overlaps { program + 1 + channel } else { program }
    }
}

/// The side of the cut on which nodes have their first run in every plan.
pub(super) struct Sides {
    pub(super) is_before: Vec<bool>,
    pub(super) is_after: Vec<bool>,
}

/// The ways of each value of the problem; none for values that stay.
pub(super) struct Routes<'a> {
    problem: &'a Problem,
    flat: &'a Flat,
    rows: Rows,
    /// The partner of each value in `carries`: of inputs the output, of outputs the input.
    carried_to: Vec<Option<ValueId>>,
    carried_from: Vec<Option<ValueId>>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(problem: &'a Problem, flat: &'a Flat) -> Routes<'a> {
        let mut carried_to = vec![None; flat.n_values()];
        let mut carried_from = vec![None; flat.n_values()];
        for &(input, output) in &problem.carries {
            if problem.value(input).swap && problem.value(output).swap {
                carried_to[input.index()] = Some(output);
                carried_from[output.index()] = Some(input);
            }
        }
        Routes { problem, flat, rows: Rows::new(problem), carried_to, carried_from }
    }

    /// The ways of a value that is needed after the cut at node `at`. Every plan in which it is neither live at the cut nor made
    /// after it has at least the copies of one of them.
    pub(super) fn of(&self, v: usize, at: usize, sides: &Sides) -> Vec<Route> {
        if !self.problem.values[v].swap {
            return Vec::new();
        }
        let readers = self.flat.readers.get(v);
        // A reader after the cut needs it in memory; a carried output may be in its store at the end.
        let is_read_after = readers.iter().any(|&n| n as usize != at && sides.is_after[n as usize]);
        let is_read_before = readers.iter().any(|&n| sides.is_before[n as usize]);
        let comes_back = is_read_after || self.carried_from[v].is_none();
        let stores = 0..self.problem.stores.len();
        let mut routes = Vec::new();
        for store in stores.clone() {
            let mut loads = vec![self.copy(v, store, Way::Out, false)];
            loads.extend(comes_back.then(|| self.copy(v, store, Way::In, true)));
            routes.push(Route { store, loads });
            let Some(partner) = self.carried_to[v] else { continue };
            // It was in the store at the start. Then its partner is there at the end.
            let mut loads = Vec::new();
            loads.extend(comes_back.then(|| self.copy(v, store, Way::In, true)));
            let maker = self.flat.producer[partner.index()];
            if maker != NONE && sides.is_after[maker as usize] {
                loads.push(self.copy(partner.index(), store, Way::Out, true));
            }
            if !is_read_before {
                routes.push(Route { store, loads });
                continue;
            }
            // A reader before the cut needed it, from this store or from another that had it at the start too.
            for other in stores.clone() {
                let first = self.copy(v, other, Way::In, false);
                routes.push(Route { store, loads: loads.iter().copied().chain([first]).collect() });
            }
        }
        routes
    }

    fn copy(&self, v: usize, store: usize, way: Way, is_after: bool) -> (usize, f64) {
        let link = self.problem.stores[store].link(way);
        let row = self.rows.of(self.problem, link.channel.index(), is_after);
        (row, link.cost(self.problem.values[v].bytes))
    }
}
