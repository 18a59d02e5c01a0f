//! Planner × instance × budget: cost, cost above no recomputation, proven gap, and seconds.
//!
//! `cargo run --release -p remat-plan --example leaderboard -- [PROBLEM.json ...] [BUDGET ...] [--planners a,b] [--time-limit 10] [--effort 1] [--seed 0]`
//!
//! Without files it plans generated networks; without budgets 80 %, 60 % and 40 % of the peak of keeping everything.
//! `cargo xtask leaderboard` adds the problems of our own models. Exit code 1 if another planner beats `best`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::network;
use remat_plan::{Budget, Bytes, Outcome, PLANNERS, Problem, Request, explain, solve};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Layers of the generated networks.
const GENERATED: [usize; 3] = [12, 48, 192];
const DEFAULT_BUDGETS: [&str; 3] = ["80%", "60%", "40%"];
/// Equal costs differ by the rounding of their sums.
const TOLERANCE: f64 = 1e-9;

/// What was asked for.
struct Arguments {
    problems: Vec<Problem>,
    budgets: Vec<Budget>,
    planners: Vec<String>,
    limits: Request,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut result = Arguments {
        problems: Vec::new(),
        budgets: Vec::new(),
        planners: PLANNERS.iter().map(|info| info.name.to_owned()).collect(),
        limits: Request::new(Bytes::ZERO),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--planners" => result.planners = value()?.split(',').map(str::to_owned).collect(),
            "--time-limit" => {
                result.limits.time_limit = Some(Duration::try_from_secs_f64(value()?.parse()?)?);
            }
            "--effort" => result.limits.effort = Some(value()?.parse()?),
            "--seed" => result.limits.seed = value()?.parse()?,
            file if file.ends_with(".json") => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
                result.problems.push(Problem::from_json(&text).map_err(|error| format!("{file}: {error}"))?);
            }
            budget => result.budgets.push(budget.parse()?),
        }
    }
    if result.problems.is_empty() {
        result.problems.extend(GENERATED.map(|n_layers| network(n_layers as u64, n_layers)));
    }
    if result.budgets.is_empty() {
        result.budgets = DEFAULT_BUDGETS.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    }
    Ok(result)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut n_beaten = 0;
    let Arguments { problems, budgets, planners, limits } = arguments()?;
    for problem in &problems {
        let keep_all = solve(problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
        let keep_all = keep_all.plan().map_or(Bytes::ZERO, |plan| plan.peak_bytes);
        println!("{}: {} nodes, keep-all peak {keep_all}", problem.name, problem.nodes.len());
        println!(
            "{:<16}{:>12}{:>12}{:>14}{:>12}{:>10}{:>9}",
            "planner", "budget", "peak", "cost", "overhead %", "gap %", "seconds"
        );
        for budget in &budgets {
            let budget = budget.resolve(keep_all);
            let mut costs = Vec::new();
            for planner in &planners {
                let cost = print_line(problem, planner, &Request { budget, ..limits.clone() })?;
                costs.push((planner.as_str(), cost.unwrap_or(f64::INFINITY)));
            }
            let best = costs.iter().find(|(planner, _)| *planner == "best").map(|(_, cost)| *cost);
            for (planner, cost) in costs {
                if best.is_some_and(|best| best > cost * (1.0 + TOLERANCE)) {
                    println!("{planner} beats best");
                    n_beaten += 1;
                }
            }
        }
        println!();
    }
    Ok(if n_beaten == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plans, prints a line and returns the cost, if there is a plan.
fn print_line(problem: &Problem, planner: &str, request: &Request) -> Result<Option<f64>, Box<dyn Error>> {
    let begin = Instant::now();
    let outcome = solve(problem, planner, request)?;
    let seconds = begin.elapsed().as_secs_f64();
    print!("{planner:<16}{:>12}", request.budget.to_string());
    match &outcome {
        Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
            let why = explain(problem, plan)?;
            let gap = why.gap_percent().map_or("-".to_string(), |gap| format!("{gap:.3}"));
            let peak = why.peak.to_string();
            println!("{peak:>12}{:>14.6}{:>12.3}{gap:>10}{seconds:>9.2}", why.cost, why.overhead_percent());
        }
        Outcome::Infeasible { lowest_peak, why } => {
            let verdict = if why.is_proof() { "impossible" } else { "not reached" };
            println!("  {verdict}, lowest peak {lowest_peak}, {seconds:.2} s");
        }
    }
    Ok(outcome.plan().map(|plan| plan.cost))
}
