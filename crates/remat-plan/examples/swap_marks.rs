//! What planners reach on the planning instances with stores: overhead over running every node once, in percent.
//!
//! `cargo run --release -p remat-plan --example swap_marks -- FOLDER PLANNER SECONDS [PART OF A NAME [FOLDER FOR PLANS]]`

use remat_plan::{Bytes, Problem, Request, solve};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// An instance, its budget, and the overhead to reach in percent.
const MARKS: [(&str, u64, f64); 9] = [
    ("g10_bert_b256_ssd", 42_949_672_960, 0.012),
    ("g10_resnet152_b1280", 42_949_672_960, 1.0),
    ("g10_resnet152_b1280_ssd", 42_949_672_960, 5.0),
    ("poet_transformer", 33_344_716, 2.8031),
    ("poet_transformer", 34_603_008, 0.0247),
    ("poet_transformer", 35_861_299, 0.0247),
    ("poet_resnet18_cifar", 919_628, 0.1760),
    ("poet_resnet18_cifar", 1_357_952, 0.1074),
    ("poet_resnet18_cifar", 1_796_275, 0.0518),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, planner, seconds, rest @ ..] = &arguments[..] else {
        return Err(
            "give a folder, a planner, seconds, and maybe a part of a name and a folder for plans".into()
        );
    };
    let limit = Duration::from_secs_f64(seconds.parse()?);
    println!(
        "{:<26} {:>12} {:>10} {:>10} {:>10} {:>8}",
        "instance", "budget", "mark", "overhead", "bound", "seconds"
    );
    for (name, budget, mark) in MARKS {
        if rest.first().is_some_and(|part| !name.contains(part.as_str())) {
            continue;
        }
        let problem = Problem::read(Path::new(folder).join(format!("{name}.json")))?;
        let begin = Instant::now();
        let outcome = solve(&problem, planner, &Request::new(Bytes(budget)).time_limit(limit))?;
        let time = begin.elapsed().as_secs_f64();
        let percent = |cost: f64| format!("{:.4}", 100.0 * (cost / problem.base_cost() - 1.0));
        if let (Some(plan), Some(to)) = (outcome.plan(), rest.get(1)) {
            plan.write(Path::new(to).join(format!("{name}.{budget}.json")), &problem)?;
        }
        let (overhead, bound) = match outcome.plan() {
            Some(plan) => (percent(plan.cost), plan.lower_bound.map_or("-".into(), percent)),
            None => ("none".to_string(), String::new()),
        };
        println!("{name:<26} {budget:>12} {mark:>10} {overhead:>10} {bound:>10} {time:>8.2}");
    }
    Ok(())
}
