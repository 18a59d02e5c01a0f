//! Maximum of each window, with the place of the maximum for backward.

use crate::base::par;
use crate::base::raw::Dst;
use crate::base::simd::wide;
use crate::settings::pool::{MAX_WINDOW, PoolShape};

/// Channels compared side by side.
const BLOCK: usize = 64;

/// `y: [N, H', W', C]` and the place `idx` of the maximum in its window, counted row by row from the corner of the
/// unclipped window. The first maximum wins; not-a-number wins over everything.
pub fn max_pool(shape: &PoolShape, x: &[f32], y: &mut [f32], idx: &mut [u8]) {
    assert_eq!((x.len(), y.len(), idx.len()), (shape.input_len(), shape.output_len(), shape.output_len()));
    assert!(shape.kernel.0 * shape.kernel.1 <= MAX_WINDOW, "a place in the window fits in a byte");
    let row_len = shape.out_w() * shape.c;
    let n_rows = shape.n * shape.out_h();
    let window = shape.kernel.0 * shape.kernel.1;
    let rows_per_task = (par::ELEMENTS_PER_TASK / (row_len * window)).max(1);
    let (y, idx) = (Dst::from(y), Dst::from(idx));
    par::for_each_range(n_rows, rows_per_task, |rows| {
        for row in rows {
            max_pool_row(shape, x, y, idx, row);
        }
    });
}

wide! {
    fn max_pool_row(shape: &PoolShape, x: &[f32], y: Dst<'_>, idx: Dst<'_, u8>, row: usize) {
        let PoolShape { h, w, c, kernel, .. } = *shape;
        let (rows, cols) = (shape.rows(), shape.cols());
        let (image, window_row) = (row / rows.n_windows, row % rows.n_windows);
        for window_col in 0..cols.n_windows {
            for first in (0..c).step_by(BLOCK) {
                let width = BLOCK.min(c - first);
                let mut block = [0.0; BLOCK];
                let (mut best, mut best_place) = ([f32::NEG_INFINITY; BLOCK], [u32::MAX; BLOCK]);
                for r in rows.window(window_row) {
                    for s in cols.window(window_col) {
                        let place = (rows.place(r, window_row) * kernel.1 + cols.place(s, window_col)) as u32;
                        block[..width].copy_from_slice(&x[((image * h + r) * w + s) * c + first..][..width]);
                        for ((best, best_place), &x) in best.iter_mut().zip(&mut best_place).zip(&block) {
                            // The first position always enters, so that a window of -∞ has a place too.
                            let wins = (x > *best) | (*best_place == u32::MAX) | x.is_nan();
                            *best = if wins { x } else { *best };
                            *best_place = if wins { place } else { *best_place };
                        }
                    }
                }
                let at = (row * cols.n_windows + window_col) * c + first;
                // SAFETY: every output row belongs to one task.
                unsafe {
                    y.write(at, &best[..width]);
                    idx.write(at, &best_place.map(|place| place as u8)[..width]);
                }
            }
        }
    }
}

/// `dx`: each `dy` goes to the place of its maximum; where windows overlap, in the order of the windows.
pub fn max_pool_grad(shape: &PoolShape, dy: &[f32], idx: &[u8], dx: &mut [f32]) {
    assert_eq!((dx.len(), dy.len(), idx.len()), (shape.input_len(), shape.output_len(), shape.output_len()));
    let row_len = shape.w * shape.c;
    let rows_per_task = (par::ELEMENTS_PER_TASK / row_len).max(1);
    par::for_each_chunk(dx, rows_per_task * row_len, |task, rows| {
        for (i, dx) in rows.chunks_exact_mut(row_len).enumerate() {
            max_pool_grad_row(shape, dy, idx, dx, task * rows_per_task + i);
        }
    });
}

wide! {
    fn max_pool_grad_row(shape: &PoolShape, dy: &[f32], idx: &[u8], dx: &mut [f32], row: usize) {
        let PoolShape { h, c, kernel, .. } = *shape;
        let (rows, cols) = (shape.rows(), shape.cols());
        let (image, r) = (row / h, row % h);
        for (s, dx) in dx.chunks_exact_mut(c).enumerate() {
            dx.fill(0.0);
            for window_row in rows.covering(r) {
                for window_col in cols.covering(s) {
                    let place = (rows.place(r, window_row) * kernel.1 + cols.place(s, window_col)) as u8;
                    let at = ((image * rows.n_windows + window_row) * cols.n_windows + window_col) * c;
                    for ((dx, &dy), &idx) in dx.iter_mut().zip(&dy[at..][..c]).zip(&idx[at..][..c]) {
                        *dx += if idx == place { dy } else { 0.0 };
                    }
                }
            }
        }
    }
}
