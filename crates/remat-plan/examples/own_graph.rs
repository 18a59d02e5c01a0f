//! Plans a graph that is built here: a chain of layers with their gradients, from all memory down to the floor.
//!
//! `cargo run --release -p remat-plan --example own_graph` prints one line per budget, then the last plan as text.

use remat_plan::{Budget, Bytes, Outcome, Problem, Request, ValueId, memory_floor, solve};

const N_LAYERS: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = chain()?;
    let everything = solve(&problem, "save-all", &Request::new(Bytes(u64::MAX)))?;
    let peak = everything.plan().ok_or("keeping everything is always a plan")?.peak_bytes;
    println!("{}: {} nodes, {peak} without recomputation", problem.name, problem.nodes.len());
    println!("floor: {}", memory_floor(&problem));

    let mut last = None;
    for percent in [100.0, 80.0, 60.0, 40.0, 20.0] {
        let budget = Budget::Percent(percent).resolve(peak);
        let request = Request::new(budget).effort(0.2).seed(1);
        match solve(&problem, "best", &request)? {
            Outcome::Optimal(plan) | Outcome::Feasible(plan, _) => {
                let overhead = 100.0 * (plan.cost / problem.base_cost() - 1.0);
                println!(
                    "{percent:>4} %: peak {:>10}, {overhead:.1} % more cost",
                    plan.peak_bytes.to_string()
                );
                last = Some(plan);
            }
            Outcome::Infeasible { lowest_peak, why } => {
                println!("{percent:>4} %: no plan; the lowest peak found is {lowest_peak}: {why}");
            }
        }
    }
    if let Some(plan) = last {
        println!("\n{}", plan.to_text(&problem));
    }
    Ok(())
}

/// Layers that keep a large value for their gradient and hand a small one on; the update overwrites its weight.
fn chain() -> Result<Problem, Box<dyn std::error::Error>> {
    let mut step = Problem::builder("chain");
    let (small, large): (Bytes, Bytes) = ("1MiB".parse()?, "4MiB".parse()?);
    let mut hidden: Vec<ValueId> = vec![step.input("x", small)];
    let (mut weights, mut inner) = (Vec::new(), Vec::new());
    for i in 0..N_LAYERS {
        weights.push(step.input(format!("w{i}"), small));
        let module = format!("layers.{i}");
        let node = step.forward(format!("linear{i}"), 3e-3).module(&module).reads([hidden[i], weights[i]]);
        inner.push(node.makes(format!("z{i}"), large));
        let node = step.forward(format!("pool{i}"), 1e-3).module(&module).reads([inner[i]]);
        hidden.push(node.makes(format!("h{i}"), small));
    }
    let mut gradient = step.backward("loss", 1e-3).reads([hidden[N_LAYERS]]).makes("dh", small);
    for i in (0..N_LAYERS).rev() {
        let node = step.backward(format!("pool_grad{i}"), 1e-3).reads([inner[i], gradient]);
        let dz = node.makes_in_place_of(inner[i], format!("dz{i}"), large);
        let node = step.backward(format!("linear_grad{i}"), 6e-3).reads([dz, hidden[i], weights[i]]);
        let [dh, dw] = node.makes_all([("dh", small), ("dw", small)]);
        let update = step.optimizer(format!("update{i}"), 1e-4).reads([dw]).consumes([weights[i]]);
        let new_weight = update.makes(format!("new_w{i}"), small);
        step.output(new_weight);
        gradient = dh;
    }
    Ok(step.build()?)
}
