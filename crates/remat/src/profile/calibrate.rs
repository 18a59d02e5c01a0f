//! What each kind of op reaches on this machine, measured on a few ordinary sizes.
//!
//! Each op says itself how it is measured ([`Calibration`]). Ops that are limited by arithmetic get a rate over shapes from
//! the models of the registry; the others two rates, for a working set in the caches and for one far beyond them. Takes a
//! few seconds, which is why the result is kept.

use super::Speed;
use super::machine::fastest;
use crate::error::{Error, Result};
use crate::graph::{DType, Type};
use crate::op::{self, Alone, Calibration, Case, MicroBatch, Run};
use std::collections::BTreeMap;

/// Rows of 512 elements that fit the caches, and rows that do not.
const NEAR: usize = 128;
const FAR: usize = 16 << 10;
const COLUMNS: usize = 512;

/// Flops, bytes and seconds of one run.
fn measure(case: &Case) -> Result<[f64; 3]> {
    let bug = |message| Error::Bug { stage: "calibration", faults: vec![message] };
    let mut alone = Alone::new(&case.op, &case.inputs).map_err(bug)?;
    for (i, _) in case.inputs.iter().enumerate().filter(|(_, ty)| ty.dtype() == DType::F32) {
        alone.fill_ordinary(i);
    }
    let x: Vec<&Type> = case.inputs.iter().collect();
    let cost = case.op.def().cost(&x, &alone.output_types().iter().collect::<Vec<_>>());
    let run = Run { seed: 0, step: 1, learning_rate: 1e-3, micro: MicroBatch::ONLY };
    let seconds = fastest(3, || alone.run(&run)).as_secs_f64();
    Ok([cost.flops as f64, cost.bytes as f64, seconds])
}

/// The ops that are measured, with how.
fn measured() -> impl Iterator<Item = (&'static str, Calibration)> {
    op::all().iter().filter_map(|entry| Some((entry.name, (entry.calibration)()?)))
}

/// The names of the ops that are measured.
pub(super) fn ops() -> Vec<&'static str> {
    measured().map(|(name, _)| name).collect()
}

/// The speeds of all ops that matter, in the current thread pool. `progress` is told how many of how many are measured.
pub(super) fn speeds(mut progress: impl FnMut(usize, usize)) -> Result<BTreeMap<String, Speed>> {
    let mut speeds = BTreeMap::new();
    let n_ops = measured().count();
    for (name, calibration) in measured() {
        progress(speeds.len(), n_ops);
        let speed = match calibration {
            Calibration::Arithmetic(cases) => {
                let (mut flops, mut seconds) = (0.0, 0.0);
                for case in &cases {
                    let measured = measure(case)?;
                    flops += measured[0];
                    seconds += measured[2];
                }
                Speed::Flops(flops / seconds)
            }
            Calibration::Memory(case) => {
                let rate = |rows| measure(&case(rows, COLUMNS)).map(|[_, bytes, seconds]| bytes / seconds);
                Speed::Bytes { near: rate(NEAR)?, far: rate(FAR)? }
            }
        };
        speeds.insert(name.to_owned(), speed);
    }
    Ok(speeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case whose shapes do not fit its op would stop every program that plans.
    #[test]
    fn every_case_is_a_well_typed_one_of_its_op() {
        for (name, calibration) in measured() {
            let cases = match calibration {
                Calibration::Arithmetic(cases) => cases,
                Calibration::Memory(case) => vec![case(4, 8), case(16, 8)],
            };
            assert!(!cases.is_empty(), "{name}");
            for case in cases {
                assert_eq!(case.op.name(), name);
                let y = case.op.def().infer(&case.inputs.iter().collect::<Vec<_>>());
                assert!(y.is_ok(), "{name}: {y:?}");
            }
        }
    }
}
