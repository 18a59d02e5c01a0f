//! Where batches come from. A batch is a function of the seed and its number, so any step can be run again and a resumed
//! run needs no position in the data.
//!
//! [`Synthetic`] needs no files; [`Text`] cuts windows from a corpus; [`Images`] reads IDX files or folders of images; a
//! loader of your own implements [`Batches`].

mod batch;
mod byte_pairs;
mod corpus;
mod decode;
mod folder;
mod idx;
mod image_batches;
mod image_set;
mod images;
mod pixels;
mod resize;
mod room;
mod shuffle;
mod text;
mod token_file;
mod vocabulary;

pub use batch::{Batch, BatchInput};
pub use byte_pairs::BytePairs;
pub use decode::decode_image;
pub use images::Images;
pub use pixels::{ImageScale, ImageShape};
pub use text::{Objective, Text, Tokenizer};
pub use vocabulary::Vocabulary;

use super::About;
use crate::error::{Error, Result};
use crate::graph::Graph;
use remat_kernels::rng::{Key, normal_f32, uniform_u32};
use remat_plan::Bytes;
use std::fmt::Debug;

/// A loader: fills the inputs of a batch. The same number, part and seed give the same batch.
///
/// ```
/// use remat::prelude::*;
///
/// /// Points on two circles: which one?
/// #[derive(Clone, Debug)]
/// struct Circles;
///
/// impl Batches for Circles {
///     fn fill(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
///         let first = batch.number() as usize * 1000;
///         for (i, point) in batch.floats("input")?.chunks_exact_mut(2).enumerate() {
///             let (angle, radius) = ((first + i) as f32, 1.0 + (i % 2) as f32);
///             point.copy_from_slice(&[radius * angle.cos(), radius * angle.sin()]);
///         }
///         batch.integers("labels")?.iter_mut().enumerate().for_each(|(i, label)| *label = (i % 2) as i32);
///         Ok(())
///     }
/// }
/// ```
pub trait Batches: Debug {
    /// Fills one batch. Its [number](Batch::number) alone decides what it holds, however often it is requested: a step of several
    /// passes checks its batches before the first pass, and a resumed run starts with the batch that comes next.
    fn fill(&mut self, batch: &mut Batch<'_>) -> Result<()>;

    /// Fails if [`fill`](Batches::fill) would; what it leaves in the batch is not used. A step of several passes asks before the
    /// first one, because data that is bad in the middle of a step would cost the state. Loaders that know a cheaper way than
    /// filling take it.
    fn check(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        self.fill(batch)?;
        batch.check()
    }

    /// What the data is, in a few words: a run is resumed only with the same data.
    fn identity(&self) -> String {
        "a loader of its own".to_owned()
    }
}

/// Data that can be cut into batches for a model: a loader is one, and so are [`Text`] and [`Images`].
pub trait Dataset: Debug {
    /// Batches for the inputs of a model.
    fn batches(&self, model: &Graph, part: Part, seed: u64) -> Result<Box<dyn Batches>>;

    /// What the data is: its kind and a fingerprint.
    fn identity(&self) -> String;

    /// What using the trained model needs to know.
    fn about(&self) -> About {
        About::Numbers
    }

    /// Memory that the data of a model takes beside the step: what it holds, and what making a batch takes. A budget in
    /// bytes counts it.
    fn memory(&self, _model: &Graph) -> Result<Bytes> {
        Ok(Bytes::ZERO)
    }
}

impl<B: Batches + Clone + 'static> Dataset for B {
    fn batches(&self, _: &Graph, _: Part, _: u64) -> Result<Box<dyn Batches>> {
        Ok(Box::new(self.clone()))
    }

    fn identity(&self) -> String {
        Batches::identity(self)
    }
}

/// Random batches: normal floats and uniform indices, the same for the same seed, number and input name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synthetic {
    /// Seed of the data.
    pub seed: u64,
}

/// A stream of synthetic data that training does not use.
const HELD_OUT_SEED: u64 = 0x4845_4C44_4F55_5421;

impl Batches for Synthetic {
    fn fill(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let seed = self.seed ^ if batch.part() == Part::HeldOut { HELD_OUT_SEED } else { 0 };
        let number = batch.number();
        for input in batch.inputs() {
            let key = Key::new(seed, number, crate::exec::init::name_hash(input.name()));
            match input.limit() {
                Some(limit) => {
                    for (index, element) in input.integers()?.iter_mut().enumerate() {
                        let random = u64::from(uniform_u32(key, index as u64));
                        *element = ((random * limit as u64) >> 32) as i32;
                    }
                }
                None => {
                    for (index, element) in input.floats()?.iter_mut().enumerate() {
                        *element = normal_f32(key, index as u64);
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, _: &mut Batch<'_>) -> Result<()> {
        Ok(())
    }

    fn identity(&self) -> String {
        "synthetic".to_owned()
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

/// An error about data, with its place.
fn bad_data(place: impl std::fmt::Display, message: impl Into<String>) -> Error {
    Error::TrainingData { place: place.to_string(), message: message.into() }
}

/// The shape of the input of a model that loaders of this crate fill.
fn input_shape(model: &Graph) -> Result<&[usize]> {
    let input = model.sources.iter().find(|source| source.name == "input");
    let missing =
        || bad_data(&model.name, "has no input called `input` to fill; call it that, or write a loader");
    Ok(model.values[input.ok_or_else(missing)?.value].ty.shape())
}
