//! What every continuation of a state costs at least.

use crate::planners::exhaustive::stores::state::{Place, Times};
use crate::planners::exhaustive::stores::{MOST_IDS, Search};
use crate::planners::exhaustive::{Node, ones};
use crate::schedule::flat::{Flat, NONE};
use crate::spec::Way;

/// The nodes that run before each node in every plan, as sets.
pub(super) fn ancestors(flat: &Flat, nodes: &[Node]) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    for node in nodes {
        let makers = ones(node.reads).map(|v| flat.producer[v as usize]).filter(|&p| p != NONE);
        let before = makers.fold(0, |set, p| set | 1 << p | all[p as usize]);
        all.push(before);
    }
    all
}

/// A copy that every continuation makes: its channel, when it begins at the earliest, how long it takes and what follows it.
struct Owed {
    channel: usize,
    from: f64,
    cost: f64,
    then: f64,
}

/// What every continuation of a state does.
struct Least {
    /// When the program ends if it never waits.
    own: f64,
    /// When each value can have come at the earliest, where that is later than now.
    come: [f64; MOST_IDS],
    /// Copies on channels that overlap.
    owed: Vec<Owed>,
}

impl Search<'_> {
    /// A cost that no continuation undercuts, infinite where there is none.
    ///
    /// The program runs what has not run, each node after what it reads can have come; makes again what is nowhere; and waits for the copies
    /// that are left to make on channels that do not overlap. Each channel has to end what is under way and what is owed.
    pub(super) fn least_cost(&self, place: &Place, times: &Times) -> f64 {
        let now = times.now;
        let open = ((1u64 << self.nodes.len()) - 1) & !place.done;
        let cost = |nodes: u64| ones(nodes).map(|n| self.flat.cost[n as usize]).sum::<f64>();
        let mut least = Least { own: now + cost(open), come: [0.0; MOST_IDS], owed: Vec::new() };
        if !self.read(place, times, &mut least) || !self.fetch(place, times, open, &mut least) {
            return f64::INFINITY;
        }
        ones(place.live).for_each(|v| least.come[v as usize] = times.end(self.arrival(v as usize)));
        // When each open node begins at the earliest.
        let mut begin = [0.0f64; MOST_IDS];
        for n in ones(open) {
            let node = &self.nodes[n as usize];
            let come = ones(node.reads).map(|v| least.come[v as usize]).fold(0.0, f64::max);
            begin[n as usize] = come.max(now + cost(open & self.ancestors[n as usize]));
            let end = begin[n as usize] + self.flat.cost[n as usize];
            ones(node.makes).for_each(|v| least.come[v as usize] = least.come[v as usize].max(end));
        }
        self.send(place, times, &mut least);
        // The nodes that begin no earlier than one of them follow each other.
        let mut end = least.own;
        for n in ones(open) {
            let first = begin[n as usize];
            end = end.max(
                first + cost(ones(open).filter(|&m| begin[m as usize] >= first).fold(0, |a, m| a | 1 << m)),
            );
        }
        for c in 0..self.problem.channels.len() {
            end = end.max(times.end(c));
            for &Owed { from, .. } in least.owed.iter().filter(|owed| owed.channel == c) {
                let of_channel = least.owed.iter().filter(|owed| owed.channel == c && owed.from >= from);
                let (cost, then) = of_channel
                    .fold((0.0, f64::INFINITY), |(sum, then), owed| (sum + owed.cost, then.min(owed.then)));
                end = end.max(from + cost + then);
            }
        }
        end
    }

    /// Counts copies to stores that must still be read: the value comes back, and somebody reads it then. False if nobody can.
    fn read(&self, place: &Place, times: &Times, least: &mut Least) -> bool {
        let useful = self.useful(place.done);
        for s in 0..self.n_stores() {
            let link = self.link(s, Way::In);
            let channel = link.channel.index();
            for v in ones(place.owed[s]) {
                if useful & 1 << v == 0 {
                    return false;
                }
                let v = v as usize;
                let cost = link.cost(self.problem.values[v].bytes);
                if !self.problem.channels[channel].overlaps {
                    least.own += cost;
                    continue;
                }
                let from = times.now.max(times.end(channel)).max(times.end(self.copied(v, s, Way::Out)));
                let is_end = self.outputs & 1 << v != 0 || self.n_stores() > 1;
                let readers = self.flat.readers.get(v).iter().map(|&n| self.flat.cost[n as usize]);
                let then = if is_end { 0.0 } else { readers.fold(f64::INFINITY, f64::min) };
                least.owed.push(Owed { channel, from, cost, then });
            }
        }
        true
    }

    /// Counts what has to become live again although its maker has run. False if something cannot.
    fn fetch(&self, place: &Place, times: &Times, open: u64, least: &mut Least) -> bool {
        let flat = self.flat;
        let nodes = |set: u64| ones(set).map(|n| &self.nodes[n as usize]);
        let absent = !place.live & !nodes(open).fold(0, |set, node| set | node.makes);
        let promised = place.promised.iter().fold(0, |all, set| all | set);
        let stored = place.stored.iter().fold(0, |all, set| all | set);
        let unkept = (0..self.n_stores()).fold(0, |all, s| all | place.promised[s] & !place.stored[s]);
        let read = nodes(open).fold(0, |set, node| set | node.reads);
        let mut missing = (read | self.outputs & !promised | unkept) & absent;
        // Makers that run again: those of what is nowhere.
        let (mut seen, mut again) = (stored, 0u64);
        while missing & !seen != 0 {
            let v = (missing & !seen).trailing_zeros() as usize;
            seen |= 1 << v;
            if flat.lasting[v] {
                return false;
            }
            let maker = flat.producer[v] as usize;
            if again & 1 << maker == 0 {
                again |= 1 << maker;
                least.own += flat.cost[maker];
                missing |= self.nodes[maker].reads & absent;
            }
            least.come[v] = times.now + flat.cost[maker];
        }
        let unread = place.owed.iter().fold(0, |all, set| all | set);
        for v in ones(missing & stored & !unread) {
            let (v, maker) = (v as usize, flat.producer[v as usize]);
            let mut by_run = if flat.lasting[v] { f64::INFINITY } else { flat.cost[maker as usize] };
            let mut come = times.now + by_run;
            // One run can bring back all outputs of a node, so it counts once.
            if by_run.is_finite() {
                by_run = if again & 1 << maker == 0 { by_run } else { 0.0 };
                again |= 1 << maker;
            }
            let mut own = by_run;
            let stores = (0..self.n_stores()).filter(|&s| place.stored[s] & 1 << v != 0);
            let n_ways = stores.clone().count() + usize::from(by_run.is_finite());
            for s in stores {
                let link = self.link(s, Way::In);
                let (channel, cost) = (link.channel.index(), link.cost(self.problem.values[v].bytes));
                let from = times.now.max(times.end(channel)).max(times.end(self.copied(v, s, Way::Out)));
                come = come.min(from + cost);
                if !self.problem.channels[channel].overlaps {
                    own = own.min(cost);
                    continue;
                }
                own = 0.0;
                if n_ways == 1 {
                    least.owed.push(Owed { channel, from, cost, then: 0.0 });
                }
            }
            least.own += own;
            least.come[v] = come;
        }
        true
    }

    /// Counts copies that are owed to stores.
    fn send(&self, place: &Place, times: &Times, least: &mut Least) {
        for s in 0..self.n_stores() {
            let out = self.link(s, Way::Out);
            let channel = out.channel.index();
            for v in ones(place.promised[s] & !place.stored[s]) {
                let cost = out.cost(self.problem.values[v as usize].bytes);
                if self.problem.channels[channel].overlaps {
                    let from = least.come[v as usize].max(times.now).max(times.end(channel));
                    least.owed.push(Owed { channel, from, cost, then: 0.0 });
                } else {
                    least.own += cost;
                }
            }
        }
    }
}
