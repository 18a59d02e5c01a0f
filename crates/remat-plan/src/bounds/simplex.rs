//! Lower bounds of small linear programmes by the dual simplex method.
//!
//! In: `minimise cost · x` subject to rows `a · x >= b` and a box for each variable, `0..1` at first, which branching narrows;
//! no cost is negative. Out: a number that no solution undercuts, and the variables at which to branch.
//!
//! The method keeps a *dictionary*: every basic variable as a sum over the non-basic ones, which sit at a bound. With costs
//! of at least zero and the surpluses of the rows as the first basis, the start is dual feasible, and because every variable
//! is boxed it stays so when boxes change: a node of a branch and bound continues from wherever the last one ended.
//! The dictionary is dense, but rows without the entering variable are left alone, so a pivot takes far less than
//! rows × columns on the sparse problems here. The leaving row is the one farthest outside its bounds for its
//! length (steepest edge, whose weights come for free with a dictionary); the entering variable is found by the ratio
//! test that lets boxed variables jump to their other bound.
//!
//! Rounding: the dictionary, in which the costs are changed a little to avoid ties, only proposes multipliers. The bound is
//! computed from them and the rows as given (any multipliers of at least zero give a valid one), so errors that pile up in the
//! dictionary make the bound weaker, never wrong.
//!
//! Written by hand, because the bound must be valid in spite of rounding, which needs the multipliers; because a branch continues
//! from where the last one ended, within a limit on counted work that makes results the same on every machine; and because a
//! solver in C or C++ would have to be compiled with the default build (`ilp` uses one, behind a feature).

use crate::schedule::limits::Limits;

/// `terms · x >= at_least`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) terms: Vec<(u32, f64)>,
    pub(crate) at_least: f64,
}

/// How far a value may be outside its bounds.
const FEASIBLE: f64 = 1e-7;
/// A row that misses its bound by more contradicts the boxes.
const CONTRADICTION: f64 = 1e-5;
/// Entries below are zero.
const TINY: f64 = 1e-11;
/// Pivots are larger.
const PIVOT: f64 = 1e-7;
/// A variable this close to 0 or 1 is whole.
const WHOLE: f64 = 1e-6;
/// How often the bound is compared with what is good enough.
const PIVOTS_PER_BOUND: usize = 20;
/// After this many pivots the dictionary is rebuilt.
const MOST_PIVOTS: usize = 5_000;
/// How much the costs are changed, as a share of the largest, and the ratio whose multiples are spread evenly.
const PERTURBATION: f64 = 1e-10;
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Work of reading one entry of a column, which lies in a line of the cache of its own.
const WORK_OF_A_JUMP: usize = 4;

/// How a solve ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Solved {
    /// At the optimum or at a bound that is good enough; infinite when there is no solution.
    Bound(f64),
    /// A limit was reached; the bound so far.
    Stopped(f64),
}

/// A variable that is not whole at the optimum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Doubt {
    pub(crate) variable: u32,
    pub(crate) value: f64,
    /// How much the bound rises in the first step when the variable is set to zero, and to one.
    pub(crate) gains: [f64; 2],
}

/// A programme with its dictionary.
pub(crate) struct Programme {
    cost: Vec<f64>,
    rows: Vec<Row>,
    /// Bounds of the variables: first of the program, then the surplus of each row.
    lower: Vec<f64>,
    upper: Vec<f64>,
    /// The variable of each row and column of the dictionary.
    basic: Vec<u32>,
    non_basic: Vec<u32>,
    at_upper: Vec<bool>,
    /// Row-major: basic = constant + entries · non-basic.
    entries: Vec<f64>,
    constant: Vec<f64>,
    reduced: Vec<f64>,
    /// 1 + the squares of a row's entries.
    length: Vec<f64>,
    value: Vec<f64>,
    /// Where the non-basic variables were when the values were computed.
    settled: Vec<f64>,
    /// Since the first basis.
    n_pivots: usize,
}

