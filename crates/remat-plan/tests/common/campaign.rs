//! What must hold for every planner on every small random graph; shared by a test and by the example `campaign`.
//!
//! In: a seed. Out: counts, and a sentence for every promise that was broken. Where exhaustive search finishes it is the
//! oracle; elsewhere the planners check each other, since no bound may exceed the cost of any plan. `best` solves graphs of
//! this size by the same exhaustive search, so its race of planners and local search runs beside it as `race`: what it
//! says must be true and no worse than what any other planner says, and how often it misses the optimum is counted.

use super::{Random, count, random_problem};
use remat_plan::planners::race;
use remat_plan::{Bytes, Outcome, PLANNERS, Plan, Problem, Request, Status, Why, check, memory_floor, solve};

/// Costs are sums of small whole numbers, so equal costs differ by rounding at most.
const TOLERANCE: f64 = 1e-9;
/// Work per planner: these graphs are tiny. The oracle may try fewer states than `best` does by itself.
const EFFORT: f64 = 3e-4;
const EFFORT_OF_RACE: f64 = 2e-3;
const EFFORT_OF_ORACLE: f64 = 0.015;
/// The name of the race in messages; its plans are signed by `best`.
const RACE: &str = "race";

/// What a campaign counted.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) n_graphs: usize,
    pub(crate) n_requests: usize,
    /// Requests on which exhaustive search finished, and of these those without any plan.
    pub(crate) n_answered: usize,
    pub(crate) n_impossible: usize,
    /// Plans that were checked, and those proved optimal by their planner.
    pub(crate) n_plans: usize,
    pub(crate) n_proved: usize,
    /// Answered requests with a plan in which something must be recomputed; of these, how many the race
    /// proved optimal, on how many it found a more expensive plan and on how many none.
    pub(crate) n_hard: usize,
    pub(crate) n_race_proved: usize,
    pub(crate) n_race_costlier: usize,
    pub(crate) n_race_refused: usize,
    /// Sum and largest of the excess of the more expensive plans, as a part of the optimum.
    pub(crate) race_excess: f64,
    pub(crate) worst_race_excess: f64,
    /// Requests on which the race missed the optimum, as sentences that begin with the seed.
    pub(crate) misses: Vec<String>,
    /// Broken promises, as sentences that begin with the seed.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.n_graphs += other.n_graphs;
        self.n_requests += other.n_requests;
        self.n_answered += other.n_answered;
        self.n_impossible += other.n_impossible;
        self.n_plans += other.n_plans;
        self.n_proved += other.n_proved;
        self.n_hard += other.n_hard;
        self.n_race_proved += other.n_race_proved;
        self.n_race_costlier += other.n_race_costlier;
        self.n_race_refused += other.n_race_refused;
        self.race_excess += other.race_excess;
        self.worst_race_excess = self.worst_race_excess.max(other.worst_race_excess);
        self.misses.extend(other.misses);
        self.failures.extend(other.failures);
    }
}

/// Checks every planner on the graph of a seed, at the floor, below it and at two budgets in between.
pub(crate) fn check_graph(seed: u64, max_nodes: usize) -> Tally {
    let problem = random_problem(seed, max_nodes);
    let floor = memory_floor(&problem).bytes.0;
    let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("save-all is valid");
    let all = everything.plan().expect("everything fits in all memory").peak_bytes.0;
    let mut random = Random(seed ^ 0xB0D6_E75E);
    let range = all.saturating_sub(floor) as usize;
    let mut budgets = vec![floor.saturating_sub(1), floor];
    budgets.extend((0..2).map(|_| floor + random.below(range + 1) as u64));
    budgets.sort_unstable();
    budgets.dedup();
    let mut tally = Tally { n_graphs: 1, ..Tally::default() };
    for budget in budgets {
        let mut answers = Answers::collect(&problem, budget);
        answers.check_plans(&problem, budget, floor);
        answers.check_each_other();
        answers.check_oracle(&problem, &mut tally);
        let signed = |what: Vec<String>| {
            what.into_iter()
                .map(|what| format!("seed {seed}, {} nodes, budget {budget}: {what}", problem.nodes.len()))
                .collect::<Vec<_>>()
        };
        tally.n_requests += 1;
        tally.n_plans += answers.plans.len();
        tally.n_proved += answers.plans.iter().filter(|(_, plan)| plan.status == Status::Optimal).count();
        tally.failures.extend(signed(answers.failures));
        tally.misses.extend(signed(answers.misses));
    }
    tally
}

