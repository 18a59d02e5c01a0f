//! Every planner on many small random graphs, against exhaustive search and against each other.
//!
//! `cargo run --release -p remat-plan --example campaign -- [--graphs 100000] [--first-seed 0] [--max-nodes 12] [--threads 2]`
//!
//! Prints what was counted, and for every broken promise its seed: `--first-seed S --graphs 1` repeats it. What the race of
//! `best` makes of these graphs without the complete search is told as well, with the first misses. The result does not
//! depend on the number of threads. Exit code 1 if a promise is broken.

#[path = "../tests/common/mod.rs"]
mod common;

use common::campaign::{Tally, check_graph};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Graphs after which progress is told.
const CHUNK: u64 = 5000;
/// Misses of the race that are listed.
const N_LISTED: usize = 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut n_graphs, mut first_seed, mut max_nodes, mut n_threads) = (100_000u64, 0u64, 12usize, 2usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--graphs" => n_graphs = value.parse()?,
            "--first-seed" => first_seed = value.parse()?,
            "--max-nodes" => max_nodes = value.parse()?,
            "--threads" => n_threads = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..n_threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= n_graphs {
                        return;
                    }
                    let tally = check_graph(first_seed + index, max_nodes);
                    tally.failures.iter().for_each(|failure| eprintln!("{failure}"));
                    total.lock().expect("no thread panics with the lock").add(tally);
                    if (index + 1).is_multiple_of(CHUNK) {
                        eprintln!(
                            "{} of {n_graphs} graphs, {:.0} s",
                            index + 1,
                            begin.elapsed().as_secs_f64()
                        );
                    }
                }
            });
        }
    });
    let mut tally = total.into_inner().expect("no thread panics with the lock");
    tally.failures.sort();
    println!("graphs of up to {max_nodes} nodes     {:>9}", tally.n_graphs);
    println!("budgets                        {:>9}", tally.n_requests);
    println!("answered by exhaustive search  {:>9}", tally.n_answered);
    println!("  of these without any plan    {:>9}", tally.n_impossible);
    println!("plans checked                  {:>9}", tally.n_plans);
    println!("  of these proved optimal      {:>9}", tally.n_proved);
    println!("budgets that need a recompute  {:>9}", tally.n_hard);
    println!("  race proves its optimum      {:>9}", tally.n_race_proved);
    println!("  race finds a costlier plan   {:>9}", tally.n_race_dearer);
    println!("  race finds no plan           {:>9}", tally.n_race_refused);
    if tally.n_race_dearer > 0 {
        println!(
            "  mean and worst excess        {:>8.2}% {:.2}%",
            100.0 * tally.race_excess / tally.n_race_dearer as f64,
            100.0 * tally.worst_race_excess
        );
    }
    println!("broken promises                {:>9}", tally.failures.len());
    println!("seconds                        {:>9.0}", begin.elapsed().as_secs_f64());
    tally.misses.sort();
    tally.misses.iter().take(N_LISTED).for_each(|miss| println!("{miss}"));
    tally.failures.iter().for_each(|failure| println!("{failure}"));
    Ok(if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
