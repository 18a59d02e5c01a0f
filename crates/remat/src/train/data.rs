//! Where batches come from. A batch is a function of the seed and the step, so any step can be run again.

use crate::error::{Error, Result};
use crate::exec::{Engine, as_floats_mut};
use crate::graph::{Init, Source};
use remat_kernels::rng::Key;
use std::fmt::Debug;

/// Fills the batch inputs of a model before every step.
pub trait Batches: Debug {
    /// Fills one input for one step.
    fn fill(&mut self, step: u64, source: &Source, bytes: &mut [u8]) -> Result<()>;
}

/// Random batches: normal floats and uniform indices, the same for the same seed, step and input name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synthetic {
    /// Seed of the data.
    pub seed: u64,
}

impl Batches for Synthetic {
    fn fill(&mut self, step: u64, source: &Source, bytes: &mut [u8]) -> Result<()> {
        let key = Key::new(self.seed, step, crate::model::init::name_hash(&source.name));
        match source.init {
            Init::Indices(limit) | Init::Labels(limit) => {
                for (index, element) in bytes.chunks_exact_mut(4).enumerate() {
                    let random = u64::from(remat_kernels::rng::uniform_u32(key, index as u64));
                    let below_limit = (random * limit as u64) >> 32;
                    element.copy_from_slice(&(below_limit as i32).to_ne_bytes());
                }
            }
            _ => {
                for (index, element) in as_floats_mut(bytes).iter_mut().enumerate() {
                    *element = remat_kernels::rng::normal_f32(key, index as u64);
                }
            }
        }
        Ok(())
    }
}

/// Refuses indices that an op would read out of range. Negative labels mean "ignore" and are allowed.
pub fn check_indices(engine: &dyn Engine) -> Result<()> {
    for source in &engine.graph().sources {
        let (limit, may_be_negative) = match source.init {
            Init::Indices(limit) => (limit, false),
            Init::Labels(limit) => (limit, true),
            _ => continue,
        };
        for (index, element) in engine.bytes(source.value).chunks_exact(4).enumerate() {
            let value = i32::from_ne_bytes([element[0], element[1], element[2], element[3]]);
            if usize::try_from(value).map_or(!may_be_negative, |v| v >= limit) {
                return Err(Error::Data { what: source.name.clone(), index, value: value.into(), limit });
            }
        }
    }
    Ok(())
}
