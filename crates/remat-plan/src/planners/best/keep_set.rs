//! A plan from the one-cut bound: what is worth keeping at one moment, at a price per byte.
//!
//! In: a problem, a budget and the node at which to cut. Out: a sequence of computes, within the budget if that
//! works. At a price per byte the minimum cut of docs/bounds/one-cut.md keeps what costs more to make again than it
//! weighs, chains and shared recomputes included. The bound looks for the price at which the kept bytes fit; here the
//! schedule that follows from the choice is measured instead, temporaries included, and the price rises until that fits.
//! Identical layers change sides at the same price, all at once. So in the end the choices at two neighbouring prices
//! are mixed: the one that keeps less for the values made before some point of the order, the other one after it.
//! Near the optimum when memory is needed at the turn from forward to backward only; weak at tight budgets, where the
//! temporaries dominate.
//!
//! Time: about a dozen minimum cuts and two dozen simulations.

use crate::bounds::one_cut::Cut;
use crate::schedule::flat::{Flat, Measure};
use crate::schedule::gaps::{Gap, keep_all, schedule};
use crate::schedule::limits::Limits;
use crate::schedule::precedence::Precedence;

/// The first price, as a part of the mean cost per byte, and how often it is doubled and then halved in between.
const FIRST_PRICE: f64 = 1.0 / 64.0;
const N_DOUBLINGS: usize = 14;
const N_BISECTIONS: usize = 10;

/// What is dropped at the cut at some price, and what that leads to.
struct Side {
    price: f64,
    dropped: Vec<u32>,
    peak: i64,
}

/// The cheapest plan of this kind within the budget, or the lowest; nothing when the node alone exceeds the budget or a
/// limit is reached before the first plan.
pub(crate) fn plan_at(flat: &Flat, at: usize, budget: i64, limits: &mut Limits) -> Option<Kept> {
    let mut cut = Cut::new(flat, &Precedence::in_every_plan(flat), at, budget)?;
    let mut plans = Plans { flat, at: at as u32, budget, best: None, scratch: Vec::new() };
    let total_bytes: f64 = flat.bytes.iter().map(|&bytes| bytes as f64).sum();
    let first_price = FIRST_PRICE * flat.cost.iter().sum::<f64>() / total_bytes.max(1.0);
    let mut generous = plans.side(&mut cut, 0.0, limits)?;
    let mut thrifty = None;
    for doubling in 0..N_DOUBLINGS {
        let Some(next) = plans.side(&mut cut, first_price * f64::from(1u32 << doubling), limits) else {
            break;
        };
        if next.peak <= budget {
            thrifty = Some(next);
            break;
        }
        // Beyond some price the recomputed chains need more memory than is saved.
        if next.peak <= generous.peak {
            generous = next;
        }
    }
    if let Some(mut thrifty) = thrifty {
        for _ in 0..N_BISECTIONS {
            let price = (generous.price + thrifty.price) / 2.0;
            let Some(next) = plans.side(&mut cut, price, limits) else { break };
            if next.peak > budget { generous = next } else { thrifty = next }
        }
        plans.mix(&generous.dropped, &thrifty.dropped, limits);
    }
    plans.best
}

/// A plan and the values that it drops at the cut.
pub(crate) struct Kept {
    pub(crate) computes: Vec<u32>,
    pub(crate) measure: Measure,
    pub(crate) dropped: Vec<u32>,
}

struct Plans<'a> {
    flat: &'a Flat,
    at: u32,
    budget: i64,
    best: Option<Kept>,
    scratch: Vec<bool>,
}

impl Plans<'_> {
    /// The choice at a price and the peak of its schedule.
    fn side(&mut self, cut: &mut Cut, price: f64, limits: &mut Limits) -> Option<Side> {
        let dropped = cut.dropped_at_price(price, limits)?;
        let peak = self.offer(&dropped, limits)?;
        Some(Side { price, dropped, peak })
    }

    /// Measures the schedule without the given values in their gap at the cut, and remembers it if it is the best.
    fn offer(&mut self, dropped: &[u32], limits: &mut Limits) -> Option<i64> {
        let schedule = schedule(self.flat, &dropped_at(self.flat, self.at, dropped))?;
        let measure = self.flat.measure(&schedule.computes, &mut self.scratch);
        limits.spend(10.0 * schedule.computes.len() as f64).then_some(())?;
        let rank = measure.rank(self.budget);
        if self.best.as_ref().is_none_or(|best| rank < best.measure.rank(self.budget)) {
            self.best = Some(Kept { computes: schedule.computes, measure, dropped: dropped.to_vec() });
        }
        Some(measure.peak)
    }

    /// Drops what the thrifty choice drops among the values made first, and what the generous one drops elsewhere.
    fn mix(&mut self, generous: &[u32], thrifty: &[u32], limits: &mut Limits) {
        let maker = |v: u32| self.flat.producer[v as usize];
        let (mut too_few, mut enough) = (0, self.at);
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            let early = thrifty.iter().copied().filter(|&v| maker(v) < middle);
            let late = generous.iter().copied().filter(|&v| maker(v) >= middle);
            let dropped: Vec<u32> = early.chain(late).collect();
            match self.offer(&dropped, limits) {
                Some(peak) if peak <= self.budget => enough = middle,
                Some(_) => too_few = middle,
                None => return,
            }
        }
    }
}

/// Drops the given values in their gap at node `at`, and keeps everything else.
pub(crate) fn dropped_at(flat: &Flat, at: u32, dropped: &[u32]) -> Vec<Gap> {
    let mut gaps = keep_all(flat);
    for &v in dropped.iter().filter(|&&v| !flat.lasting[v as usize]) {
        let reads = flat.readers.get(v as usize);
        let next = reads.partition_point(|&reader| reader < at);
        if next < reads.len() && flat.producer[v as usize] < at {
            gaps[flat.readers.range(v as usize).start + next] = Gap::Share;
        }
    }
    gaps
}
