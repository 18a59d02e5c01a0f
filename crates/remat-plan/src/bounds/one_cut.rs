//! A lower bound on the cost of every plan within a budget: one cut through time.
//!
//! Look at the first run of a node c. In every plan, whatever its order, at that moment
//!
//! - all ancestors of c have run at least once, and no descendant has;
//! - the set K of values that are live then, with the inputs and outputs of c, fits in the budget;
//! - every descendant runs later and reads its inputs: each is in K or is made after the cut. A maker that is an
//!   ancestor of c then runs *again*, which costs extra; one that is neither ancestor nor descendant may run for the
//!   first time, at no extra cost; and what is made after the cut needs its own inputs in the same way.
//!
//! So the extra cost is at least the cheapest choice of K and of nodes to run again. With a price λ per byte of K
//! instead of the limit that is a minimum cut; its value less λ times the room is a lower bound for each λ
//! and concave in λ. The best λ is found by intersecting lines. What remains between this bound and the true optimum of
//! the choice is closed by branch and bound on single values ("keep v" or "drop v").
//!
//! The bound holds for every order of execution. Mathematics: docs/bounds/one-cut.md.

use crate::bounds::flow::Network;
use crate::schedule::flat::{Flat, NONE};
use crate::schedule::limits::Limits;
use crate::schedule::precedence::Precedence;

/// A number with which no plan can comply: the budget is infeasible.
pub(crate) const IMPOSSIBLE: f64 = f64::INFINITY;

/// What a value is to the plans that pass a cut.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Open,
    Keep,
    Drop,
}

/// The choice at one cut, as a parametric network.
pub(crate) struct Cut<'a> {
    flat: &'a Flat,
    network: Network,
    /// The edge that is cut when a value is kept, per value. It leads to the maker of the value, or to the sink when
    /// the value cannot be made after the cut.
    keep_edge: Vec<Option<usize>>,
    /// Bytes that may be kept beside the operands of the node at the cut.
    room: f64,
    fate: Vec<Fate>,
    /// Values with an edge.
    values: Vec<u32>,
    /// Costs of running nodes again, as edges to the sink.
    cost_edges: Vec<(usize, u32, f64)>,
    tolerance: f64,
    /// The cheapest choice met so far that fits: its cost and what it drops.
    fitting: Option<(f64, Vec<u32>)>,
}

/// Vertices: source, sink, then the values, then the nodes.
const SOURCE: u32 = 0;
const SINK: u32 = 1;

/// A choice at the cut.
#[derive(Clone, Debug)]
struct Choice {
    /// A lower bound on cost + price * bytes over all choices.
    value: f64,
    cost: f64,
    bytes: f64,
    kept: Vec<u32>,
}

/// The cheapest choice at prices of any kind.
pub(crate) struct Crossing {
    /// A lower bound on its price.
    pub(crate) value: f64,
    /// The values that cross the cut and are not made again after it, without the operands of the node.
    pub(crate) crossing: Vec<u32>,
    /// What the nodes that run again cost.
    pub(crate) again: f64,
}

