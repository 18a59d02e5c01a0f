//! Runs training steps of one model on demand: our engine in `bench/pytorch/compare.py`.
//!
//! ```text
//! cargo run --release -p remat --example steps -- resnet152 --threads 2 [--no-fusion] [--budget BYTES] [--share FOLDER] batch=8
//! ```
//! With `--share`, the initial weights are written to `weights.safetensors` in the folder, and every batch before its step to
//! `STEP-INPUT.bin`, element after element, so that another engine can do the same.
//!
//! Reads one word per line from standard input and answers each with one line of JSON: `step` runs one step
//! (`seconds`, `loss`), without recomputation unless there is a budget; `resident` gives the highest resident size of the
//! process (`bytes`), `live` the size of the arena (`bytes`), which is everything that the step needs.

use remat::exec::Engine as _;
use remat::model::{self, Options};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, compile, prepare, prepare_step};
use remat::profile::Machine;
use remat::step::training_step;
use remat::train::{Batch, Batches, Session, Synthetic};
use remat::weights;
use remat_plan::{Bytes, Request};
use serde_json::{Value, json};
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("name a model")?;
    let (mut n_threads, mut fusion, mut budget, mut options) = (2, true, None, Options::new());
    let mut share = None;
    while let Some(word) = words.next() {
        match (word.as_str(), word.split_once('=')) {
            ("--threads", _) => n_threads = words.next().ok_or("--threads needs a number")?.parse()?,
            ("--no-fusion", _) => fusion = false,
            ("--budget", _) => budget = Some(Bytes(words.next().ok_or("--budget needs bytes")?.parse()?)),
            ("--share", _) => share = Some(PathBuf::from(words.next().ok_or("--share needs a folder")?)),
            (_, Some((option, value))) => options.set(option, value),
            _ => return Err(format!("what is `{word}`?").into()),
        }
    }
    let forward = model::find(&name)?.build(&options)?.into_graph();
    let optimizer = Optimizer::adam(1e-3);
    // Where nothing is planned, round speeds will do.
    let machine =
        if budget.is_some() { Machine::load(n_threads, |_, _| {})?.0 } else { Machine::nominal(n_threads) };
    let costs = Costs::Analytic(machine);
    let prepared = if fusion {
        prepare(&forward, &optimizer, costs, |_, _| {})?
    } else {
        prepare_step(training_step(&forward, &optimizer)?, costs, |_, _| {})?
    };
    let program = match budget {
        None => prepared.keep_all,
        Some(budget) => match compile(&prepared, "best", &Request::new(budget))? {
            Fit::Fits(program) => *program,
            Fit::Refused(refusal) => return Err(refusal.to_string().into()),
        },
    };
    let arena = program.peak();
    let batches = Shared { batches: Synthetic { seed: 1 }, folder: share.clone() };
    let mut session = Session::new(program, Box::new(batches), 1, n_threads)?;
    if let Some(folder) = share {
        let executor = session.executor();
        let path = folder.join("weights.safetensors");
        weights::save(executor.graph(), &path, |source, first, out| {
            executor.read_floats(source.value, first, out)
        })?;
    }
    let instruction_set = remat::isa::current().name();
    answer(&json!({ "version": env!("CARGO_PKG_VERSION"), "instruction_set": instruction_set }))?;
    for line in std::io::stdin().lock().lines() {
        answer(&match line?.trim() {
            "step" => {
                let result = session.step(None)?;
                json!({ "seconds": result.stats.time.as_secs_f64(), "loss": result.loss })
            }
            "live" => json!({ "bytes": arena.0 }),
            "resident" => json!({ "bytes": resident_peak()? }),
            other => return Err(format!("what is `{other}`?").into()),
        })?;
    }
    Ok(())
}

/// Random batches that are written to a folder, if there is one.
#[derive(Debug)]
struct Shared {
    batches: Synthetic,
    folder: Option<PathBuf>,
}

impl Batches for Shared {
    fn fill(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
        self.batches.fill(batch)?;
        let Some(folder) = &self.folder else { return Ok(()) };
        let number = batch.number();
        for input in batch.inputs() {
            let path = folder.join(format!("{number}-{}.bin", input.name()));
            let bytes: Vec<u8> = match input.limit() {
                Some(_) => input.integers()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
                None => input.floats()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            std::fs::write(&path, bytes).map_err(remat::Error::io(format!("write {}", path.display())))?;
        }
        Ok(())
    }
}

fn answer(value: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

fn resident_peak() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no VmHWM in /proc/self/status")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).ok_or("VmHWM without a number")?.parse()?;
    Ok(kilobytes * 1024)
}
