//! The best weights of the rows: cutting planes over the choices met so far.
//!
//! A choice at a cut (what is kept, moved and made again) loads the rows; the bound at given weights is the least weighted sum over all
//! choices. That is concave in the weights, and each choice is a line above it. The programme here finds the weights at
//! which the lowest of the known lines is highest: in its other form, the mixture of known choices that takes the least time.

use crate::bounds::moving::loads::Rows;
use crate::bounds::simplex::{Programme, Row};
use crate::schedule::limits::Limits;

/// What a choice takes of everything that is limited.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) loads: Vec<f64>,
    pub(super) kept: f64,
    /// Bytes in each store.
    pub(super) stored: Vec<f64>,
}

/// Weights of the rows, which add up to one on each side of the cut; prices of a byte in memory and of one in each store.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub(super) rows: Vec<f64>,
    pub(super) memory: f64,
    pub(super) stores: Vec<f64>,
}

impl Weights {
    /// Only the work of the program counts.
    pub(super) fn first(n_channels: usize, n_stores: usize) -> Weights {
        let mut weights =
            Weights { rows: vec![0.0; Rows::len(n_channels)], memory: 0.0, stores: vec![0.0; n_stores] };
        weights.rows[Rows::PROGRAM_BEFORE] = 1.0;
        weights.rows[Rows::program_after(n_channels)] = 1.0;
        weights
    }

    /// Between these and others; the share of the others is `part`.
    pub(super) fn towards(&self, other: &Weights, part: f64) -> Weights {
        let mix = |a: f64, b: f64| (1.0 - part) * a + part * b;
        let all = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(&a, &b)| mix(a, b)).collect();
        Weights {
            rows: all(&self.rows, &other.rows),
            memory: mix(self.memory, other.memory),
            stores: all(&self.stores, &other.stores),
        }
    }
}

/// What is there: bytes beside the operands, and in each store (infinite where there is no limit).
#[derive(Clone, Debug)]
pub(super) struct Available {
    pub(super) room: f64,
    pub(super) capacity: Vec<f64>,
}

/// Exceeding the memory or a store completely costs this many times the time of the costliest choice.
const PENALTY: f64 = 1e3;
const WORK: f64 = 1e7;

/// The weights at which the lowest line of the known choices is highest, and how high it is.
pub(super) fn best_weights(n_channels: usize, known: &[Taken], available: &Available) -> (f64, Weights) {
    let (n_rows, program_after) = (Rows::len(n_channels), Rows::program_after(n_channels));
    let longest = |taken: &Taken| taken.loads.iter().copied().fold(0.0, f64::max);
    let time = known.iter().map(longest).fold(f64::MIN_POSITIVE, f64::max);
    let n_stores = available.capacity.len();
    // Variables: the time before, the time after, excess of memory and of each store, a share for each choice.
    let first_choice = 3 + n_stores as u32;
    let shares = |of: &dyn Fn(&Taken) -> f64| {
        let terms = (first_choice..).zip(known).map(|(x, taken)| (x, -of(taken)));
        terms.filter(|term| term.1 != 0.0).collect::<Vec<_>>()
    };
    let mut programme_rows: Vec<Row> = (0..n_rows)
        .map(|row| {
            let mut terms = shares(&|taken| taken.loads[row] / time);
            terms.push((u32::from(row >= program_after), 1.0));
            Row { terms, at_least: 0.0 }
        })
        .collect();
    let mut limit = |excess: u32, of: &dyn Fn(&Taken) -> f64, most: f64| {
        let unit = known.iter().map(of).fold(most.max(1.0), f64::max);
        let mut terms = shares(&|taken| of(taken) / unit);
        terms.push((excess, 1.0));
        programme_rows.push(Row { terms, at_least: -most / unit });
        unit
    };
    let unit_of_memory = limit(2, &|taken| taken.kept, available.room);
    let units: Vec<f64> = (0..n_stores)
        .map(|s| match available.capacity[s] {
            most if most.is_finite() => limit(3 + s as u32, &|taken| taken.stored[s], most),
            _ => limit(3 + s as u32, &|_| 0.0, 1.0),
        })
        .collect();
    let all = (first_choice..).zip(known).map(|(x, _)| (x, 1.0)).collect();
    programme_rows.push(Row { terms: all, at_least: 1.0 });
    let mut cost = vec![1.0, 1.0];
    cost.resize(first_choice as usize, PENALTY);
    cost.resize(first_choice as usize + known.len(), 0.0);
    let mut programme = Programme::new(cost, programme_rows);
    programme.solve(f64::INFINITY, &mut Limits::of_work(WORK));
    let multipliers = programme.multipliers();
    let mut weights = Weights {
        rows: multipliers[..n_rows].to_vec(),
        memory: multipliers[n_rows] * time / unit_of_memory,
        stores: (0..n_stores).map(|s| multipliers[n_rows + 1 + s] * time / units[s]).collect(),
    };
    let (before, after) = weights.rows.split_at_mut(program_after);
    for side in [before, after] {
        let sum: f64 = side.iter().sum();
        if sum > 0.0 {
            side.iter_mut().for_each(|weight| *weight /= sum);
        } else {
            side[0] = 1.0;
        }
    }
    let height = known.iter().map(|taken| weighted(taken, &weights, available)).fold(f64::INFINITY, f64::min);
    (height, weights)
}

/// The line of a choice at some weights.
fn weighted(taken: &Taken, weights: &Weights, available: &Available) -> f64 {
    let time: f64 = taken.loads.iter().zip(&weights.rows).map(|(load, weight)| load * weight).sum();
    let memory = weights.memory * (taken.kept - available.room);
    let stores = (0..weights.stores.len())
        .filter(|&s| available.capacity[s].is_finite())
        .map(|s| weights.stores[s] * (taken.stored[s] - available.capacity[s]));
    time + memory + stores.sum::<f64>()
}