impl<'a> Cut<'a> {
    /// The network at the first run of node `at`; nothing when the run alone exceeds the budget.
    pub(crate) fn new(flat: &'a Flat, order: &Precedence, at: usize, budget: i64) -> Option<Cut<'a>> {
        let is_before = order.ancestors(at);
        let is_after = order.descendants(at);
        let room = room_at(flat, at, budget)?;
        let n_values = flat.n_values();
        let value_vertex = |v: u32| 2 + v;
        let node_vertex = |n: u32| 2 + n_values as u32 + n;
        let mut network = Network::default();
        let mut cut = Cut {
            flat,
            network: Network::default(),
            keep_edge: vec![None; n_values],
            room: room as f64,
            fate: vec![Fate::Open; n_values],
            values: Vec::new(),
            cost_edges: Vec::new(),
            tolerance: 0.0,
            fitting: None,
        };

        // Everything that is needed after the cut, starting from the descendants and the outputs of the problem.
        let mut is_wanted = vec![false; n_values];
        let mut may_run = vec![false; flat.n_nodes()];
        let mut stack: Vec<u32> = Vec::new();
        let want = |v: u32, is_wanted: &mut Vec<bool>, stack: &mut Vec<u32>| {
            let producer = flat.producer[v as usize];
            let made_after = producer != NONE && is_after[producer as usize];
            if !made_after && !std::mem::replace(&mut is_wanted[v as usize], true) {
                stack.push(v);
            }
            !made_after
        };
        for n in (0..flat.n_nodes()).filter(|&n| is_after[n] && n != at) {
            for &v in flat.inputs.get(n) {
                if want(v, &mut is_wanted, &mut stack) {
                    network.add_edge(SOURCE, value_vertex(v), IMPOSSIBLE);
                }
            }
        }
        for v in (0..n_values as u32).filter(|&v| flat.is_output[v as usize]) {
            if want(v, &mut is_wanted, &mut stack) {
                network.add_edge(SOURCE, value_vertex(v), IMPOSSIBLE);
            }
        }
        while let Some(v) = stack.pop() {
            let producer = flat.producer[v as usize];
            let ran = producer != NONE && is_before[producer as usize];
            let only_kept = producer == NONE || (ran && flat.lasting[v as usize]);
            let target = if only_kept { SINK } else { node_vertex(producer) };
            cut.keep_edge[v as usize] = Some(network.add_edge(value_vertex(v), target, 0.0));
            cut.values.push(v);
            if flat.inputs.get(at).contains(&v) {
                cut.fate[v as usize] = Fate::Keep;
            }
            if only_kept || std::mem::replace(&mut may_run[producer as usize], true) {
                continue;
            }
            if ran {
                let cost = flat.cost[producer as usize];
                let edge = network.add_edge(node_vertex(producer), SINK, cost);
                cut.cost_edges.push((edge, producer, cost));
            }
            for &input in flat.inputs.get(producer as usize) {
                if want(input, &mut is_wanted, &mut stack) {
                    network.add_edge(node_vertex(producer), value_vertex(input), IMPOSSIBLE);
                }
            }
        }
        network.seal(2 + n_values + flat.n_nodes());
        cut.network = network;
        cut.values.sort_unstable();
        cut.tolerance = 1e-12 * cut.cost_edges.iter().map(|edge| edge.2).sum::<f64>().max(f64::MIN_POSITIVE);
        Some(cut)
    }

    fn bytes(&self, v: u32) -> f64 {
        self.flat.bytes[v as usize] as f64
    }

    /// The cheapest choice at a price per byte; at an infinite price, the one with the fewest bytes.
    fn choose(&mut self, price: f64, limits: &mut Limits) -> Option<Choice> {
        let by_bytes = price.is_infinite();
        for i in 0..self.values.len() {
            let v = self.values[i];
            let edge = self.keep_edge[v as usize].expect("listed values have an edge");
            let capacity = match self.fate[v as usize] {
                Fate::Keep => 0.0,
                Fate::Drop => IMPOSSIBLE,
                Fate::Open if by_bytes => self.bytes(v),
                Fate::Open => price * self.bytes(v),
            };
            self.network.set_capacity(edge, capacity);
        }
        for &(edge, _, cost) in &self.cost_edges {
            self.network.set_capacity(edge, if by_bytes { 0.0 } else { cost });
        }
        let tolerance = if by_bytes { 1e-3 } else { self.tolerance };
        let value = self.network.max_flow(SOURCE, SINK, tolerance, limits)?;
        let n_values = self.flat.n_values() as u32;
        let mut kept = Vec::new();
        let (mut bytes, mut cost) = (0.0, 0.0);
        for &v in &self.values {
            if self.network.is_reached(2 + v) && self.fate[v as usize] == Fate::Open {
                let producer = self.flat.producer[v as usize];
                let goes_on = producer != NONE && self.network.is_reached(2 + n_values + producer);
                if !goes_on {
                    kept.push(v);
                    bytes += self.bytes(v);
                }
            }
        }
        for &(_, n, node_cost) in &self.cost_edges {
            if self.network.is_reached(2 + n_values + n) {
                cost += node_cost;
            }
        }
        Some(Choice { value, cost, bytes, kept })
    }

    /// The values that are needed after the cut and may cross it.
    pub(crate) fn values(&self) -> &[u32] {
        &self.values
    }

    /// Bytes that may be kept beside the operands of the node.
    pub(crate) fn room(&self) -> f64 {
        self.room
    }

    /// The cheapest choice where each value has a price of its own for crossing the cut, and running a node again costs
    /// `weight` times what it does.
    pub(crate) fn cheapest(
        &mut self,
        price: impl Fn(u32) -> f64,
        weight: f64,
        limits: &mut Limits,
    ) -> Option<Crossing> {
        for &v in &self.values {
            let edge = self.keep_edge[v as usize].expect("listed values have an edge");
            let is_operand = self.fate[v as usize] == Fate::Keep;
            self.network.set_capacity(edge, if is_operand { 0.0 } else { price(v) });
        }
        for &(edge, _, cost) in &self.cost_edges {
            self.network.set_capacity(edge, weight * cost);
        }
        let value = self.network.max_flow(SOURCE, SINK, self.tolerance, limits)?;
        let node_is_reached = |n: u32| self.network.is_reached(2 + self.flat.n_values() as u32 + n);
        let crosses = |&v: &u32| {
            let producer = self.flat.producer[v as usize];
            let is_made = producer != NONE && node_is_reached(producer);
            self.network.is_reached(2 + v) && self.fate[v as usize] == Fate::Open && !is_made
        };
        let crossing = self.values.iter().copied().filter(crosses).collect();
        let again = self.cost_edges.iter().filter(|edge| node_is_reached(edge.1)).map(|edge| edge.2).sum();
        Some(Crossing { value, crossing, again })
    }

    /// The best bound over all prices, and a value on which to branch, if there is one and the limits allow more.
    /// `stop_at`: a bound that is good enough.
    fn bound(&mut self, room: f64, stop_at: f64, limits: &mut Limits) -> (f64, Option<u32>) {
        let mut best = 0.0;
        let branch = self.climb(room, stop_at, &mut best, limits);
        (best, branch)
    }

    /// Raises `best` price by price. Every value it takes on is a valid bound, so a limit may end this at any point.
    fn climb(&mut self, room: f64, stop_at: f64, best: &mut f64, limits: &mut Limits) -> Option<u32> {
        // Two lines cost + price * (bytes - room): one that rises with the price and one that falls.
        let mut rising = self.choose(0.0, limits)?;
        *best = rising.value;
        self.note_fitting(&rising, room);
        if rising.value.is_infinite() || rising.bytes <= room {
            return None;
        }
        let mut falling = self.choose(f64::INFINITY, limits)?;
        if falling.value > room * (1.0 + 1e-9) + 1.0 {
            *best = IMPOSSIBLE;
            return None;
        }
        for _ in 0..60 {
            if falling.bytes >= rising.bytes {
                break;
            }
            let price = (falling.cost - rising.cost) / (rising.bytes - falling.bytes);
            if !(price.is_finite() && price > 0.0) {
                break;
            }
            let next = self.choose(price, limits)?;
            self.note_fitting(&next, room);
            *best = best.max(next.value - price * room);
            let line = rising.cost + price * (rising.bytes - room);
            let improves =
                next.cost + price * (next.bytes - room) < line - 1e-9 * line.abs() - self.tolerance;
            if *best >= stop_at || !improves {
                break;
            }
            if next.bytes > room {
                rising = next;
            } else {
                falling = next;
            }
        }
        let branch = rising.kept.iter().copied().filter(|v| falling.kept.binary_search(v).is_err());
        branch.max_by(|&a, &b| self.bytes(a).total_cmp(&self.bytes(b)).then(b.cmp(&a)))
    }

    /// Remembers a choice that fits, if it is the cheapest so far.
    fn note_fitting(&mut self, choice: &Choice, room: f64) {
        if choice.bytes > room || self.fitting.as_ref().is_some_and(|known| known.0 <= choice.cost) {
            return;
        }
        self.fitting = Some((choice.cost, self.dropped(choice)));
    }

    fn dropped(&self, choice: &Choice) -> Vec<u32> {
        let is_dropped =
            |v: &u32| self.fate[*v as usize] != Fate::Keep && choice.kept.binary_search(v).is_err();
        self.values.iter().copied().filter(is_dropped).collect()
    }

    /// What the cheapest choice at a price per byte drops; nothing when a limit is reached.
    pub(crate) fn dropped_at_price(&mut self, price: f64, limits: &mut Limits) -> Option<Vec<u32>> {
        let choice = self.choose(price, limits)?;
        Some(self.dropped(&choice))
    }

    /// The bound without branching.
    pub(crate) fn relaxed(&mut self, stop_at: f64, limits: &mut Limits) -> f64 {
        self.bound(self.room, stop_at, limits).0.max(0.0)
    }

    /// Branch and bound: the smallest bound over all branches, at most `target`.
    pub(crate) fn branch_and_bound(&mut self, target: f64, limits: &mut Limits) -> f64 {
        /// A set of decisions and its bound.
        struct Branch {
            bound: f64,
            decisions: Vec<(u32, Fate)>,
            next: Option<u32>,
        }
        let (bound, next) = self.bound(self.room, target, limits);
        let mut open = vec![Branch { bound, decisions: Vec::new(), next }];
        loop {
            let Some(at) = (0..open.len()).reduce(|a, b| if open[b].bound < open[a].bound { b } else { a })
            else {
                return target;
            };
            if open[at].bound >= target {
                return target;
            }
            let branch = open.swap_remove(at);
            let Some(v) = branch.next else { return branch.bound.max(0.0) };
            for fate in [Fate::Drop, Fate::Keep] {
                let mut decisions = branch.decisions.clone();
                decisions.push((v, fate));
                let mut room = self.room;
                for &(v, fate) in &decisions {
                    self.fate[v as usize] = fate;
                    if fate == Fate::Keep {
                        room -= self.bytes(v);
                    }
                }
                let (bound, next) =
                    if room < 0.0 { (IMPOSSIBLE, None) } else { self.bound(room, target, limits) };
                for &(v, _) in &decisions {
                    self.fate[v as usize] = Fate::Open;
                }
                // A branch is never worse than what it came from.
                let bound = bound.max(branch.bound);
                if bound < target {
                    open.push(Branch { bound, decisions, next });
                }
            }
            if !limits.spend(0.0) {
                let lowest = open.iter().map(|branch| branch.bound).fold(target, f64::min);
                return lowest.max(0.0);
            }
        }
    }
}

/// The cuts of a problem with their bounds, best first.
pub(crate) struct Cuts<'a> {
    pub(crate) flat: &'a Flat,
    pub(crate) order: Precedence,
    pub(crate) budget: i64,
    /// Bound without branching, and node.
    pub(crate) ranked: Vec<(f64, usize)>,
}

