//! What must hold for every planner on every small random problem with stores; shared by a test and by the example `campaign`.
//!
//! In: a seed. Out: counts, and a sentence for every promise that was broken. Every plan passes our checker (in `solve`), and the
//! external one where it uses stores; no plan is below the optimum of exhaustive search, no bound above it, and no plan exists where
//! someone proved that there is none. How often `best` is the optimum is counted, and how often its race is without the complete search of
//! tiny problems, which says what it is worth on larger ones.

use super::Random;
use super::external::External;
use super::stores::random_problem_with_stores;
use remat_plan::planners::race;
use remat_plan::{Bytes, Outcome, PLANNERS, Plan, Problem, Request, Status, Why, check, memory_floor, solve};

/// Costs are sums of eighths, so equal costs differ by rounding at most.
const TOLERANCE: f64 = 1e-9;
/// Work per planner: these problems are tiny.
const EFFORT: f64 = 1e-3;
const EFFORT_OF_RACE: f64 = 2e-3;
const EFFORT_OF_ORACLE: f64 = 1.0;
/// The name of the race in messages; its plans are signed by `best`.
const RACE: &str = "race";

/// What a campaign counted.
#[derive(Clone, Default, Debug)]
pub(crate) struct StoreTally {
    pub(crate) n_problems: usize,
    pub(crate) n_requests: usize,
    /// Budgets below the state of the problem.
    pub(crate) n_below_state: usize,
    /// Requests on which exhaustive search finished, and of these those without any plan.
    pub(crate) n_answered: usize,
    pub(crate) n_impossible: usize,
    /// Plans, those that use stores, those of them with state at rest in a store, and those that the external checker saw.
    pub(crate) n_plans: usize,
    pub(crate) n_moving: usize,
    pub(crate) n_resting: usize,
    pub(crate) n_external: usize,
    /// Answered requests whose optimum is above the cost of all nodes or uses stores; of these, how often `best` costs the same,
    /// more, and has no plan; and how often its bound is above the cost of all nodes.
    pub(crate) n_hard: usize,
    pub(crate) n_equal: usize,
    pub(crate) n_costlier: usize,
    pub(crate) n_refused: usize,
    pub(crate) n_bounded: usize,
    /// Sum and largest of the excess of the more expensive plans, as a part of the optimum.
    pub(crate) excess: f64,
    pub(crate) worst_excess: f64,
    /// The same of the race alone.
    pub(crate) n_race_costlier: usize,
    pub(crate) n_race_refused: usize,
    pub(crate) race_excess: f64,
    pub(crate) worst_race_excess: f64,
    /// Requests on which `best` missed the optimum, and broken promises, as sentences that begin with the seed.
    pub(crate) misses: Vec<String>,
    pub(crate) failures: Vec<String>,
}

impl StoreTally {
    pub(crate) fn add(&mut self, other: StoreTally) {
        self.n_problems += other.n_problems;
        self.n_requests += other.n_requests;
        self.n_below_state += other.n_below_state;
        self.n_answered += other.n_answered;
        self.n_impossible += other.n_impossible;
        self.n_plans += other.n_plans;
        self.n_moving += other.n_moving;
        self.n_resting += other.n_resting;
        self.n_external += other.n_external;
        self.n_hard += other.n_hard;
        self.n_equal += other.n_equal;
        self.n_costlier += other.n_costlier;
        self.n_refused += other.n_refused;
        self.n_bounded += other.n_bounded;
        self.excess += other.excess;
        self.worst_excess = self.worst_excess.max(other.worst_excess);
        self.n_race_costlier += other.n_race_costlier;
        self.n_race_refused += other.n_race_refused;
        self.race_excess += other.race_excess;
        self.worst_race_excess = self.worst_race_excess.max(other.worst_race_excess);
        self.misses.extend(other.misses);
        self.failures.extend(other.failures);
    }

