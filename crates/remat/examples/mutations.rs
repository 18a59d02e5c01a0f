//! Mutations of plans, schedules, layouts and fused steps of random training steps, and who caught them.
//!
//! ```text
//! cargo run --release -p remat --example mutations -- [--steps 1000] [--first-seed 0] [--each 4]
//! ```
//! Prints for every kind: mutants, those that the checker reported, those that are right after all, and those that neither
//! explains, which are named. Exit code 1 if there are any.

use remat::testing::Choices;
use remat::testing::mutation::Table;
use remat::testing::random::specimen;
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut n_steps, mut first_seed, mut n_each) = (1000u64, 0u64, 4usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--steps" => n_steps = value.parse()?,
            "--first-seed" => first_seed = value.parse()?,
            "--each" => n_each = value.parse()?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let mut table = Table::default();
    for seed in first_seed..first_seed + n_steps {
        if let Some(specimen) = specimen(seed)? {
            table.attack(&specimen, n_each, &mut Choices::of_seed(seed));
        }
        if (seed + 1 - first_seed).is_multiple_of(100) {
            eprintln!(
                "{} of {n_steps} steps; continue with --first-seed {}",
                seed + 1 - first_seed,
                seed + 1
            );
        }
    }
    println!("| artefact | mutation | seeded | caught | equivalent | survived |\n|---|---|---|---|---|---|");
    print!("{table}");
    let survivors = table.survivors();
    survivors.iter().for_each(|survivor| println!("{survivor}"));
    Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
