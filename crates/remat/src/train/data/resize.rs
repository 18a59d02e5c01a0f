//! Scales an image to another size with a triangle filter: the mean of the nearest pixels when it grows, of all pixels
//! under the new one when it shrinks, which keeps fine patterns from turning into coarse ones.
//!
//! In: bytes `[height, width, channels]`. Out: numbers in `0..=255` of the new size. Rows, then columns:
//! O(pixels · width of the filter).

/// The weights of the old pixels for each new one along one axis: first pixel, then weights that sum to one.
fn weights(old: usize, new: usize) -> Vec<(usize, Vec<f32>)> {
    let ratio = old as f64 / new as f64;
    let reach = ratio.max(1.0);
    let of_new = |at: usize| {
        let centre = (at as f64 + 0.5) * ratio;
        let first = (centre - reach).floor().max(0.0) as usize;
        let last = ((centre + reach).ceil() as usize).min(old);
        let weight = |i: usize| (1.0 - ((i as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..last).map(weight).sum();
        (first, (first..last).map(|i| (weight(i) / sum) as f32).collect())
    };
    (0..new).map(of_new).collect()
}

/// The image in another size; `from` and `to` are height and width.
pub(super) fn resize(image: &[u8], from: (usize, usize), to: (usize, usize), channels: usize) -> Vec<f32> {
    if from == to {
        return image.iter().map(|&byte| f32::from(byte)).collect();
    }
    let narrow = along(image, from.0, from.1, channels, &weights(from.1, to.1));
    along(&narrow, 1, from.0, to.1 * channels, &weights(from.0, to.0))
}

/// Memory that [`resize`] takes, its result included.
pub(super) fn resizing_bytes(from: (usize, usize), to: (usize, usize), channels: usize) -> u64 {
    let floats = |height: usize, width: usize| 4 * (height * width * channels) as u64;
    floats(from.0, to.1) + floats(to.0, to.1)
}

/// Mixes the middle extent of `x: [outer, old, inner]`.
fn along<T: Copy + Into<f32>>(
    x: &[T],
    outer: usize,
    old: usize,
    inner: usize,
    weights: &[(usize, Vec<f32>)],
) -> Vec<f32> {
    let mut y = vec![0.0; outer * weights.len() * inner];
    for (o, y) in y.chunks_exact_mut(weights.len() * inner).enumerate() {
        for (y, (first, weights)) in y.chunks_exact_mut(inner).zip(weights) {
            for (i, weight) in weights.iter().enumerate() {
                let x = &x[(o * old + first + i) * inner..][..inner];
                y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x.into());
            }
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_and_means_stay() {
        assert_eq!(resize(&[1, 2, 3, 4], (2, 2), (2, 2), 1), [1.0, 2.0, 3.0, 4.0]);
        // Twice as large: between two pixels lies their mixture, beyond the last it continues.
        assert_eq!(resize(&[0, 100], (1, 2), (1, 4), 1), [0.0, 25.0, 75.0, 100.0]);
        // A fine pattern becomes grey.
        let stripes: Vec<u8> = (0..64 * 64).map(|i| if i % 2 == 0 { 0 } else { 200 }).collect();
        let small = resize(&stripes, (64, 64), (8, 8), 1);
        assert!(small.iter().all(|&x| (x - 100.0).abs() < 8.0), "{small:?}");
        // Channels do not mix.
        let colour: Vec<u8> = [10, 20, 30].repeat(12);
        for pixel in resize(&colour, (3, 4), (5, 2), 3).chunks(3) {
            assert!(pixel.iter().zip([10.0, 20.0, 30.0]).all(|(x, y): (&f32, f32)| (x - y).abs() < 1e-3));
        }
    }
}
