//! The promises with stores on every model, planner, budget, number of threads and kind of store:
//!
//! ```text
//! cargo run --release -p remat --example swaps -- DIRECTORY [BUDGETS [MILLISECONDS [MODEL…]]]
//! ```
//!
//! `DIRECTORY` is where scratch files go; each planner gets that many budgets (11), and copies are late by up to so many
//! milliseconds (0).

#[path = "../tests/common/swaps.rs"]
mod swaps;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use swaps::{MODELS, Trial, check_model};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("name the directory for scratch files");
        std::process::exit(2);
    };
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (n_budgets, delay) = (number(11), Duration::from_millis(number(0)));
    let wanted: Vec<String> = arguments.collect();
    for (name, typed) in MODELS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begin = Instant::now();
        let seen = check_model(name, typed, &directory, Trial { n_budgets, delay, all: true });
        println!("{name}: {seen:?}, bits equal, peaks exact, {:.1} s", begin.elapsed().as_secs_f64());
    }
}