impl Programme {
    pub(crate) fn new(cost: Vec<f64>, rows: Vec<Row>) -> Programme {
        let (n, m) = (cost.len(), rows.len());
        let mut programme = Programme {
            lower: vec![0.0; n + m],
            upper: std::iter::repeat_n(1.0, n).chain(std::iter::repeat_n(f64::INFINITY, m)).collect(),
            basic: Vec::new(),
            non_basic: Vec::new(),
            at_upper: vec![false; n],
            entries: Vec::new(),
            constant: Vec::new(),
            reduced: Vec::new(),
            length: Vec::new(),
            value: vec![0.0; m],
            settled: vec![0.0; n],
            n_pivots: 0,
            cost,
            rows,
        };
        programme.start_over();
        programme
    }

    /// The dictionary of the first basis, which is free of rounding errors.
    fn start_over(&mut self) {
        let (n, m) = (self.cost.len(), self.rows.len());
        self.basic = (n as u32..(n + m) as u32).collect();
        self.non_basic = (0..n as u32).collect();
        // Equal ratios let the method walk in circles; costs that differ a little have none.
        let scale = self.cost.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let spread = |j: usize| (j as f64 * GOLDEN).fract() + 1.0;
        self.reduced = (0..n).map(|j| self.cost[j] + PERTURBATION * scale * spread(j)).collect();
        self.constant = self.rows.iter().map(|row| -row.at_least).collect();
        self.entries = vec![0.0; n * m];
        for (r, row) in self.rows.iter().enumerate() {
            row.terms.iter().for_each(|&(j, a)| self.entries[r * n + j as usize] += a);
        }
        self.length = (0..m).map(|r| 1.0 + self.row(r).iter().map(|a| a * a).sum::<f64>()).collect();
        self.n_pivots = 0;
    }

    /// The number of entries of the dictionary.
    pub(crate) fn size(&self) -> usize {
        self.entries.len()
    }

    /// The cost of a variable.
    pub(crate) fn cost(&self, variable: u32) -> f64 {
        self.cost[variable as usize]
    }

    /// Narrows or widens the box of a variable of the programme.
    pub(crate) fn set_box(&mut self, variable: u32, lower: f64, upper: f64) {
        self.lower[variable as usize] = lower;
        self.upper[variable as usize] = upper;
    }

    /// Solves within the boxes of now; ends early at a bound of `good_enough`.
    pub(crate) fn solve(&mut self, good_enough: f64, limits: &mut Limits) -> Solved {
        if self.n_pivots > MOST_PIVOTS {
            self.start_over();
        }
        let mut work = 0;
        self.settle(&mut work);
        let mut is_second_try = false;
        loop {
            let Some((row, to_upper)) = self.leaving() else { return Solved::Bound(self.bound()) };
            let column = match self.entering(row, to_upper, &mut work) {
                Ok(column) => column,
                Err(missing) if missing > CONTRADICTION => return Solved::Bound(f64::INFINITY),
                // Too little to tell a contradiction from rounding: once more, without old errors.
                Err(_) if !is_second_try => {
                    is_second_try = true;
                    self.start_over();
                    self.settle(&mut work);
                    work += self.size();
                    continue;
                }
                Err(_) => return Solved::Bound(self.bound()),
            };
            self.pivot(row, column, to_upper, &mut work);
            self.n_pivots += 1;
            let bound = if self.n_pivots.is_multiple_of(PIVOTS_PER_BOUND) { self.bound() } else { 0.0 };
            if bound >= good_enough {
                return Solved::Bound(bound);
            }
            if !limits.spend(std::mem::take(&mut work) as f64) {
                return Solved::Stopped(self.bound());
            }
        }
    }

    /// The multipliers of the rows at the last optimum.
    pub(crate) fn multipliers(&self) -> Vec<f64> {
        let n = self.cost.len();
        let mut multipliers = vec![0.0; self.rows.len()];
        for (column, &j) in self.non_basic.iter().enumerate().filter(|(_, j)| (**j as usize) >= n) {
            multipliers[j as usize - n] = self.reduced[column].max(0.0);
        }
        multipliers
    }