    /// What a command prints.
    pub(crate) fn lines(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("problems with stores", self.n_problems),
            ("budgets", self.n_requests),
            ("  of these below the state", self.n_below_state),
            ("answered by exhaustive search", self.n_answered),
            ("  of these without any plan", self.n_impossible),
            ("plans checked", self.n_plans),
            ("  that use stores", self.n_moving),
            ("  with state in a store", self.n_resting),
            ("  by the external checker too", self.n_external),
            ("budgets that need more", self.n_hard),
            ("  best is the optimum", self.n_equal),
            ("  best costs more", self.n_costlier),
            ("  best finds no plan", self.n_refused),
            ("  best has a useful bound", self.n_bounded),
            ("  race alone costs more", self.n_race_costlier),
            ("  race alone finds no plan", self.n_race_refused),
        ]
    }
}

/// Checks every planner on the problem of a seed: below the floor, at it, at two budgets above it, and at
/// one below the state where there is room for that.
pub(crate) fn check_problem(seed: u64, max_nodes: usize, external: &mut Option<External>) -> StoreTally {
    let problem = random_problem_with_stores(seed, max_nodes);
    let floor = memory_floor(&problem).bytes.0;
    let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all is valid");
    let all = everything.plan().expect("everything fits in all memory").peak_bytes.0;
    let state =
        problem.fixed_bytes.0 + problem.carries.iter().map(|pair| problem.bytes(pair.0).0).sum::<u64>();
    let mut random = Random(seed ^ 0xB0D6_E75E);
    let range = all.saturating_sub(floor) as usize;
    let mut budgets = vec![floor.saturating_sub(1), floor];
    budgets.extend((0..2).map(|_| floor + random.below(range + 1) as u64));
    budgets.extend((state > floor).then(|| u64::midpoint(floor, state)));
    budgets.sort_unstable();
    budgets.dedup();
    let mut tally = StoreTally { n_problems: 1, ..StoreTally::default() };
    for budget in budgets {
        tally.n_requests += 1;
        tally.n_below_state += usize::from(budget < state);
        let mut answers = Answers { plans: Vec::new(), refusals: Vec::new(), failures: Vec::new() };
        answers.collect(&problem, budget);
        answers.check_plans(&problem, budget, floor, external, &mut tally);
        let miss = answers.check_oracle(&problem, &mut tally);
        let name = format!("seed {seed}, {} nodes, budget {budget}", problem.nodes.len());
        tally.failures.extend(answers.failures.iter().map(|what| format!("{name}: {what}")));
        tally.misses.extend(miss.map(|what| format!("{name}: {what}")));
    }
    tally
}

