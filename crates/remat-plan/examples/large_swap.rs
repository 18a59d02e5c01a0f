//! How long `best` takes for a large step with a store, at half of the memory and below the state.
//!
//! `cargo run --release -p remat-plan --example large_swap -- [LAYERS [SECONDS]]`
//!
//! 4,300 layers are 30,000 nodes. The time of a request includes the check of its plan; exit code 1 if one takes longer than
//! the time limit, or has no plan.

#[path = "../tests/common/mod.rs"]
mod common;

use common::stores::{budget_below_state, network_with_store};
use remat_plan::{Bytes, Request, solve};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let n_layers = arguments.next().map_or(Ok(4_300), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(10.0), |text| text.parse())?;
    let problem = network_with_store(7, n_layers);
    let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
    let everything = everything.plan().ok_or("everything does not fit")?.peak_bytes;
    println!("{} nodes, {} values", problem.nodes.len(), problem.values.len());
    let mut code = ExitCode::SUCCESS;
    for (name, budget) in
        [("half", Bytes(everything.0 / 2)), ("below the state", budget_below_state(&problem))]
    {
        let begin = Instant::now();
        let request = Request::new(budget).time_limit(Duration::from_secs_f64(seconds));
        let outcome = solve(&problem, "best", &request)?;
        let time = begin.elapsed().as_secs_f64();
        let Some(plan) = outcome.plan() else {
            println!("{name}: no plan, {time:.1} s");
            code = ExitCode::FAILURE;
            continue;
        };
        let overhead = 100.0 * (plan.cost / problem.base_cost() - 1.0);
        let gap = 100.0 * (plan.cost / plan.lower_bound.unwrap_or(0.0) - 1.0);
        println!("{name}: {budget}, overhead {overhead:.3} %, gap {gap:.3} %, {time:.1} s");
        if time > seconds {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
