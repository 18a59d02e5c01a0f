//! Labelled images by their numbers: those of IDX files, which are in memory, or those of a folder, which are decoded when they
//! are needed.

use super::folder::ImageFolder;
use super::idx::IdxImages;
use super::resize::resizing_bytes;
use super::{ImageScale, ImageShape};
use crate::error::{Error, Result};
use std::io::ErrorKind;

/// Labelled images.
#[derive(Debug)]
pub(super) enum Set {
    /// With how its pixels are normalised: by the training images.
    Idx(IdxImages, ImageScale),
    Folder(ImageFolder),
}

impl Set {
    pub(super) fn len(&self) -> usize {
        match self {
            Set::Idx(idx, _) => idx.labels.len(),
            Set::Folder(folder) => folder.files.len(),
        }
    }

    /// Bytes that are in memory all the time.
    pub(super) fn held_bytes(&self) -> u64 {
        match self {
            Set::Idx(idx, _) => (idx.pixels.len() + idx.labels.len()) as u64,
            Set::Folder(_) => 0,
        }
    }

    /// Bytes that making an input of the largest image takes.
    pub(super) fn decoding_bytes(&self, shape: Option<ImageShape>) -> u64 {
        let shape = shape.map_or((0, 0), |shape| (shape.height, shape.width));
        match self {
            Set::Idx(idx, _) => resizing_bytes((idx.height, idx.width), shape, 1),
            Set::Folder(folder) => folder.decoding_bytes(shape),
        }
    }

    /// Where an image is.
    pub(super) fn place(&self, example: usize) -> String {
        match self {
            Set::Idx(..) => format!("image {example}"),
            Set::Folder(folder) => folder.files[example].0.display().to_string(),
        }
    }

    /// Why an image cannot be read, where it is bad itself. Lack of memory and a disk that fails are errors: they say nothing
    /// about the image, and may be gone at the next attempt.
    pub(super) fn fault(&self, example: usize) -> Result<Option<Error>> {
        let Set::Folder(folder) = self else { return Ok(None) };
        match folder.decode(example) {
            Ok(_) => Ok(None),
            Err(error @ Error::TrainingData { .. }) => Ok(Some(error)),
            Err(Error::Io { action, cause })
                if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
            {
                Ok(Some(Error::Io { action, cause }))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn label(&self, example: usize) -> i32 {
        match self {
            Set::Idx(idx, _) => i32::from(idx.labels[example]),
            Set::Folder(folder) => folder.files[example].1,
        }
    }

    /// Makes an input of an image.
    pub(super) fn pixels(&self, example: usize, shape: ImageShape, out: &mut [f32]) -> Result<()> {
        let scaled = match self {
            Set::Idx(idx, scale) => scale.grey(idx.image(example), (idx.height, idx.width), shape, out),
            Set::Folder(folder) => {
                let (pixels, height, width) = folder.decode(example)?;
                ImageScale::Colour.colour(&pixels, (height, width), shape, out)
            }
        };
        scaled.map_err(|none| none.during(format!("scale {}", self.place(example))))
    }
}
