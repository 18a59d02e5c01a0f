//! Random training steps through the whole pipeline, in every way, against the oracle that neither fuses nor frees.
//!
//! ```text
//! cargo run --release -p remat --example random_steps -- [--steps 20000] [--first-seed 0] [--max-failures 5]
//! ```
//! Tells how far it is, so that a run that was stopped continues with `--first-seed`. A failure is told with its seed and
//! with the text of the smallest model that still fails; `--first-seed S --steps 1` repeats it. Exit code 1 after a failure.

use remat::testing::random::{Seen, check_seed};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

/// Steps after which progress is told.
const CHUNK: u64 = 250;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut n_steps, mut first_seed, mut max_failures) = (20_000u64, 0u64, 5usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--steps" => n_steps = value.parse()?,
            "--first-seed" => first_seed = value.parse()?,
            "--max-failures" => max_failures = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    // A panic is told as the failure of a seed.
    std::panic::set_hook(Box::new(|_| {}));
    let begin = Instant::now();
    let (mut seen, mut n_failures) = (Seen::default(), 0);
    for (index, seed) in (first_seed..).zip(1..=n_steps).map(|(seed, index)| (index, seed)) {
        match check_seed(seed) {
            Ok(more) => seen.add(more),
            Err(failure) => {
                println!("{failure}");
                n_failures += 1;
            }
        }
        if index % CHUNK == 0 {
            eprintln!(
                "{index} of {n_steps} steps, {} programs, {n_failures} failures, {:.0} s; continue with --first-seed {}",
                seen.n_programs,
                begin.elapsed().as_secs_f64(),
                seed + 1
            );
        }
        if n_failures >= max_failures {
            break;
        }
    }
    println!("steps                        {:>9}", seen.n_steps + n_failures);
    println!("programs                     {:>9}", seen.n_programs);
    println!("  of these with recomputes   {:>9}", seen.n_recomputing);
    println!("evaluations                  {:>9}", seen.n_evaluations);
    println!("steps with an endless loss   {:>9}", seen.n_endless);
    println!("ops                          {:>9}", seen.ops.len());
    println!("failures                     {:>9}", n_failures);
    println!("seconds                      {:>9.0}", begin.elapsed().as_secs_f64());
    Ok(if n_failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
