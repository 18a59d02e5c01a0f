//! The exact planner: an integer programme over stages, solved by HiGHS. Behind the cargo feature `ilp`.
//!
//! In: a problem of up to a few dozen nodes and a budget. Out: the cheapest plan among those that keep the problem's
//! order, if the solver finishes within the time limit; otherwise the best it found. Stage t lies between the first runs of
//! nodes t - 1 and t; within a stage every node runs at most once, in ascending order. This is the formulation of
//! Checkmate (Jain et al., 2020), extended by nodes with several outputs, by state that updates consume, and by
//! outputs that take over the storage of a dying input.
//!
//! What it proves holds for that order and for one run per node and stage; another order may be cheaper. So it
//! never says "optimal" by itself: the outcome is [`Outcome::Optimal`] only if the any-order bound is met, and
//! otherwise feasible with [`StopReason::OptimalInOrder`]. That no solution exists is no proof either.
//!
//! Variables: O(n (values + edges)). The search starts from the plan of `best`, where that keeps the order.
//! Mathematics: docs/planners/ilp.md.

use crate::answer::{not_reached, outcome_with_bound};
use crate::outcome::{Outcome, StopReason, Why};
use crate::planners::best;
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::flat::{Flat, Measure, NONE};
use crate::units::Bytes;
use highs::{Col, HighsModelStatus, RowProblem, Sense};
use std::time::Instant;

/// More binary variables than this are hopeless.
const MOST_VARIABLES: usize = 60_000;
/// Seconds of effort 1 where no time limit is given.
const UNIT_SECONDS: f64 = 60.0;
/// Effort and share of the time for the plan from which the solver starts.
const START_EFFORT: f64 = 0.1;
const START_SHARE: f64 = 0.1;
/// A binary variable of a solution is one above this.
const HALF: f64 = 0.5;

pub(crate) fn plan(problem: &Problem, request: &Request) -> Outcome {
    let begin = Instant::now();
    let flat = Flat::new(problem);
    let order: Vec<u32> = (0..flat.n_nodes() as u32).collect();
    let mut scratch = Vec::new();
    let keep_all = flat.measure(&order, &mut scratch);
    let budget = request.budget.0.min(i64::MAX as u64) as i64;
    if order.is_empty() || keep_all.peak <= budget {
        return outcome_with_bound(problem, request, "ilp", &order, StopReason::BudgetMet, None);
    }
    if flat.n_nodes() * (flat.n_nodes() + flat.n_values()) / 2 > MOST_VARIABLES {
        let why = format!("the integer programme would have more than {MOST_VARIABLES} binary variables");
        return Outcome::Infeasible {
            lowest_peak: Bytes(keep_all.peak.max(0) as u64),
            why: Why::NotApplicable(why),
        };
    }
    let start = start(problem, &flat, request);
    let seconds = match (request.time_limit, request.effort) {
        (Some(limit), _) => limit.saturating_sub(begin.elapsed()).as_secs_f64(),
        (None, effort) => UNIT_SECONDS * effort.unwrap_or(1.0),
    };
    let model = Model::new(&flat, budget);
    let (found, is_exact) = model.solve(start.as_deref(), seconds, request.seed);
    // The solver works with tolerances; what counts is the exact measure of what it found.
    let within = |computes: Vec<u32>| {
        let measure = flat.measure(&computes, &mut Vec::new());
        (measure.peak <= budget).then_some((computes, measure))
    };
    let candidates = [found.and_then(within), start.and_then(within)].into_iter().flatten();
    let cheaper = |a: (Vec<u32>, Measure), b: (Vec<u32>, Measure)| if b.1.cost < a.1.cost { b } else { a };
    match candidates.reduce(cheaper) {
        None => not_reached(problem, request, keep_all.peak),
        Some((computes, _)) => {
            let stop = if is_exact { StopReason::OptimalInOrder } else { StopReason::TimeLimit };
            outcome_with_bound(problem, request, "ilp", &computes, stop, None)
        }
    }
}

/// The plan of `best` in the form of the programme: the problem's order, stages ascending; nothing if it has none.
fn start(problem: &Problem, flat: &Flat, request: &Request) -> Option<Vec<u32>> {
    let quick = Request {
        effort: Some(START_EFFORT),
        time_limit: request.time_limit.map(|limit| limit.mul_f64(START_SHARE)),
        ..request.clone()
    };
    let outcome = best::plan(problem, &quick);
    let computes: Vec<u32> = outcome.plan()?.computes().map(|node| node.0).collect();
    let sorted: Vec<u32> = stages(flat.n_nodes(), &computes)?.concat();
    let is_within = flat.is_valid(&sorted)
        && flat.measure(&sorted, &mut Vec::new()).peak.max(0) as u64 <= request.budget.0;
    is_within.then_some(sorted)
}

