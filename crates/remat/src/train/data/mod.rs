//! Where batches come from. A batch is a function of the seed and its number, so any step can be run again and a run
//! that goes on needs no position in the data.
//!
//! [`Synthetic`] needs no files; [`Text`] cuts windows from a corpus; [`Images`] reads IDX files or folders of images.

mod byte_pairs;
mod folder;
mod idx;
mod images;
mod resize;
mod shuffle;
mod text;
mod token_file;

pub use images::{ImageShape, Images};
pub use text::{Objective, Text, Tokenizer};

use crate::error::{Error, Result};
use crate::exec::{Engine, as_floats_mut};
use crate::graph::{Init, Source};
use remat_kernels::rng::Key;
use std::fmt::Debug;

/// Fills the batch inputs of a model before every step.
pub trait Batches: Debug {
    /// Fills one input of one batch. Batches are numbered from 1 through the whole run.
    fn fill(&mut self, batch: u64, source: &Source, bytes: &mut [u8]) -> Result<()>;
}

/// Random batches: normal floats and uniform indices, the same for the same seed, number and input name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synthetic {
    /// Seed of the data.
    pub seed: u64,
}

impl Batches for Synthetic {
    fn fill(&mut self, batch: u64, source: &Source, bytes: &mut [u8]) -> Result<()> {
        let key = Key::new(self.seed, batch, crate::model::init::name_hash(&source.name));
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

/// Which part of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What is learned from.
    Training,
    /// What is only looked at by evaluation.
    HeldOut,
}

/// One in this many examples, or the last one in this many tokens, is held out, unless the data has a part for it.
const HELD_OUT_SHARE: usize = 10;

/// A hash of bytes by whole words, for telling one data set from another.
fn fingerprint(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).fold(bytes.len() as u64, |hash, word| {
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

/// An error about data, with its place.
fn bad_data(place: impl std::fmt::Display, message: impl Into<String>) -> Error {
    Error::TrainingData { place: place.to_string(), message: message.into() }
}

/// Refuses indices that an op would read out of range. Negative labels mean "ignore" and are allowed.
pub fn check_indices(engine: &dyn Engine) -> Result<()> {
    engine.graph().sources.iter().try_for_each(|source| check_source(source, engine.bytes(source.value)))
}

/// The same for one input.
pub(super) fn check_source(source: &Source, bytes: &[u8]) -> Result<()> {
    let (limit, may_be_negative) = match source.init {
        Init::Indices(limit) => (limit, false),
        Init::Labels(limit) => (limit, true),
        _ => return Ok(()),
    };
    for (index, element) in bytes.chunks_exact(4).enumerate() {
        let value = i32::from_ne_bytes([element[0], element[1], element[2], element[3]]);
        if usize::try_from(value).map_or(!may_be_negative, |v| v >= limit) {
            return Err(Error::Data { what: source.name.clone(), index, value: value.into(), limit });
        }
    }
    Ok(())
}
