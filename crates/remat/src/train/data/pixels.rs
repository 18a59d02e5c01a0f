//! Pixels to inputs: scaling to the model's size, normalising.

use super::resize::resize;
use super::room::NoRoom;
use serde::{Deserialize, Serialize};

/// Mean and deviation of ImageNet's channels.
pub(super) const COLOUR: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// The size of a model's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageShape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// 1 or 3; grey images are repeated for every channel.
    pub channels: usize,
}

impl ImageShape {
    /// The shape of a model's input without its batch: an image, or as many numbers as a grey square has.
    pub fn of_input(shape: &[usize]) -> Option<ImageShape> {
        match *shape {
            [_, height, width, channels @ (1 | 3)] => Some(ImageShape { height, width, channels }),
            [_, features] => {
                let side = features.isqrt();
                (side * side == features).then_some(ImageShape { height: side, width: side, channels: 1 })
            }
            _ => None,
        }
    }

    /// Elements of one image.
    pub fn numel(&self) -> usize {
        self.height * self.width * self.channels
    }
}

/// How pixels are normalised.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageScale {
    /// Grey, by the mean and deviation of the training images.
    Grey {
        /// Mean of all pixels.
        mean: f32,
        /// Their deviation.
        deviation: f32,
    },
    /// Red, green and blue, each by the mean and deviation of ImageNet.
    Colour,
}

impl ImageScale {
    pub(super) fn of_grey(pixels: &[u8]) -> ImageScale {
        let (mut sum, mut squares) = (0u64, 0u64);
        for &pixel in pixels {
            sum += u64::from(pixel);
            squares += u64::from(pixel) * u64::from(pixel);
        }
        let n = pixels.len().max(1) as f64;
        let mean = sum as f64 / n;
        let variance = squares as f64 / n - mean * mean;
        // Images of one colour are left as they are.
        let deviation = if variance > 0.0 { variance.sqrt() } else { 255.0 };
        ImageScale::Grey { mean: (mean / 255.0) as f32, deviation: (deviation / 255.0) as f32 }
    }

    /// One grey image of height and width `from` as an input.
    pub(super) fn grey(
        &self,
        pixels: &[u8],
        from: (usize, usize),
        shape: ImageShape,
        out: &mut [f32],
    ) -> Result<(), NoRoom> {
        let numbers = |at: usize, row: &mut [f32]| floats(&pixels[at * from.1..], row);
        self.grey_rows(numbers, from, shape, out)
    }

    fn grey_rows(
        &self,
        read: impl Fn(usize, &mut [f32]),
        from: (usize, usize),
        shape: ImageShape,
        out: &mut [f32],
    ) -> Result<(), NoRoom> {
        let (mean, deviation) = match *self {
            ImageScale::Grey { mean, deviation } => (mean, deviation),
            ImageScale::Colour => COLOUR[0],
        };
        let grey = resize(read, from, (shape.height, shape.width), 1)?;
        for (grey, out) in grey.iter().zip(out.chunks_exact_mut(shape.channels)) {
            out.fill((grey / 255.0 - mean) / deviation);
        }
        Ok(())
    }

    /// One coloured image of height and width `from` as an input.
    pub(super) fn colour(
        &self,
        pixels: &[u8],
        from: (usize, usize),
        shape: ImageShape,
        out: &mut [f32],
    ) -> Result<(), NoRoom> {
        let old_row = |at: usize| &pixels[at * 3 * from.1..][..3 * from.1];
        if let ImageScale::Grey { .. } = self {
            let luma = |rgb: &[u8]| {
                (299 * u32::from(rgb[0]) + 587 * u32::from(rgb[1]) + 114 * u32::from(rgb[2])) / 1000
            };
            let read = |at: usize, row: &mut [f32]| {
                let pixels = old_row(at).chunks_exact(3);
                row.iter_mut().zip(pixels).for_each(|(grey, rgb)| *grey = f32::from(luma(rgb) as u8));
            };
            return self.grey_rows(read, from, shape, out);
        }
        let read = |at: usize, row: &mut [f32]| floats(old_row(at), row);
        let scaled = resize(read, from, (shape.height, shape.width), 3)?;
        for (rgb, out) in scaled.chunks_exact(3).zip(out.chunks_exact_mut(shape.channels)) {
            let normal = |c: usize| (rgb[c] / 255.0 - COLOUR[c].0) / COLOUR[c].1;
            let colours = [normal(0), normal(1), normal(2)];
            match out {
                [grey] => *grey = colours.iter().sum::<f32>() / 3.0,
                out => out.copy_from_slice(&colours),
            }
        }
        Ok(())
    }

    /// As [`colour`](ImageScale::colour), for those who have no file to name: lack of memory ends the process, as it does for
    /// any small vector. Scaling takes little more than the input and a few bytes for each column of the image.
    pub(crate) fn rgb(&self, pixels: &[u8], from: (usize, usize), shape: ImageShape, out: &mut [f32]) {
        if self.colour(pixels, from, shape, out).is_err() {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<f32>());
        }
    }
}

/// Bytes as numbers.
fn floats(bytes: &[u8], out: &mut [f32]) {
    out.iter_mut().zip(bytes).for_each(|(x, &byte)| *x = f32::from(byte));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coloured_image_becomes_grey_for_a_model_of_grey_ones() {
        let scale = ImageScale::Grey { mean: 0.0, deviation: 1.0 };
        let shape = ImageShape { height: 1, width: 2, channels: 1 };
        let mut out = [0.0; 2];
        // Below each other: a row of red pixels and one of white ones.
        let pixels = [[255, 0, 0], [255, 0, 0], [255; 3], [255; 3]].concat();
        scale.colour(&pixels, (2, 2), shape, &mut out).unwrap();
        let between = (76.0 + 255.0) / 2.0 / 255.0;
        assert!(out.iter().all(|x| (x - between).abs() < 1e-6), "{out:?}");
        scale.colour(&pixels[..6], (1, 2), shape, &mut out).unwrap();
        assert_eq!(out, [76.0 / 255.0; 2]);
    }
}
