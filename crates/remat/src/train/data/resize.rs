//! Scales an image to another size with a triangle filter: the mean of the nearest pixels when it grows, of all pixels
//! under the new one when it shrinks, which keeps fine patterns from turning into coarse ones.
//!
//! In: rows of `width * channels` numbers. Out: an image of the new size. O(pixels · width of the filter) time. Each row is
//! made narrow and then added to the new rows above it, so that memory follows the new size and one side of the old one: a
//! whole image of the new width and the old height can be a thousand times as large as either.

use super::room::{NoRoom, reserve, zeros};

/// The old pixels under a new one, along one axis.
struct Window {
    first: usize,
    /// Exclusive.
    end: usize,
    centre: f64,
    reach: f64,
    sum: f64,
}

impl Window {
    fn under(at: usize, old: usize, new: usize) -> Window {
        let ratio = old as f64 / new as f64;
        let reach = ratio.max(1.0);
        let centre = (at as f64 + 0.5) * ratio;
        let first = (centre - reach).floor().max(0.0) as usize;
        let end = ((centre + reach).ceil() as usize).min(old);
        let window = Window { first, end, centre, reach, sum: 1.0 };
        let sum = (first..end).map(|i| window.height(i)).sum();
        Window { sum, ..window }
    }

    /// Height of the triangle over an old pixel.
    fn height(&self, i: usize) -> f64 {
        (1.0 - ((i as f64 + 0.5 - self.centre) / self.reach).abs()).max(0.0)
    }

    /// Weights of a window sum to one.
    fn weight(&self, i: usize) -> f32 {
        (self.height(i) / self.sum) as f32
    }
}

/// The windows of all new pixels along one axis.
fn windows(old: usize, new: usize) -> Result<Vec<Window>, NoRoom> {
    let mut windows = reserve(new)?;
    windows.extend((0..new).map(|at| Window::under(at, old, new)));
    Ok(windows)
}

/// The image in another size; `from` and `to` are height and width, and `read` fills an old row.
pub(super) fn resize(
    read: impl Fn(usize, &mut [f32]),
    from: (usize, usize),
    to: (usize, usize),
    channels: usize,
) -> Result<Vec<f32>, NoRoom> {
    let new_row = to.1 * channels;
    let mut image: Vec<f32> = zeros(to.0 * new_row)?;
    if from == to {
        image.chunks_exact_mut(new_row).enumerate().for_each(|(at, row)| read(at, row));
        return Ok(image);
    }
    let (columns, rows) = (windows(from.1, to.1)?, windows(from.0, to.0)?);
    // Every row needs the weights of the columns again.
    let mut weights = reserve(columns.iter().map(|window| window.end - window.first).sum())?;
    columns.iter().for_each(|window| weights.extend((window.first..window.end).map(|i| window.weight(i))));
    let (mut old, mut narrow) = (zeros(from.1 * channels)?, zeros(new_row)?);
    let mut open = 0;
    for at in 0..from.0 {
        read(at, &mut old);
        make_narrow(&old, &mut narrow, channels, &columns, &weights);
        while rows.get(open).is_some_and(|window| window.end <= at) {
            open += 1;
        }
        // The new rows over this one follow each other, since windows begin and end in the order of their rows.
        let under = rows.iter().enumerate().skip(open).take_while(|(_, window)| window.first <= at);
        for (new, window) in under {
            let weight = window.weight(at);
            let new = &mut image[new * new_row..][..new_row];
            new.iter_mut().zip(&narrow).for_each(|(y, &x)| *y += weight * x);
        }
    }
    Ok(image)
}

/// One row in another width.
fn make_narrow(old: &[f32], new: &mut [f32], channels: usize, columns: &[Window], mut weights: &[f32]) {
    new.fill(0.0);
    for (y, window) in new.chunks_exact_mut(channels).zip(columns) {
        let (here, rest) = weights.split_at(window.end - window.first);
        weights = rest;
        for (x, weight) in old[window.first * channels..].chunks_exact(channels).zip(here) {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
        }
    }
}