    /// The variables that are not whole at the last optimum.
    pub(crate) fn doubts(&self) -> impl Iterator<Item = Doubt> {
        let is_open =
            |j: u32| (j as usize) < self.cost.len() && self.lower[j as usize] < self.upper[j as usize];
        let rows = (0..self.rows.len()).filter(move |&r| is_open(self.basic[r]));
        rows.filter(|&r| self.value[r].min(1.0 - self.value[r]) > WHOLE).map(|r| Doubt {
            variable: self.basic[r],
            value: self.value[r],
            gains: self.first_gains(r),
        })
    }

    /// The first step of the dual simplex method if the variable of row `r` had to go to zero, and to one: the distance
    /// times the smallest ratio.
    fn first_gains(&self, r: usize) -> [f64; 2] {
        let (mut fall, mut rise) = (f64::INFINITY, f64::INFINITY);
        for (column, &a) in self.row(r).iter().enumerate() {
            let k = self.non_basic[column] as usize;
            if a.abs() <= PIVOT || self.lower[k] >= self.upper[k] {
                continue;
            }
            let ratio = self.reduced[column].abs() / a.abs();
            if (a > 0.0) != self.at_upper[column] {
                rise = rise.min(ratio);
            } else {
                fall = fall.min(ratio);
            }
        }
        [fall * self.value[r], rise * (1.0 - self.value[r])]
    }

    fn row(&self, r: usize) -> &[f64] {
        let n = self.cost.len();
        &self.entries[r * n..][..n]
    }

    /// Where the variable of a column is.
    fn at(&self, column: usize) -> f64 {
        let j = self.non_basic[column] as usize;
        if self.at_upper[column] { self.upper[j] } else { self.lower[j] }
    }

    /// Puts every non-basic variable at the bound that its reduced cost asks for and brings the basic ones up to date.
    fn settle(&mut self, work: &mut usize) {
        let n = self.cost.len();
        for (column, &j) in self.non_basic.iter().enumerate() {
            self.at_upper[column] = self.reduced[column] < 0.0 && self.upper[j as usize].is_finite();
        }
        let moved: Vec<(usize, f64)> = (0..n)
            .map(|column| (column, self.at(column) - self.settled[column]))
            .filter(|&(_, step)| step != 0.0)
            .collect();
        for &(column, step) in &moved {
            self.settled[column] += step;
        }
        *work += n;
        if self.n_pivots == 0 || moved.len() * WORK_OF_A_JUMP > n {
            for r in 0..self.rows.len() {
                let sum: f64 = self.row(r).iter().zip(&self.settled).map(|(a, x)| a * x).sum();
                self.value[r] = self.constant[r] + sum;
            }
            *work += self.size();
        } else {
            for (value, entries) in self.value.iter_mut().zip(self.entries.chunks_exact(n)) {
                *value += moved.iter().map(|&(column, step)| entries[column] * step).sum::<f64>();
            }
            *work += WORK_OF_A_JUMP * self.rows.len() * moved.len();
        }
    }

    /// The row that leaves, and whether its variable goes to its upper bound.
    fn leaving(&self) -> Option<(usize, bool)> {
        let mut found: Option<(f64, usize, bool)> = None;
        for (r, &j) in self.basic.iter().enumerate() {
            let (below, above) =
                (self.lower[j as usize] - self.value[r], self.value[r] - self.upper[j as usize]);
            let outside = below.max(above);
            if outside > FEASIBLE {
                let weight = outside * outside / self.length[r];
                if found.is_none_or(|(most, ..)| weight > most) {
                    found = Some((weight, r, above > below));
                }
            }
        }
        found.map(|(_, r, to_upper)| (r, to_upper))
    }