/// What all planners say to one request.
struct Answers {
    plans: Vec<(&'static str, Plan)>,
    refusals: Vec<(&'static str, Why, Bytes)>,
    failures: Vec<String>,
    misses: Vec<String>,
}

impl Answers {
    fn collect(problem: &Problem, budget: u64) -> Answers {
        let mut answers =
            Answers { plans: Vec::new(), refusals: Vec::new(), failures: Vec::new(), misses: Vec::new() };
        let request = Request { effort: Some(EFFORT), ..Request::new(Bytes(budget)) };
        for info in PLANNERS {
            let effort = if info.name == "exhaustive" { EFFORT_OF_ORACLE } else { EFFORT };
            match solve(problem, info.name, &Request { effort: Some(effort), ..request.clone() }) {
                Err(bug) => answers.failures.push(bug.to_string()),
                Ok(outcome) => answers.add(info.name, outcome, budget),
            }
        }
        let outcome = race(problem, &Request { effort: Some(EFFORT_OF_RACE), ..request });
        let faults = outcome.plan().map(|plan| check(problem, plan)).unwrap_or_default();
        answers.failures.extend(faults.iter().map(|fault| format!("{RACE}: {fault}")));
        answers.add(RACE, outcome, budget);
        answers
    }

    fn add(&mut self, name: &'static str, outcome: Outcome, budget: u64) {
        match outcome {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => self.plans.push((name, plan)),
            Outcome::Infeasible { lowest_peak, why } => {
                if lowest_peak.0 <= budget {
                    self.failures.push(format!("{name} refuses although its own {lowest_peak} bytes fit"));
                }
                self.refusals.push((name, why, lowest_peak));
            }
        }
    }

    fn plan_of(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|(planner, _)| *planner == name).map(|(_, plan)| plan)
    }

    /// Every plan is what it says, counted independently.
    fn check_plans(&mut self, problem: &Problem, budget: u64, floor: u64) {
        for (name, plan) in &self.plans {
            let (peak, cost) = count(problem, &plan.steps);
            if peak != plan.peak_bytes.0 || peak > budget || peak < floor {
                let says = plan.peak_bytes.0;
                self.failures.push(format!("{name} has the peak {peak}, says {says}, floor {floor}"));
            }
            if (cost - plan.cost).abs() > TOLERANCE * cost {
                self.failures.push(format!("{name} costs {cost}, says {}", plan.cost));
            }
            if plan.planner != if *name == RACE { "best" } else { name } {
                self.failures.push(format!("{name} signs as {}", plan.planner));
            }
        }
    }

    /// A plan of anyone refutes a bound or a proof of anyone, and `best` has the best plan of all.
    fn check_each_other(&mut self) {
        self.check_lowest_peak();
        let Some(cheapest) = self.plans.iter().map(|(_, plan)| plan.cost).reduce(f64::min) else { return };
        let is_above = |cost: f64, other: f64| cost > other * (1.0 + TOLERANCE) + TOLERANCE;
        for (name, plan) in &self.plans {
            match plan.lower_bound {
                Some(bound) if is_above(bound, cheapest) => self
                    .failures
                    .push(format!("the bound {bound} of {name} is above the cost {cheapest} of a plan")),
                Some(_) => {}
                None => self.failures.push(format!("{name} gives no bound")),
            }
        }
        for (name, why, _) in self.refusals.iter().filter(|(_, why, _)| why.is_proof()) {
            self.failures.push(format!("{name} calls a feasible budget infeasible: {why}"));
        }
        // The oracle is the only planner to which the race may lose.
        let others = |but: &[&str]| {
            let others = self.plans.iter().filter(|(name, _)| !but.contains(name));
            others.map(|(_, plan)| plan.cost).reduce(f64::min)
        };
        for (name, rival) in [("best", others(&[])), (RACE, others(&["exhaustive", "best", "ilp"]))] {
            let own = self.plan_of(name).map_or(f64::INFINITY, |plan| plan.cost);
            if let Some(rival) = rival.filter(|&rival| is_above(own, rival)) {
                self.failures.push(format!("{name} costs {own}, another planner {rival}"));
            }
        }
    }

    /// A refusal names the lowest peak to ask for instead; no other planner may have seen a lower one than `best`.
    fn check_lowest_peak(&mut self) {
        let is_best = |name: &str| ["best", RACE].contains(&name);
        let others = self.refusals.iter().filter(|(name, ..)| !is_best(name)).map(|(_, _, peak)| *peak);
        let Some(lowest) = others.min() else { return };
        for (name, _, peak) in self.refusals.iter().filter(|(name, ..)| is_best(name)) {
            if *peak > lowest {
                self.failures.push(format!("{name} says the lowest peak is {peak}, another {lowest}"));
            }
        }
    }

    /// Compares with exhaustive search where that finished: `best` must agree, and the misses of the race are counted.
    fn check_oracle(&mut self, problem: &Problem, tally: &mut Tally) {
        let optimum = self.plan_of("exhaustive").filter(|plan| plan.status == Status::Optimal);
        let Some(optimum) = optimum.map(|plan| plan.cost) else {
            if self.refusals.iter().any(|(name, why, _)| *name == "exhaustive" && why.is_proof()) {
                tally.n_answered += 1;
                tally.n_impossible += 1;
                let names: Vec<&str> = self.plans.iter().map(|(name, _)| *name).collect();
                if !names.is_empty() {
                    self.failures.push(format!("there is no plan, says the oracle, but {names:?} have one"));
                }
            }
            return;
        };
        tally.n_answered += 1;
        for (name, plan) in &self.plans {
            if plan.cost < optimum * (1.0 - TOLERANCE) {
                self.failures.push(format!("{name} costs {}, below the optimum {optimum}", plan.cost));
            }
        }
        if self.plan_of("best").is_none_or(|plan| plan.status != Status::Optimal) {
            self.failures.push("best does not prove what the oracle proves".to_owned());
        }
        if optimum <= problem.base_cost() * (1.0 + TOLERANCE) {
            return;
        }
        tally.n_hard += 1;
        let miss = match self.plan_of(RACE) {
            None => {
                tally.n_race_refused += 1;
                Some(format!("race finds no plan, the optimum is {optimum}"))
            }
            Some(plan) if plan.cost > optimum * (1.0 + TOLERANCE) => {
                let excess = plan.cost / optimum - 1.0;
                tally.n_race_costlier += 1;
                tally.race_excess += excess;
                tally.worst_race_excess = tally.worst_race_excess.max(excess);
                Some(format!("race costs {}, the optimum is {optimum}", plan.cost))
            }
            Some(plan) => {
                tally.n_race_proved += usize::from(plan.status == Status::Optimal);
                None
            }
        };
        self.misses.extend(miss);
    }
}
