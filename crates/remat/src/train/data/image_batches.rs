//! Batches of the images of one part of a set. Training images are visited in a shuffled order, each once per epoch; held-out
//! ones in their own order. One image at a time is decoded.
//!
//! Where bad images are skipped, the next good one takes the place of a bad one, so a batch stays a function of the seed and its
//! number.

use super::image_set::Set;
use super::shuffle::shuffled;
use super::{Batch, Batches, ImageShape, Part, bad_data};
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Why images were skipped, in the order in which they were met.
#[derive(Default, Debug)]
pub(super) struct Skipped(Mutex<Vec<String>>);

impl Skipped {
    fn add(&self, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Good,
    Bad,
}

/// Images of one part of a set.
#[derive(Clone, Debug)]
pub struct ImageBatches {
    set: Arc<Set>,
    examples: Vec<u32>,
    part: Part,
    pub(super) shape: ImageShape,
    seed: u64,
    /// `None` when a bad image is an error.
    skipped: Option<Arc<Skipped>>,
    /// What is known about each example that was looked at before it was needed.
    known: Vec<Option<Condition>>,
}

impl ImageBatches {
    pub(super) fn new(
        set: Arc<Set>,
        examples: Vec<u32>,
        part: Part,
        shape: ImageShape,
        seed: u64,
        skipped: Option<Arc<Skipped>>,
    ) -> ImageBatches {
        let known = vec![None; examples.len()];
        ImageBatches { set, examples, part, shape, seed, skipped, known }
    }

    /// Number of different images.
    pub fn n_images(&self) -> usize {
        self.examples.len()
    }

    /// Which of the examples is at a position of the run, if it is not bad.
    fn first_choice(&self, position: u64) -> usize {
        let n = self.examples.len() as u64;
        let at = match self.part {
            Part::Training => shuffled(self.seed, n, position),
            Part::HeldOut => position % n,
        };
        at as usize
    }

    /// The image at a position of the run. Labels ask as well as pixels, so both skip the same images.
    fn example(&mut self, position: u64) -> Result<usize> {
        let (first, n) = (self.first_choice(position), self.examples.len());
        let Some(skipped) = self.skipped.clone() else { return Ok(self.examples[first] as usize) };
        for at in (first..n).chain(0..first) {
            if let Some(error) = self.look_at(at)? {
                skipped.add(error.to_string());
            }
            if self.known[at] == Some(Condition::Good) {
                return Ok(self.examples[at] as usize);
            }
        }
        Err(bad_data("images", format!("none of the {n} images can be read")))
    }

    /// Decodes an example unless it is known, and returns what is wrong with it if that is news.
    fn look_at(&mut self, at: usize) -> Result<Option<Error>> {
        if self.known[at].is_some() {
            return Ok(None);
        }
        let fault = self.set.fault(self.examples[at] as usize)?;
        self.known[at] = Some(if fault.is_some() { Condition::Bad } else { Condition::Good });
        Ok(fault)
    }
}

impl Batches for ImageBatches {
    fn fill(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let number = batch.number();
        for input in batch.inputs() {
            if input.name() == "input" {
                let size = self.shape.numel();
                let floats = input.floats()?;
                let first = (number - 1) * (floats.len() / size) as u64;
                for (position, out) in (first..).zip(floats.chunks_exact_mut(size)) {
                    let example = self.example(position)?;
                    self.set.pixels(example, self.shape, out)?;
                }
            } else {
                let labels = input.integers()?;
                let first = (number - 1) * labels.len() as u64;
                for (position, out) in (first..).zip(labels) {
                    let example = self.example(position)?;
                    *out = self.set.label(example);
                }
            }
        }
        Ok(())
    }

    /// Decodes what has not been decoded before: each image once in a run and not once in every epoch.
    fn check(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let (number, size) = (batch.number(), self.shape.numel());
        for input in batch.inputs().iter_mut().filter(|input| input.name() == "input") {
            let n_images = (input.floats()?.len() / size) as u64;
            for position in (number - 1) * n_images..number * n_images {
                if self.skipped.is_some() {
                    self.example(position)?;
                    continue;
                }
                let at = self.first_choice(position);
                if let Some(error) = self.look_at(at)? {
                    // Whoever mends the file may go on.
                    self.known[at] = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
