//! Average over all positions of an image: `[N, positions, C] -> [N, C]`.

use crate::base::par;
use crate::base::raw::Dst;
use crate::base::simd::wide;

/// Channels summed side by side.
const BLOCK: usize = 64;

/// `y[n, c]` is the mean of `x[n, p, c]` over the positions `p`; the sum is taken in `f64`.
pub fn global_avg_pool(positions: usize, channels: usize, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len() * positions, "x has all positions of every element of y");
    let blocks = channels.div_ceil(BLOCK);
    let images = y.len() / channels.max(1);
    let y = Dst::from(y);
    par::for_each(images * blocks, |task| {
        average_block(positions, channels, x, y, task / blocks, task % blocks * BLOCK);
    });
}

wide! {
    fn average_block(positions: usize, channels: usize, x: &[f32], y: Dst<'_>, image: usize, first: usize) {
        let width = BLOCK.min(channels - first);
        let mut sums = [0.0f64; BLOCK];
        for position in 0..positions {
            let at = (image * positions + position) * channels + first;
            for (sum, &x) in sums.iter_mut().zip(&x[at..][..width]) {
                *sum += f64::from(x);
            }
        }
        let share = 1.0 / positions as f64;
        // SAFETY: every block of channels of every image belongs to one task.
        unsafe { y.write(image * channels + first, &sums.map(|sum| (sum * share) as f32)[..width]) }
    }
}

/// `dx[n, p, c] = dy[n, c] / positions`.
pub fn global_avg_pool_grad(positions: usize, channels: usize, dy: &[f32], dx: &mut [f32]) {
    assert_eq!(dx.len(), dy.len() * positions, "dx has all positions of every element of dy");
    let share = 1.0 / positions as f32;
    let rows_per_task = (par::ELEMENTS_PER_TASK / channels.max(1)).max(1);
    par::for_each_chunk(dx, rows_per_task * channels.max(1), |task, rows| {
        for (i, dx) in rows.chunks_exact_mut(channels.max(1)).enumerate() {
            let image = (task * rows_per_task + i) / positions;
            for (dx, dy) in dx.iter_mut().zip(&dy[image * channels..][..channels]) {
                *dx = dy * share;
            }
        }
    });
}