/// The computes of each stage, ascending and without repetition; nothing when first runs leave the problem's order.
fn stages(n_nodes: usize, computes: &[u32]) -> Option<Vec<Vec<u32>>> {
    let mut stages: Vec<Vec<u32>> = Vec::with_capacity(n_nodes);
    let mut stage: Vec<u32> = Vec::new();
    for &n in computes {
        stage.push(n);
        if n as usize == stages.len() {
            stage.sort_unstable();
            stage.dedup();
            stages.push(std::mem::take(&mut stage));
        } else if n as usize > stages.len() {
            return None;
        }
    }
    // Recomputes after the last first run belong to no stage.
    (stages.len() == n_nodes && stage.is_empty()).then_some(stages)
}

/// The integer programme with its variables, by stage.
struct Model<'a> {
    flat: &'a Flat,
    programme: RowProblem,
    /// `runs[t][n]`: node n runs in stage t, for n <= t; in its own stage always.
    runs: Vec<Vec<Option<Col>>>,
    /// `held[t][v]`: value v is live at the start of stage t; the last entry is the end of the step.
    held: Vec<Vec<Option<Col>>>,
}

/// A sum of variables and a constant.
#[derive(Clone, Default)]
struct Sum {
    terms: Vec<(Col, f64)>,
    constant: f64,
}

impl Sum {
    fn add(&mut self, variable: Option<Col>, factor: f64) {
        self.terms.extend(variable.map(|column| (column, factor)));
    }
}

