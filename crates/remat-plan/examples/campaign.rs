//! Every planner on many small random graphs, against exhaustive search and against each other.
//!
//! `cargo run --release -p remat-plan --example campaign -- [--graphs 100000] [--first-seed 0] [--max-nodes 12] [--threads 2]`
//! `cargo run --release -p remat-plan --example campaign -- --stores 20000 [--first-seed 0] [--max-nodes 6] [--threads 2]`
//!
//! The second form is for problems with stores.
//!
//! Prints what was counted, and for every broken promise its seed: `--first-seed S --graphs 1` repeats it. What the race of
//! `best` makes of these graphs without the complete search is told as well, with the first misses. The result does not
//! depend on the number of threads. Exit code 1 if a promise is broken.

#[path = "../tests/common/mod.rs"]
mod common;

use common::campaign::{Tally, check_graph};
use common::external::{External, NO_CHECKER};
use common::store_campaign::{StoreTally, check_problem};
use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Graphs after which progress is told.
const CHUNK: u64 = 5000;
/// Misses of the race that are listed.
const N_LISTED: usize = 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut n_graphs, mut n_problems, mut first_seed) = (100_000u64, None::<u64>, 0u64);
    let (mut max_nodes, mut n_threads) = (None::<usize>, 2usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--graphs" => n_graphs = value.parse()?,
            "--stores" => n_problems = Some(value.parse()?),
            "--first-seed" => first_seed = value.parse()?,
            "--max-nodes" => max_nodes = Some(value.parse()?),
            "--threads" => n_threads = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    Ok(match n_problems {
        Some(n) => with_stores(n, first_seed, max_nodes.unwrap_or(6), n_threads),
        None => without_stores(n_graphs, first_seed, max_nodes.unwrap_or(12), n_threads),
    })
}

/// Calls `run` for each seed, on several threads, and adds up what it returns.
fn for_each_seed<T: Default + Send, L>(
    seeds: Range<u64>,
    n_threads: usize,
    local: impl Fn() -> L + Sync,
    run: impl Fn(u64, &mut L) -> T + Sync,
    add: impl Fn(&mut T, T) + Sync,
) -> T {
    let begin = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(T::default());
    std::thread::scope(|scope| {
        for _ in 0..n_threads.max(1) {
            scope.spawn(|| {
                let mut local = local();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let tally = run(seed, &mut local);
                    add(&mut total.lock().expect("no thread panics with the lock"), tally);
                    let n_done = seed + 1 - seeds.start;
                    if n_done.is_multiple_of(CHUNK) {
                        let n_all = seeds.end - seeds.start;
                        eprintln!("{n_done} of {n_all}, {:.0} s", begin.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    total.into_inner().expect("no thread panics with the lock")
}

fn with_stores(n_problems: u64, first_seed: u64, max_nodes: usize, n_threads: usize) -> ExitCode {
    let begin = Instant::now();
    if External::start().is_none() {
        println!("SKIPPED the external checker: {NO_CHECKER}");
    }
    let run = |seed: u64, external: &mut Option<External>| {
        let tally = check_problem(seed, max_nodes, external);
        tally.failures.iter().for_each(|failure| eprintln!("{failure}"));
        tally
    };
    let seeds = first_seed..first_seed + n_problems;
    let mut tally = for_each_seed(seeds, n_threads, External::start, run, StoreTally::add);
    tally.lines().iter().for_each(|(what, n)| println!("{what:<30} {n:>9}"));
    let excesses = [
        ("  best: mean and worst excess", tally.n_costlier, tally.excess, tally.worst_excess),
        ("  race: mean and worst excess", tally.n_race_costlier, tally.race_excess, tally.worst_race_excess),
    ];
    for (what, n, sum, worst) in excesses.into_iter().filter(|(_, n, ..)| *n > 0) {
        println!("{what:<30} {:>8.2}% {:.2}%", 100.0 * sum / n as f64, 100.0 * worst);
    }
    println!("{:<30} {:>9}", "broken promises", tally.failures.len());
    println!("{:<30} {:>9.0}", "seconds", begin.elapsed().as_secs_f64());
    list(&mut tally.misses, &mut tally.failures)
}

/// Lists some of the misses and all failures.
fn list(misses: &mut [String], failures: &mut [String]) -> ExitCode {
    misses.sort();
    failures.sort();
    misses.iter().take(N_LISTED).for_each(|miss| println!("{miss}"));
    failures.iter().for_each(|failure| println!("{failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn without_stores(n_graphs: u64, first_seed: u64, max_nodes: usize, n_threads: usize) -> ExitCode {
    let begin = Instant::now();
    let run = |seed: u64, _: &mut ()| {
        let tally = check_graph(seed, max_nodes);
        tally.failures.iter().for_each(|failure| eprintln!("{failure}"));
        tally
    };
    let seeds = first_seed..first_seed + n_graphs;
    let mut tally = for_each_seed(seeds, n_threads, || (), run, Tally::add);
    println!("graphs of up to {max_nodes} nodes     {:>9}", tally.n_graphs);
    println!("budgets                        {:>9}", tally.n_requests);
    println!("answered by exhaustive search  {:>9}", tally.n_answered);
    println!("  of these without any plan    {:>9}", tally.n_impossible);
    println!("plans checked                  {:>9}", tally.n_plans);
    println!("  of these proved optimal      {:>9}", tally.n_proved);
    println!("budgets that need a recompute  {:>9}", tally.n_hard);
    println!("  race proves its optimum      {:>9}", tally.n_race_proved);
    println!("  race finds a costlier plan   {:>9}", tally.n_race_costlier);
    println!("  race finds no plan           {:>9}", tally.n_race_refused);
    if tally.n_race_costlier > 0 {
        println!(
            "  mean and worst excess        {:>8.2}% {:.2}%",
            100.0 * tally.race_excess / tally.n_race_costlier as f64,
            100.0 * tally.worst_race_excess
        );
    }
    println!("broken promises                {:>9}", tally.failures.len());
    println!("seconds                        {:>9.0}", begin.elapsed().as_secs_f64());
    list(&mut tally.misses, &mut tally.failures)
}
