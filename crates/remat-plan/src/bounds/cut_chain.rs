//! Which cuts to take together: a chain that grows from the best single cut (several_cuts.rs has the bound of a chain).
//!
//! In: the cuts of a problem. Out: an ever higher lower bound, in slices of work. Candidates are the moments after the first cut that
//! have the least room among their neighbours, since every plan is tight there. A round tries each of them for a short while;
//! the one that raises the bound the most joins the chain, and the next round begins.

use crate::bounds::one_cut::{Cuts, room_at, round_up};
use crate::bounds::several_cuts::SeveralCuts;
use crate::schedule::limits::Limits;

/// How many nodes may come into a chain.
const MOST_CANDIDATES: usize = 4;
/// Work of trying a chain: as much per entry of its dictionary, and at least so much.
const WORK_PER_ENTRY: f64 = 60.0;
const WORK_OF_A_TRIAL: f64 = 4e7;
/// A later candidate, which has more room, must be better by this share.
const CLEARLY: f64 = 1e-3;
/// A candidate whose trial ended below this share of the bound is too slow.
const CLOSE: f64 = 0.97;

/// The bound of a growing chain of cuts, in slices of work.
pub(crate) struct Growth<'a> {
    cuts: &'a Cuts<'a>,
    /// The chain so far, with its programme if there are several nodes.
    chain: Vec<usize>,
    programme: Option<SeveralCuts>,
    bound: f64,
    /// Whether its branch and bound came to an end.
    is_solved: bool,
    /// Nodes that may come into the chain. The first `n_tried` were tried in this round.
    candidates: Vec<usize>,
    n_tried: usize,
    /// A trial that the limits interrupted, and the work that it may still do.
    trial: Option<(SeveralCuts, f64)>,
    /// The best one of the round, with its bound and programme.
    leader: Option<(f64, usize, SeveralCuts)>,
}

impl<'a> Growth<'a> {
    /// Starts at the best single cut.
    pub(crate) fn new(cuts: &'a Cuts<'a>) -> Growth<'a> {
        let chain: Vec<usize> = cuts.ranked.iter().take(1).map(|&(_, at)| at).collect();
        let mut candidates = chain.first().map_or(Vec::new(), |&at| tight_moments(cuts, at));
        candidates.truncate(MOST_CANDIDATES);
        let bound = cuts.relaxed_bound();
        Growth {
            cuts,
            chain,
            programme: None,
            bound,
            // The one cut at the start has had its branch and bound elsewhere.
            is_solved: true,
            candidates,
            n_tried: 0,
            trial: None,
            leader: None,
        }
    }

    /// Whether more work may raise the bound.
    pub(crate) fn is_open(&self) -> bool {
        self.n_tried < self.candidates.len() || !self.is_solved || self.leader.is_some()
    }

    /// Works until the limits are reached; the best bound so far, at most `target`. A round of trials comes first. If
    /// none was enough, the candidate that came closest is kept: in the end a longer chain is never worse. Where that brings
    /// nothing, the branch and bound of the chain itself.
    pub(crate) fn advance(&mut self, target: f64, limits: &mut Limits) -> f64 {
        while self.bound < target && self.is_open() && limits.spend(0.0) {
            if self.n_tried < self.candidates.len() {
                self.try_next(target, limits);
            } else if let Some((bound, _, programme)) = &mut self.leader {
                *bound = programme.advance(self.bound.max(*bound) * (1.0 + CLEARLY), limits);
                let is_at_its_end = limits.spend(0.0);
                self.extend();
                // A candidate that does not help is none.
                self.leader.take_if(|_| is_at_its_end);
            } else if let Some(programme) = &mut self.programme {
                self.bound = self.bound.max(programme.advance(target, limits));
                self.is_solved = limits.spend(0.0);
            }
            let is_enough = self.leader.as_ref().is_some_and(|leader| leader.0 >= target);
            if is_enough || self.n_tried == self.candidates.len() {
                self.extend();
            }
        }
        let of_leader = self.leader.as_ref().map_or(0.0, |leader| leader.0);
        round_up(self.cuts.flat, self.bound.max(of_leader)).min(target)
    }

    /// A short branch and bound with one more node in the chain; what the limits cut off continues in the next slice.
    fn try_next(&mut self, target: f64, limits: &mut Limits) {
        let at = self.candidates[self.n_tried];
        let begun = self.trial.take().or_else(|| {
            let mut chain = self.chain.clone();
            chain.push(at);
            chain.sort_unstable();
            let programme = SeveralCuts::new(self.cuts, &chain)?;
            let work = (WORK_PER_ENTRY * programme.size() as f64).max(WORK_OF_A_TRIAL);
            Some((programme, work))
        });
        let Some((mut programme, work)) = begun else {
            self.candidates.remove(self.n_tried);
            return;
        };
        let mut part = limits.part_of_work(work);
        let bound = programme.advance(target, &mut part);
        limits.absorb(&part);
        if !limits.spend(0.0) && bound < target {
            self.trial = Some((programme, work - part.spent()));
            return;
        }
        self.n_tried += 1;
        if bound < CLOSE * self.bound {
            return;
        }
        if self.leader.as_ref().is_none_or(|(best, ..)| bound > *best * (1.0 + CLEARLY)) {
            self.leader = Some((bound, at, programme));
        }
    }

    /// Takes the best candidate into the chain if it raised the bound, and begins another round.
    fn extend(&mut self) {
        let Some((bound, at, programme)) = self.leader.take_if(|leader| leader.0 > self.bound) else {
            return;
        };
        self.bound = bound;
        self.chain.push(at);
        self.chain.sort_unstable();
        self.programme = Some(programme);
        self.is_solved = false;
        self.candidates.retain(|&candidate| candidate != at);
        self.n_tried = 0;
    }
}

/// The descendants of a node that have the least room among their neighbours in the order; the least room first. Before the
/// best single cut, which is near the turn from forward to backward, a second cut has never been seen to help.
fn tight_moments(cuts: &Cuts, after: usize) -> Vec<usize> {
    let room: Vec<i64> =
        (0..cuts.flat.n_nodes()).map(|n| room_at(cuts.flat, n, cuts.budget).unwrap_or(-1)).collect();
    let reach = (room.len() / 30).max(2);
    let is_tight = |n: usize| {
        let mut around = n.saturating_sub(reach)..(n + reach + 1).min(room.len());
        around.all(|m| (room[n], n) <= (room[m], m))
    };
    let is_after = cuts.order.descendants(after);
    let mut moments: Vec<usize> =
        (0..room.len()).filter(|&n| n != after && is_after[n] && is_tight(n)).collect();
    moments.sort_by_key(|&n| (room[n], n));
    moments
}