impl<'a> Model<'a> {
    fn new(flat: &'a Flat, budget: i64) -> Model<'a> {
        let mut model = Model { flat, programme: RowProblem::new(), runs: Vec::new(), held: Vec::new() };
        // Bytes and costs are scaled to the size of one, which is what the solver's tolerances are made for.
        let unit = (budget - flat.fixed).max(1) as f64 / 1000.0;
        model.add_variables();
        for t in 0..flat.n_nodes() {
            model.add_flow(t);
            model.add_memory(t, budget, unit);
        }
        model
    }

    fn n_stages(&self) -> usize {
        self.flat.n_nodes()
    }

    fn add_variables(&mut self) {
        let flat = self.flat;
        let highest_cost = flat.cost.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        for t in 0..self.n_stages() {
            let runs = (0..t).map(|n| {
                // A node may repeat if its outputs can be made again; one without outputs never needs to.
                let may_repeat = flat.outputs.get(n).iter().any(|&v| !flat.lasting[v as usize]);
                may_repeat.then(|| self.programme.add_integer_column(flat.cost[n] / highest_cost, 0..=1))
            });
            let runs = runs.collect();
            self.runs.push(runs);
        }
        for t in 0..=self.n_stages() {
            let held = (0..flat.n_values()).map(|v| {
                let is_last = t == self.n_stages();
                let exists = flat.producer[v] == NONE || (flat.producer[v] as usize) < t;
                let gone = flat
                    .readers
                    .get(v)
                    .iter()
                    .any(|&n| (n as usize) < t && flat.consumes.get(n as usize).contains(&(v as u32)));
                if is_last && flat.is_output[v] {
                    return Some(self.programme.add_integer_column(0.0, 1..=1));
                }
                (exists && !gone && !is_last).then(|| self.programme.add_integer_column(0.0, 0..=1))
            });
            let held = held.collect();
            self.held.push(held);
        }
    }

    /// Whether node n runs in stage t, as a sum: its own stage is certain.
    fn run(&self, t: usize, n: usize) -> Sum {
        match n.cmp(&t) {
            std::cmp::Ordering::Less => {
                Sum { terms: self.runs[t][n].map(|c| (c, 1.0)).into_iter().collect(), constant: 0.0 }
            }
            std::cmp::Ordering::Equal => Sum { terms: Vec::new(), constant: 1.0 },
            std::cmp::Ordering::Greater => Sum::default(),
        }
    }

    /// `sum >= at_least`, with the constant moved to the other side.
    fn require(&mut self, sum: &Sum, at_least: f64) {
        self.programme.add_row((at_least - sum.constant).., &sum.terms);
    }

    /// What may run and what may be held: a node needs its inputs, a held value was held or made.
    fn add_flow(&mut self, t: usize) {
        let flat = self.flat;
        for n in 0..=t {
            for &v in flat.inputs.get(n) {
                let v = v as usize;
                let mut source = self.source(t, v);
                for (column, factor) in self.run(t, n).terms {
                    source.add(Some(column), -factor);
                }
                source.constant -= self.run(t, n).constant;
                self.require(&source, 0.0);
            }
        }
        for v in 0..flat.n_values() {
            let Some(next) = self.held[t + 1][v] else { continue };
            let mut source = self.source(t, v);
            source.add(Some(next), -1.0);
            self.require(&source, 0.0);
            // A copy that is made again in a stage is read only afterwards, so the older copy is not held: this
            // is no restriction, and makes every output of a run new.
            let mut both = self.source(t, v);
            both.terms.iter_mut().for_each(|term| term.1 = -term.1);
            both.constant = -both.constant;
            self.require(&both, -1.0);
        }
    }

    /// How often a value comes into stage t: held from before, or made.
    fn source(&self, t: usize, v: usize) -> Sum {
        let maker = self.flat.producer[v];
        let mut source = if maker == NONE { Sum::default() } else { self.run(t, maker as usize) };
        source.add(self.held[t][v], 1.0);
        source
    }

    /// The memory of each run of stage t. The bytes that are held before a run are a variable of their own.
    fn add_memory(&mut self, t: usize, budget: i64, unit: f64) {
        let flat = self.flat;
        let scaled = |bytes: i64| bytes as f64 / unit;
        let room = scaled(budget - flat.fixed);
        // `before` is what is held before node n: as a sum at first, then as one variable.
        let mut before = Sum::default();
        for v in 0..flat.n_values() {
            before.add(self.held[t][v], scaled(flat.bytes[v]));
        }
        for n in 0..=t {
            let run = self.run(t, n);
            if run.terms.is_empty() && run.constant == 0.0 {
                continue;
            }
            let freed = self.add_frees(t, n);
            let shared = self.add_sharing(n, &freed);
            // held before + (outputs + workspace - consumed) - shared <= room; when the node does not run, this is
            // implied by the step before, since what is held after a run fits in what the run needed.
            let mut used = before.clone();
            for &(column, factor) in &run.terms {
                used.add(Some(column), factor * scaled(flat.extra[n]));
            }
            used.constant += run.constant * scaled(flat.extra[n]);
            for &(column, bytes) in &shared {
                used.add(Some(column), -scaled(bytes));
            }
            self.programme.add_row(..=(room - used.constant), &used.terms);
            // held after = held before + outputs - consumed - freed
            let bytes = |list: &[u32]| list.iter().map(|&v| flat.bytes[v as usize]).sum::<i64>();
            let made = scaled(bytes(flat.outputs.get(n)) - bytes(flat.consumes.get(n)));
            let after = self.programme.add_column(0.0, 0.0..);
            let mut balance = before.clone();
            for &(column, factor) in &run.terms {
                balance.add(Some(column), factor * made);
            }
            balance.constant += run.constant * made;
            for &(v, column) in &freed {
                balance.add(Some(column), -scaled(flat.bytes[v]));
            }
            balance.add(Some(after), -1.0);
            self.programme.add_row(-balance.constant..=-balance.constant, &balance.terms);
            before = Sum { terms: vec![(after, 1.0)], constant: 0.0 };
        }
    }

    /// A variable for every operand of n that it may free in stage t: at most one if n runs, if no later node of the
    /// stage reads the value, and if it is not held afterwards. Being freed only helps, so no lower limit is needed.
    fn add_frees(&mut self, t: usize, n: usize) -> Vec<(usize, Col)> {
        let flat = self.flat;
        let operands = flat.inputs.get(n).iter().chain(flat.outputs.get(n));
        let operands = operands.filter(|v| !flat.consumes.get(n).contains(v));
        let mut frees = Vec::new();
        for v in operands.map(|&v| v as usize) {
            let free = self.programme.add_column(0.0, 0.0..=1.0);
            let mut blockers: Vec<Sum> = Vec::new();
            blockers.extend(self.held[t + 1][v].map(|c| Sum { terms: vec![(c, 1.0)], constant: 0.0 }));
            let later = flat.readers.get(v).iter().map(|&m| m as usize).filter(|&m| n < m && m <= t);
            blockers.extend(later.map(|m| self.run(t, m)));
            for mut blocker in blockers {
                // free + blocker <= 1
                blocker.add(Some(free), 1.0);
                self.programme.add_row(..=(1.0 - blocker.constant), &blocker.terms);
            }
            let mut run = self.run(t, n);
            run.add(Some(free), -1.0);
            self.require(&run, 0.0);
            frees.push((v, free));
        }
        frees
    }

    /// The bytes that n saves by reuse: pairs whose input it frees, each input and output once.
    ///
    /// The rule takes pairs in listed order. Where pairs compete the solver might choose another, which could save
    /// more; so only pairs that no earlier pair of the node competes with are offered.
    fn add_sharing(&mut self, n: usize, freed: &[(usize, Col)]) -> Vec<(Col, i64)> {
        let pairs: Vec<&[u32]> = self.flat.reuse.get(n).chunks_exact(2).collect();
        let mut shared = Vec::new();
        for (i, pair) in pairs.iter().enumerate() {
            let competes = pairs[..i].iter().any(|other| other[0] == pair[0] || other[1] == pair[1]);
            let free = freed.iter().find(|(v, _)| *v == pair[0] as usize);
            if let Some(&(_, free)) = free.filter(|_| !competes) {
                shared.push((free, self.flat.bytes[pair[1] as usize]));
            }
        }
        shared
    }

    /// Solves the programme; gives the computes found, if any, and whether they were proved the cheapest.
    fn solve(self, start: Option<&[u32]>, seconds: f64, seed: u64) -> (Option<Vec<u32>>, bool) {
        let Model { flat, programme, runs, held } = self;
        let n_columns = programme.num_cols();
        let Ok(mut model) = programme.try_optimise(Sense::Minimise) else { return (None, false) };
        model.make_quiet();
        model.set_option("time_limit", seconds.max(0.01));
        model.set_option("threads", 1);
        model.set_option("random_seed", (seed % (1 << 31)) as i32);
        model.set_option("mip_rel_gap", 1e-9);
        model.set_option("mip_abs_gap", 1e-9);
        if let Some(values) = start.and_then(|computes| start_values(flat, &runs, &held, computes, n_columns))
        {
            // A start that the solver refuses costs time and nothing else.
            let _ = model.try_set_solution(Some(&values), None, None, None);
        }
        let Ok(solved) = model.try_solve() else { return (None, false) };
        let values = solved.get_solution();
        let is_exact = solved.status() == HighsModelStatus::Optimal;
        let is_one = |column: Option<Col>| column.is_some_and(|c| values.columns()[c.index()] > HALF);
        let mut computes = Vec::new();
        for (t, stage) in runs.iter().enumerate() {
            computes.extend((0..t).filter(|&n| is_one(stage[n])).map(|n| n as u32));
            computes.push(t as u32);
        }
        // Without a solution the values describe no plan.
        let is_plan = flat.is_valid(&computes);
        if is_plan {
            flat.prune(&mut computes);
        }
        (is_plan.then_some(computes), is_plan && is_exact)
    }
}

/// The integer variables of a known plan; the solver completes the others.
fn start_values(
    flat: &Flat,
    runs: &[Vec<Option<Col>>],
    held: &[Vec<Option<Col>>],
    computes: &[u32],
    n_columns: usize,
) -> Option<Vec<f64>> {
    let stages = stages(flat.n_nodes(), computes)?;
    let mut values = vec![0.0; n_columns];
    let mut set = |column: Option<Col>| {
        if let Some(column) = column {
            values[column.index()] = 1.0;
        }
    };
    // Backwards: a value is held at the start of a stage if it is read before it is made again.
    let mut needed = flat.is_output.clone();
    (0..flat.n_values()).filter(|&v| needed[v]).for_each(|v| set(held[stages.len()][v]));
    for (t, stage) in stages.iter().enumerate().rev() {
        for &n in stage.iter().rev() {
            if (n as usize) < t {
                set(runs[t][n as usize]);
            }
            flat.outputs.get(n as usize).iter().for_each(|&v| needed[v as usize] = false);
            flat.inputs.get(n as usize).iter().for_each(|&v| needed[v as usize] = true);
        }
        (0..flat.n_values()).filter(|&v| needed[v]).for_each(|v| set(held[t][v]));
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_first_runs_and_refuse_other_orders() {
        assert_eq!(stages(3, &[0, 1, 1, 0, 2]), Some(vec![vec![0], vec![1], vec![0, 1, 2]]));
        assert_eq!(stages(3, &[0, 2, 1]), None);
        assert_eq!(stages(2, &[0, 1, 0]), None);
        assert_eq!(stages(2, &[0]), None);
    }
}
