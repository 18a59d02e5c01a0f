//! Planner × budget on one problem file: cost above no recomputation, proven gap, and seconds.
//!
//! `cargo run --release -p remat-plan --example leaderboard -- PROBLEM.json [--planners a,b] [--time-limit 10] [--effort 1] [--seed 0] BUDGET...`

use remat_plan::{Budget, Bytes, PLANNERS, Problem, Request, explain, solve};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the first argument is a problem file")?;
    let problem = Problem::from_json(&std::fs::read_to_string(path)?)?;
    let (mut budgets, mut planners, mut time_limit, mut effort, mut seed) = (Vec::new(), None, None, None, 0);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--planners" => planners = Some(arguments.next().ok_or("--planners needs a list of names")?),
            "--time-limit" => {
                let seconds: f64 = arguments.next().ok_or("--time-limit needs seconds")?.parse()?;
                time_limit = Some(Duration::from_secs_f64(seconds));
            }
            "--effort" => effort = Some(arguments.next().ok_or("--effort needs a number")?.parse()?),
            "--seed" => seed = arguments.next().ok_or("--seed needs a number")?.parse()?,
            budget => budgets.push(budget.parse::<Budget>()?),
        }
    }
    let keep_all = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
    let keep_all = keep_all.plan().map_or(Bytes::ZERO, |plan| plan.peak_bytes);
    println!("{}: {} nodes, keep-all {keep_all}", problem.name, problem.nodes.len());
    println!(
        "{:<16}{:>12}{:>12}{:>12}{:>12}{:>9}",
        "planner", "budget", "peak", "overhead %", "gap %", "seconds"
    );
    for budget in budgets {
        let budget = budget.resolve(keep_all);
        for info in PLANNERS {
            if planners.as_ref().is_some_and(|names| !names.split(',').any(|name| name == info.name)) {
                continue;
            }
            let start = Instant::now();
            let outcome = solve(&problem, info.name, &Request { budget, time_limit, effort, seed })?;
            let seconds = start.elapsed().as_secs_f64();
            print!("{:<16}{:>12}", info.name, budget.to_string());
            match outcome.plan() {
                Some(plan) => {
                    let why = explain(&problem, plan)?;
                    let gap = why.gap_percent().map_or("-".to_string(), |gap| format!("{gap:.3}"));
                    println!(
                        "{:>12}{:>12.3}{gap:>12}{seconds:>9.2}",
                        why.peak.to_string(),
                        why.overhead_percent()
                    );
                }
                None => {
                    println!("  infeasible, lowest peak {}", outcome.to_plan(&problem, "", budget).peak_bytes)
                }
            }
        }
    }
    Ok(())
}
