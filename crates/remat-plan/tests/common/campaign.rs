//! What must hold for every planner on every small random graph; shared by a test and by the example `campaign`.
//!
//! In: a seed. Out: counts, and a sentence for every promise that was broken. Where exhaustive search finishes it is the
//! oracle; elsewhere the planners check each other, since no bound may exceed the cost of any plan.

use super::{Random, count, random_problem};
use remat_plan::{Bytes, Outcome, PLANNERS, Plan, Problem, Request, Why, memory_floor, solve};

/// Costs are sums of small whole numbers, so equal costs differ by rounding at most.
const TOLERANCE: f64 = 1e-9;
/// Work per planner: these graphs are tiny, and the oracle must not search for minutes.
const EFFORT: f64 = 0.02;

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
    /// Sentences that begin with the seed.
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
        check_request(&problem, seed, budget, floor, &mut tally);
    }
    tally
}

fn check_request(problem: &Problem, seed: u64, budget: u64, floor: u64, tally: &mut Tally) {
    tally.n_requests += 1;
    let request = Request { effort: Some(EFFORT), ..Request::new(Bytes(budget)) };
    let mut failures = Vec::new();
    let mut plans: Vec<(&str, Plan)> = Vec::new();
    let mut refusals: Vec<(&str, Why)> = Vec::new();
    for info in PLANNERS {
        match solve(problem, info.name, &request) {
            Err(bug) => failures.push(bug.to_string()),
            Ok(Outcome::Infeasible { lowest_peak, why }) => {
                if lowest_peak.0 <= budget {
                    let name = info.name;
                    failures.push(format!("{name} refuses although its own {lowest_peak} bytes fit"));
                }
                refusals.push((info.name, why));
            }
            Ok(Outcome::Optimal(plan) | Outcome::Feasible(plan, _)) => plans.push((info.name, plan)),
        }
    }
    for (name, plan) in &plans {
        tally.n_plans += 1;
        tally.n_proved += usize::from(plan.status == remat_plan::Status::Optimal);
        let (peak, cost) = count(problem, &plan.steps);
        if peak != plan.peak_bytes.0 || peak > budget || peak < floor {
            failures.push(format!("{name} has the peak {peak}, says {}, floor {floor}", plan.peak_bytes.0));
        }
        if (cost - plan.cost).abs() > TOLERANCE * cost {
            failures.push(format!("{name} costs {cost}, says {}", plan.cost));
        }
        if plan.planner != *name {
            failures.push(format!("{name} signs as {}", plan.planner));
        }
    }
    // A plan of anyone refutes a bound or a proof of anyone.
    let cheapest = plans.iter().map(|(_, plan)| plan.cost).reduce(f64::min);
    if let Some(cheapest) = cheapest {
        for (name, plan) in &plans {
            match plan.lower_bound {
                Some(bound) if bound > cheapest * (1.0 + TOLERANCE) + TOLERANCE => {
                    failures
                        .push(format!("the bound {bound} of {name} is above the cost {cheapest} of a plan"));
                }
                Some(_) => {}
                None => failures.push(format!("{name} gives no bound")),
            }
        }
        for (name, why) in refusals.iter().filter(|(_, why)| why.is_proof()) {
            failures.push(format!("{name} calls a feasible budget infeasible: {why}"));
        }
    }
    check_oracle(&plans, &refusals, &mut failures, tally);
    tally.failures.extend(
        failures
            .into_iter()
            .map(|failure| format!("seed {seed}, {} nodes, budget {budget}: {failure}", problem.nodes.len())),
    );
}

/// `best` must say what exhaustive search says, where that finished.
fn check_oracle(
    plans: &[(&str, Plan)],
    refusals: &[(&str, Why)],
    failures: &mut Vec<String>,
    tally: &mut Tally,
) {
    let plan_of = |name: &str| plans.iter().find(|(planner, _)| *planner == name).map(|(_, plan)| plan);
    let optimum = plan_of("exhaustive").filter(|plan| plan.status == remat_plan::Status::Optimal);
    let is_impossible = refusals.iter().any(|(name, why)| *name == "exhaustive" && why.is_proof());
    match (optimum, plan_of("best")) {
        (Some(optimum), found) => {
            tally.n_answered += 1;
            for (name, plan) in plans.iter().filter(|(_, plan)| plan.cost < optimum.cost * (1.0 - TOLERANCE))
            {
                failures.push(format!("{name} costs {}, below the optimum {}", plan.cost, optimum.cost));
            }
            match found {
                None => failures.push("best refuses a feasible budget".to_owned()),
                Some(plan) if plan.cost > optimum.cost * (1.0 + TOLERANCE) + TOLERANCE => {
                    failures.push(format!("best costs {}, the optimum is {}", plan.cost, optimum.cost));
                }
                Some(_) => {}
            }
        }
        (None, _) if is_impossible => {
            tally.n_answered += 1;
            tally.n_impossible += 1;
            let names: Vec<&str> = plans.iter().map(|(name, _)| *name).collect();
            if !names.is_empty() {
                failures.push(format!("there is no plan, says the oracle, but {names:?} have one"));
            }
        }
        _ => {}
    }
}
