//! An image from a file.

use crate::error::Result;
use crate::train::decode_image;
use std::path::Path;

/// The pixels of a PNG or JPEG file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    rgb: Vec<u8>,
    height: usize,
    width: usize,
}

impl Image {
    /// Reads and decodes a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Image> {
        let (rgb, height, width) = decode_image(path.as_ref())?;
        Ok(Image { rgb, height, width })
    }

    /// Three bytes per pixel, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Height and width.
    pub fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }
}