impl<'a> Cuts<'a> {
    /// Tries cuts all over the problem and more of them around the best. A cut that proves the budget infeasible
    /// has an infinite bound.
    pub(crate) fn scan(flat: &'a Flat, budget: i64, target: f64, limits: &mut Limits) -> Cuts<'a> {
        let mut cuts = Cuts { flat, order: Precedence::in_every_plan(flat), budget, ranked: Vec::new() };
        let mut tried = vec![false; flat.n_nodes()];
        for at in spread(flat.n_nodes()) {
            if !cuts.try_at(at, target, &mut tried, limits) {
                return cuts;
            }
        }
        let mut step = flat.n_nodes().div_ceil(100);
        while step > 0 && !cuts.ranked.is_empty() {
            let centre = cuts.ranked[0].1;
            for at in [centre.saturating_sub(step), (centre + step).min(flat.n_nodes() - 1)] {
                if !cuts.try_at(at, target, &mut tried, limits) {
                    return cuts;
                }
            }
            if cuts.ranked[0].1 == centre {
                step /= 2;
            }
        }
        cuts
    }

    fn try_at(&mut self, at: usize, target: f64, tried: &mut [bool], limits: &mut Limits) -> bool {
        if std::mem::replace(&mut tried[at], true) {
            return true;
        }
        let bound = self.cut(at).map_or(IMPOSSIBLE, |mut cut| cut.relaxed(target, limits));
        let place = self.ranked.partition_point(|other| other.0 >= bound);
        self.ranked.insert(place, (bound, at));
        bound < target && limits.spend(self.flat.n_nodes() as f64 * 8.0)
    }

    /// The network at a node.
    pub(crate) fn cut(&self, at: usize) -> Option<Cut<'a>> {
        Cut::new(self.flat, &self.order, at, self.budget)
    }