    /// The column that enters for row `r`, after those before it in the ratio test have jumped to their other bound; or how
    /// much the row misses whatever the variables do.
    fn entering(&mut self, r: usize, to_upper: bool, work: &mut usize) -> Result<usize, f64> {
        let n = self.cost.len();
        let j = self.basic[r] as usize;
        let (mut missing, sign) = if to_upper {
            (self.value[r] - self.upper[j], -1.0)
        } else {
            (self.lower[j] - self.value[r], 1.0)
        };
        let mut candidates: Vec<(f64, f64, usize)> = Vec::new();
        for (column, &a) in self.row(r).iter().enumerate() {
            let k = self.non_basic[column] as usize;
            let helps = if self.at_upper[column] { -sign * a } else { sign * a };
            if helps > PIVOT && self.lower[k] < self.upper[k] {
                candidates.push((self.reduced[column].abs() / helps, helps, column));
            }
        }
        candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        for (_, helps, column) in candidates {
            let k = self.non_basic[column] as usize;
            let range = self.upper[k] - self.lower[k];
            if helps * range >= missing - FEASIBLE {
                return Ok(column);
            }
            missing -= helps * range;
            let step = if self.at_upper[column] { -range } else { range };
            self.at_upper[column] = !self.at_upper[column];
            self.settled[column] += step;
            for (value, entries) in self.value.iter_mut().zip(self.entries.chunks_exact(n)) {
                *value += entries[column] * step;
            }
            *work += WORK_OF_A_JUMP * self.rows.len();
        }
        Err(missing)
    }

    /// Swaps the variable of row `r`, which goes to one of its bounds, with the variable of `column`.
    fn pivot(&mut self, r: usize, column: usize, to_upper: bool, work: &mut usize) {
        let n = self.cost.len();
        let leaving = self.basic[r] as usize;
        let goal = if to_upper { self.upper[leaving] } else { self.lower[leaving] };
        let pivot = self.entries[r * n + column];
        let step = (goal - self.value[r]) / pivot;
        let entered = self.at(column) + step;

        // The row, solved for the entering variable.
        let mut support: Vec<(u32, f64)> = Vec::new();
        for (k, a) in self.entries[r * n..][..n].iter_mut().enumerate() {
            *a = if k == column { 1.0 / pivot } else { -*a / pivot };
            if a.abs() < TINY {
                *a = 0.0;
            } else if k != column {
                support.push((k as u32, *a));
            }
        }
        let constant = -self.constant[r] / pivot;
        self.constant[r] = constant;
        self.length[r] = 1.0 + support.iter().map(|(_, a)| a * a).sum::<f64>() + 1.0 / (pivot * pivot);

        let mut n_touched = 1;
        for other in (0..self.rows.len()).filter(|&other| other != r) {
            let entries = &mut self.entries[other * n..][..n];
            let factor = entries[column];
            if factor == 0.0 {
                continue;
            }
            n_touched += 1;
            let mut length = self.length[other] - factor * factor;
            for &(k, a) in &support {
                let entry = &mut entries[k as usize];
                let old = *entry;
                let new = old + factor * a;
                *entry = if new.abs() < TINY { 0.0 } else { new };
                length += new * new - old * old;
            }
            entries[column] = factor / pivot;
            self.length[other] = (length + entries[column] * entries[column]).max(1.0);
            self.constant[other] += factor * constant;
            self.value[other] += factor * step;
        }
        let factor = self.reduced[column];
        for &(k, a) in &support {
            self.reduced[k as usize] += factor * a;
        }
        self.reduced[column] = factor / pivot;
        self.value[r] = entered;
        self.basic[r] = self.non_basic[column];
        self.non_basic[column] = leaving as u32;
        self.at_upper[column] = to_upper;
        self.settled[column] = goal;
        *work += n_touched * support.len() + WORK_OF_A_JUMP * self.rows.len() + n;
    }

