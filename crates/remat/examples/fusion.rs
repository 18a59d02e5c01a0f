//! What fusion changes before anything runs: nodes, memory, predicted time, and what half of the memory costs.
//!
//! ```text
//! cargo run --release -p remat --example fusion -- [model ...]
//! ```
//! One line per model without and with fusion. The overhead is from the planner `best` for half of the unfused
//! keep-all peak, in percent of the step without recomputation of the same line; both lines have the same bytes to
//! live with.

use remat::fuse::fuse;
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, compile, prepare_step};
use remat::profile::Machine;
use remat::step::training_step;
use remat_plan::{Bytes, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut models: Vec<String> = std::env::args().skip(1).collect();
    if models.is_empty() {
        models = ["resnet50", "unet", "transformer"].map(str::to_owned).into();
    }
    let machine = Machine::load(2, |_, _| {})?.0;
    println!(
        "{:<20}{:>7}{:>14}{:>14}{:>10}{:>12}{:>10}",
        "model", "nodes", "keep-all", "floor", "step", "at half", "overhead"
    );
    for name in &models {
        let forward = model::find(name)?.build(&Options::new())?.into_graph();
        let apart = training_step(&forward, &Optimizer::adam(1e-3))?;
        let fused = fuse(&apart);
        let mut budget = None;
        for (label, step) in [("", apart), (" fused", fused)] {
            let prepared = prepare_step(step, Costs::Analytic(machine.clone()), |_, _| {})?;
            let peak = prepared.keep_all.peak();
            let budget = *budget.get_or_insert(Bytes(peak.0 / 2));
            let base = prepared.problem.problem.base_cost();
            let (seconds, overhead) = match compile(&prepared, "best", &Request::new(budget))? {
                Fit::Fits(program) => {
                    let overhead = 100.0 * (program.plan().cost / base - 1.0);
                    (format!("{:.3} s", program.plan().cost), format!("{overhead:.2} %"))
                }
                Fit::Refused(_) => ("refused".to_owned(), String::new()),
            };
            println!(
                "{:<20}{:>7}{:>14}{:>14}{:>10}{seconds:>12}{overhead:>10}",
                format!("{name}{label}"),
                prepared.problem.problem.nodes.len(),
                peak.to_string(),
                prepared.floor.bytes.to_string(),
                format!("{base:.3} s"),
            );
        }
    }
    Ok(())
}