    /// The best bound known without branching; infinite when no plan exists.
    pub(crate) fn relaxed_bound(&self) -> f64 {
        round_up(self.flat, self.ranked.first().map_or(0.0, |cut| cut.0))
    }

    /// The best bound by branching on the most promising cuts, at most `target`: a plan of that extra cost is known.
    /// Beside it the best choice met at each of these cuts, as the node and the values that are dropped there.
    pub(crate) fn branched_bound(&self, target: f64, limits: &mut Limits) -> (f64, Vec<(usize, Vec<u32>)>) {
        let mut best = self.relaxed_bound();
        let mut choices = Vec::new();
        for &(relaxed, at) in self.ranked.iter().take(6) {
            // A cut whose relaxed bound is far below cannot overtake by branching.
            if best >= target || relaxed < 0.9 * self.relaxed_bound() {
                break;
            }
            let Some(mut cut) = self.cut(at) else { break };
            best = best.max(cut.branch_and_bound(target, &mut limits.part(0.4)));
            choices.extend(cut.fitting.map(|(_, dropped)| (at, dropped)));
            if !limits.spend(0.0) {
                break;
            }
        }
        (round_up(self.flat, best).min(target), choices)
    }
}

/// Bytes that fit beside the operands of a node while it runs; nothing when the node alone exceeds the budget.
pub(crate) fn room_at(flat: &Flat, at: usize, budget: i64) -> Option<i64> {
    let shared = flat.shared_bytes(at, |_| false);
    let operands: i64 = flat.inputs.get(at).iter().map(|&v| flat.bytes[v as usize]).sum();
    let room = budget - flat.fixed - flat.extra[at] + shared - operands;
    (room >= 0).then_some(room)
}