    /// The bound that the multipliers of now prove.
    fn bound(&self) -> f64 {
        let n = self.cost.len();
        let mut left = self.cost.clone();
        let mut bound = 0.0;
        for (column, &j) in self.non_basic.iter().enumerate().filter(|(_, j)| (**j as usize) >= n) {
            let multiplier = self.reduced[column].max(0.0);
            let row = &self.rows[j as usize - n];
            bound += multiplier * row.at_least;
            for &(k, a) in &row.terms {
                left[k as usize] -= multiplier * a;
            }
        }
        let of_boxes = left.iter().zip(&self.lower).zip(&self.upper);
        bound
            + of_boxes.map(|((&c, &lower), &upper)| if c > 0.0 { c * lower } else { c * upper }).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers that are the same everywhere.
    fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    fn programme(seed: u64) -> (Vec<f64>, Vec<Row>) {
        let mut draw = draws(seed);
        let n = 2 + draw(7) as usize;
        let cost = (0..n).map(|_| draw(10) as f64).collect();
        let rows = (0..1 + draw(8))
            .map(|_| {
                let terms = (0..n as u32).map(|j| (j, draw(7) as f64 - 3.0)).filter(|term| term.1 != 0.0);
                Row { terms: terms.collect(), at_least: draw(5) as f64 - 2.0 }
            })
            .collect();
        (cost, rows)
    }

    /// The cheapest choice of zeros and ones, by trying all.
    fn cheapest(cost: &[f64], rows: &[Row]) -> f64 {
        let is_set = |choice: u32, j: u32| f64::from(choice >> j & 1);
        let fits = |choice: u32| {
            rows.iter().all(|row| {
                row.terms.iter().map(|&(j, a)| a * is_set(choice, j)).sum::<f64>() >= row.at_least - 1e-9
            })
        };
        let total = |choice: u32| (0..).zip(cost).map(|(j, c)| c * is_set(choice, j)).sum::<f64>();
        (0..1 << cost.len()).filter(|&choice| fits(choice)).map(total).fold(f64::INFINITY, f64::min)
    }

    /// Depth-first branch and bound over the programme.
    fn branch(programme: &mut Programme, best: &mut f64) {
        let Solved::Bound(bound) = programme.solve(f64::INFINITY, &mut Limits::of_work(1e9)) else {
            panic!("no limit")
        };
        if bound >= *best - 1e-6 {
            return;
        }
        let Some(doubt) = programme.doubts().next() else {
            *best = bound;
            return;
        };
        for value in [0.0, 1.0] {
            programme.set_box(doubt.variable, value, value);
            branch(programme, best);
        }
        programme.set_box(doubt.variable, 0.0, 1.0);
    }

    #[test]
    fn no_bound_exceeds_the_optimum_and_branching_reaches_it() {
        let mut n_feasible = 0;
        for seed in 0..3_000 {
            let (cost, rows) = programme(seed);
            let want = cheapest(&cost, &rows);
            let mut programme = Programme::new(cost, rows);
            let Solved::Bound(relaxed) = programme.solve(f64::INFINITY, &mut Limits::of_work(1e9)) else {
                panic!("no limit")
            };
            assert!(relaxed <= want + 1e-6, "seed {seed}: bound {relaxed}, optimum {want}");
            let mut best = f64::INFINITY;
            branch(&mut programme, &mut best);
            assert!(best == want || (best - want).abs() < 1e-6, "seed {seed}: {best}, want {want}");
            n_feasible += u32::from(want.is_finite());
        }
        assert!(n_feasible > 1_000, "only {n_feasible} programmes have a solution");
    }

    #[test]
    fn a_limit_leaves_a_valid_bound() {
        for seed in 0..500 {
            let (cost, rows) = programme(seed);
            let want = cheapest(&cost, &rows);
            let mut programme = Programme::new(cost, rows);
            let (Solved::Bound(bound) | Solved::Stopped(bound)) =
                programme.solve(f64::INFINITY, &mut Limits::of_work(40.0));
            assert!(bound <= want + 1e-6, "seed {seed}: bound {bound}, optimum {want}");
        }
    }
}