/// What all planners say to one request.
struct Answers {
    plans: Vec<(&'static str, Plan)>,
    refusals: Vec<(&'static str, Why)>,
    failures: Vec<String>,
}

impl Answers {
    fn collect(&mut self, problem: &Problem, budget: u64) {
        for info in PLANNERS {
            let effort = if info.name == "exhaustive" { EFFORT_OF_ORACLE } else { EFFORT };
            match solve(problem, info.name, &Request::new(Bytes(budget)).effort(effort)) {
                Err(bug) => self.failures.push(bug.to_string()),
                Ok(outcome) => self.add(info.name, outcome, budget),
            }
        }
        let outcome = race(problem, &Request::new(Bytes(budget)).effort(EFFORT_OF_RACE));
        let faults = outcome.plan().map(|plan| check(problem, plan)).unwrap_or_default();
        self.failures.extend(faults.iter().map(|fault| format!("{RACE}: {fault}")));
        self.add(RACE, outcome, budget);
    }

    fn add(&mut self, name: &'static str, outcome: Outcome, budget: u64) {
        match outcome {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => self.plans.push((name, plan)),
            Outcome::Infeasible { lowest_peak, why } => {
                if lowest_peak.0 <= budget {
                    self.failures.push(format!("{name} refuses although its own {lowest_peak} bytes fit"));
                }
                self.refusals.push((name, why));
            }
        }
    }

    fn plan_of(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|(planner, _)| *planner == name).map(|(_, plan)| plan)
    }

    /// Every plan is what it says, has a bound, and refutes no bound or proof of another.
    fn check_plans(
        &mut self,
        problem: &Problem,
        budget: u64,
        floor: u64,
        external: &mut Option<External>,
        tally: &mut StoreTally,
    ) {
        let cheapest = self.plans.iter().map(|(_, plan)| plan.cost).fold(f64::INFINITY, f64::min);
        for (name, plan) in &self.plans {
            let peak = plan.peak_bytes.0;
            tally.n_plans += 1;
            tally.n_moving += usize::from(plan.uses_stores());
            tally.n_resting += usize::from(!plan.stored.is_empty());
            if peak > budget || peak < floor {
                self.failures.push(format!("{name} has the peak {peak}, the floor is {floor}"));
            }
            match plan.lower_bound {
                Some(bound) if bound > cheapest * (1.0 + TOLERANCE) + TOLERANCE => self
                    .failures
                    .push(format!("the bound {bound} of {name} is above the cost {cheapest} of a plan")),
                Some(_) => {}
                None => self.failures.push(format!("{name} gives no bound")),
            }
            if let Some(external) = external.as_mut().filter(|_| plan.uses_stores()) {
                let (is_valid, answer) = external.ask(problem, plan);
                tally.n_external += 1;
                if !is_valid {
                    self.failures.push(format!("{name}, says the external checker: {answer}"));
                }
            }
        }
        if !self.plans.is_empty() {
            for (name, why) in self.refusals.iter().filter(|(_, why)| why.is_proof()) {
                self.failures.push(format!("{name} calls a feasible budget infeasible: {why}"));
            }
        }
    }

    /// Compares with exhaustive search where that finished. The sentence says where `best` missed the optimum.
    fn check_oracle(&mut self, problem: &Problem, tally: &mut StoreTally) -> Option<String> {
        let is_proof = |(name, why): &(&str, Why)| *name == "exhaustive" && why.is_proof();
        if self.refusals.iter().any(is_proof) {
            tally.n_answered += 1;
            tally.n_impossible += 1;
            return None;
        }
        let optimal = self.plan_of("exhaustive").filter(|plan| plan.status == Status::Optimal)?;
        let (optimum, is_moving) = (optimal.cost, optimal.uses_stores());
        tally.n_answered += 1;
        for (name, plan) in &self.plans {
            if plan.cost < optimum * (1.0 - TOLERANCE) {
                self.failures.push(format!("{name} costs {}, below the optimum {optimum}", plan.cost));
            }
        }
        let base = problem.base_cost();
        if optimum <= base * (1.0 + TOLERANCE) && !is_moving {
            return None;
        }
        tally.n_hard += 1;
        match self.plan_of(RACE) {
            None => tally.n_race_refused += 1,
            Some(plan) if plan.cost > optimum * (1.0 + TOLERANCE) => {
                let excess = plan.cost / optimum - 1.0;
                tally.n_race_costlier += 1;
                tally.race_excess += excess;
                tally.worst_race_excess = tally.worst_race_excess.max(excess);
            }
            Some(_) => {}
        }
        let Some(plan) = self.plan_of("best") else {
            tally.n_refused += 1;
            return Some(format!("best finds no plan, the optimum is {optimum}"));
        };
        tally.n_bounded +=
            usize::from(plan.lower_bound.is_some_and(|bound| bound > base * (1.0 + TOLERANCE)));
        if plan.cost <= optimum * (1.0 + TOLERANCE) {
            tally.n_equal += 1;
            return None;
        }
        let excess = plan.cost / optimum - 1.0;
        tally.n_costlier += 1;
        tally.excess += excess;
        tally.worst_excess = tally.worst_excess.max(excess);
        Some(format!("best costs {}, the optimum is {optimum}", plan.cost))
    }
}