/// Memory that [`resize`] takes at most, its result included.
pub(super) fn resizing_bytes(from: (usize, usize), to: (usize, usize), channels: usize) -> u64 {
    let numbers = to.0 * to.1 * channels + (from.1 + to.1) * channels;
    // A window is two pixels wide, old or new ones, and its ends are rounded outwards.
    let weights = 2 * from.1.max(to.1) + 2 * to.1;
    (size_of::<f32>() * (numbers + weights) + size_of::<Window>() * (to.0 + to.1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resized(image: &[u8], from: (usize, usize), to: (usize, usize), channels: usize) -> Vec<f32> {
        let width = from.1 * channels;
        let read = |at: usize, row: &mut [f32]| {
            row.iter_mut().zip(&image[at * width..][..width]).for_each(|(x, &byte)| *x = f32::from(byte));
        };
        resize(read, from, to, channels).unwrap()
    }

    #[test]
    fn sizes_change_and_means_stay() {
        assert_eq!(resized(&[1, 2, 3, 4], (2, 2), (2, 2), 1), [1.0, 2.0, 3.0, 4.0]);
        // Twice as large: between two pixels lies their mixture, beyond the last it continues.
        assert_eq!(resized(&[0, 100], (1, 2), (1, 4), 1), [0.0, 25.0, 75.0, 100.0]);
        // A fine pattern becomes grey.
        let stripes: Vec<u8> = (0..64 * 64).map(|i| if i % 2 == 0 { 0 } else { 200 }).collect();
        let small = resized(&stripes, (64, 64), (8, 8), 1);
        assert!(small.iter().all(|&x| (x - 100.0).abs() < 8.0), "{small:?}");
        // Channels do not mix.
        let colour: Vec<u8> = [10, 20, 30].repeat(12);
        for pixel in resized(&colour, (3, 4), (5, 2), 3).chunks(3) {
            assert!(pixel.iter().zip([10.0, 20.0, 30.0]).all(|(x, y): (&f32, f32)| (x - y).abs() < 1e-3));
        }
    }

    /// The same numbers from two passes over a whole image of the new width and the old height.
    fn in_two_passes(image: &[u8], from: (usize, usize), to: (usize, usize), channels: usize) -> Vec<f32> {
        let along = |x: &[f32], outer: usize, old: usize, new: usize, inner: usize| {
            let mut y = vec![0.0; outer * new * inner];
            for (at, y) in y.iter_mut().enumerate() {
                let (o, n, i) = (at / inner / new, at / inner % new, at % inner);
                let window = Window::under(n, old, new);
                for k in window.first..window.end {
                    *y += window.weight(k) * x[(o * old + k) * inner + i];
                }
            }
            y
        };
        let image: Vec<f32> = image.iter().map(|&byte| f32::from(byte)).collect();
        let narrow = along(&image, from.0, from.1, to.1, channels);
        along(&narrow, 1, from.0, to.0, to.1 * channels)
    }

    #[test]
    fn row_by_row_gives_the_bits_of_two_passes() {
        let noise = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
        let sides = [1, 2, 3, 7, 16, 31];
        for height in sides {
            for width in sides {
                for (to, channels) in [((1, 1), 1), ((4, 9), 3), ((31, 2), 3), ((40, 50), 1)] {
                    let image: Vec<u8> = (0..height * width * channels).map(noise).collect();
                    let bits = |image: Vec<f32>| image.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                    let ours = bits(resized(&image, (height, width), to, channels));
                    let theirs = bits(in_two_passes(&image, (height, width), to, channels));
                    assert_eq!(ours, theirs, "{height} × {width} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn the_memory_of_a_tall_image_is_that_of_a_small_one() {
        // As an image of the new width and the old height this would be twelve gigabytes.
        assert!(resizing_bytes((1 << 20, 1), (32, 1000), 3) < 1 << 20);
        assert!(resizing_bytes((1, 1 << 20), (32, 1000), 3) < 32 << 20);
        let image = resize(|at, row| row.fill((at % 2) as f32), (1 << 20, 1), (4, 20), 3).unwrap();
        assert!(image.len() == 240 && image.iter().all(|x| (x - 0.5).abs() < 1e-3), "{image:?}");
        for (old, new) in [(1, 1), (1, 224), (224, 1), (1000, 224), (224, 1000), (1001, 1000)] {
            let n: usize = windows(old, new).unwrap().iter().map(|window| window.end - window.first).sum();
            assert!(n <= 2 * old.max(new) + 2 * new, "{n} weights from {old} to {new}");
        }
    }
}
