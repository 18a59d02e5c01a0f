//! States of the search, and which of them are known to be no better than another.

use crate::plan::Step;
use crate::planners::exhaustive::Mixer;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Stores that a state has room for.
pub(super) const MOST_STORES: usize = 3;

/// Sets of values for each store.
pub(super) type Sets = [u64; MOST_STORES];

/// What matters of the past apart from time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Place {
    pub(super) live: u64,
    pub(super) done: u64,
    pub(super) stored: Sets,
    /// What must be in a store at the end, because its partner was there at the start.
    pub(super) promised: Sets,
    /// Values that may not be freed before a step other than a free.
    pub(super) blocked: u64,
    /// Copies that must still be read: those that were made and are not promised.
    pub(super) owed: Sets,
}

/// The clock, and the ends of copies that are later: of each channel, of the last copy into each value, and of the last
/// copies of each value to and from each store.
#[derive(Clone, Default)]
pub(super) struct Times {
    pub(super) now: f64,
    /// What ends and when, in the order of what.
    ends: Vec<(u16, f64)>,
}

impl Times {
    /// When something ends; zero if it has ended.
    pub(super) fn end(&self, what: usize) -> f64 {
        self.ends.iter().find(|(other, _)| usize::from(*other) == what).map_or(0.0, |&(_, end)| end)
    }

    pub(super) fn set(&mut self, what: usize, end: f64) {
        let at = self.ends.partition_point(|&(other, _)| usize::from(other) < what);
        match self.ends.get_mut(at) {
            Some(entry) if usize::from(entry.0) == what => entry.1 = end,
            _ => self.ends.insert(at, (what as u16, end)),
        }
    }

    pub(super) fn wait(&mut self, end: f64) {
        self.now = self.now.max(end);
    }

    /// Forgets what has ended.
    pub(super) fn tidy(&mut self) {
        let now = self.now;
        self.ends.retain(|&(_, end)| end > now);
    }

    /// Whether nothing is later than in `other`.
    fn is_no_later(&self, other: &Times) -> bool {
        let mut rest = other.ends.iter();
        self.now <= other.now
            && self.ends.iter().all(|&(what, end)| {
                end <= other.now
                    || rest
                        .find(|(also, _)| *also >= what)
                        .is_some_and(|&(also, late)| also == what && end <= late)
            })
    }
}

/// A state, the steps that led to it, and the state before them.
pub(super) struct State {
    pub(super) place: Place,
    pub(super) times: Times,
    pub(super) steps: Vec<Step>,
    pub(super) before: usize,
    pub(super) is_dominated: bool,
}

/// States that differ in their times only: when each is and its place in the list.
struct Group {
    live: u64,
    stored: Sets,
    owed: Sets,
    members: Vec<(f64, usize)>,
}

impl Group {
    /// Whether a state here can do all that one there can, if it is no later.
    fn holds(&self, other: &Group) -> bool {
        let within = |small: &Sets, large: &Sets| small.iter().zip(large).all(|(a, b)| a & !b == 0);
        other.live & !self.live == 0
            && within(&other.stored, &self.stored)
            && within(&self.owed, &other.owed)
            && (self.live == other.live || self.owed == Sets::default())
    }

    fn is_same(&self, other: &Group) -> bool {
        (self.live, self.stored, self.owed) == (other.live, other.stored, other.owed)
    }
}

/// All states, those that none dominates by what they must have in common.
///
/// A state with more live values, and more in stores without a limit, can do all that one with less can: it frees what is too much.
/// Where values are blocked, and for stores with a limit, the sets must be equal.
pub(super) struct States {
    pub(super) all: Vec<State>,
    known: HashMap<Place, Vec<Group>, BuildHasherDefault<Mixer>>,
    /// Whether each store has a limit.
    is_limited: [bool; MOST_STORES],
}

impl States {
    pub(super) fn new(is_limited: [bool; MOST_STORES]) -> States {
        States { all: Vec::new(), known: HashMap::default(), is_limited }
    }

    /// Notes a state unless one is known that is never worse. The first number is its place in the list, the second one how
    /// many others it was compared with.
    pub(super) fn add(&mut self, state: State) -> (Option<usize>, usize) {
        let at = self.all.len();
        let mut common = Place { owed: Sets::default(), ..state.place };
        if common.blocked == 0 {
            common.live = 0;
            for (set, is_limited) in common.stored.iter_mut().zip(self.is_limited) {
                *set = if is_limited { *set } else { 0 };
            }
        }
        let Place { live, stored, owed, .. } = state.place;
        let mut new = Group { live, stored, owed, members: vec![(state.times.now, at)] };
        let groups = self.known.entry(common).or_default();
        let mut n_compared = groups.len();
        let all = &mut self.all;
        for group in groups.iter().filter(|group| group.holds(&new)) {
            n_compared += group.members.len();
            let is_no_worse = |&(now, old): &(f64, usize)| {
                now <= state.times.now && all[old].times.is_no_later(&state.times)
            };
            if group.members.iter().any(is_no_worse) {
                return (None, n_compared);
            }
        }
        for group in groups.iter_mut().filter(|group| new.holds(group)) {
            n_compared += group.members.len();
            group.members.retain(|&(now, old)| {
                let is_dominated = state.times.now <= now && state.times.is_no_later(&all[old].times);
                all[old].is_dominated |= is_dominated;
                !is_dominated
            });
        }
        match groups.iter_mut().find(|group| group.is_same(&new)) {
            Some(group) => group.members.append(&mut new.members),
            None => groups.push(new),
        }
        all.push(state);
        (Some(at), n_compared)
    }
}