/// Where all costs are whole numbers, so is every extra cost.
pub(crate) fn round_up(flat: &Flat, bound: f64) -> f64 {
    let is_whole = bound.is_finite() && flat.cost.iter().all(|cost| cost.fract() == 0.0);
    // What exceeds a whole number by rounding errors only is not rounded up.
    if is_whole { (bound - 1e-6 * bound.max(1.0)).ceil().max(bound.floor()) } else { bound }
}

/// A bound from a few cuts, for planners that take milliseconds themselves.
pub(crate) fn quick_bound(flat: &Flat, budget: i64, target: f64) -> f64 {
    let cuts = Cuts::scan(flat, budget, target, &mut Limits::of_work(2e6));
    cuts.relaxed_bound().min(target)
}

/// Nodes at which to cut: up to about a hundred, evenly spread, from the middle outwards, since the turn from forward to
/// backward is the best place as a rule and the limits may end the scan early.
fn spread(n_nodes: usize) -> impl Iterator<Item = usize> {
    let step = n_nodes.div_ceil(100).max(1);
    let middle = n_nodes / 2;
    let offsets = (0..=n_nodes.div_ceil(step))
        .flat_map(move |i| [Some(middle + i * step), middle.checked_sub((i + 1) * step)]);
    offsets.flatten().filter(move |&n| n < n_nodes)
}
