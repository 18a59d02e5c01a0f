//! Average of each window; padding counts as zeros, which is PyTorch's default.

use crate::base::par;
use crate::base::simd::wide;
use crate::settings::pool::PoolShape;

/// `y: [N, H', W', C]`, the sum over each window divided by the window's size.
pub fn avg_pool(shape: &PoolShape, x: &[f32], y: &mut [f32]) {
    assert_eq!((x.len(), y.len()), (shape.input_len(), shape.output_len()));
    let row_len = shape.out_w() * shape.c;
    let rows_per_task = (par::ELEMENTS_PER_TASK / (row_len * shape.kernel.0 * shape.kernel.1)).max(1);
    par::for_each_chunk(y, rows_per_task * row_len, |task, rows| {
        for (i, y) in rows.chunks_exact_mut(row_len).enumerate() {
            avg_pool_row(shape, x, y, task * rows_per_task + i);
        }
    });
}

wide! {
    fn avg_pool_row(shape: &PoolShape, x: &[f32], y: &mut [f32], row: usize) {
        let PoolShape { h, w, c, .. } = *shape;
        let (rows, cols) = (shape.rows(), shape.cols());
        let (image, window_row) = (row / rows.n_windows, row % rows.n_windows);
        for (window_col, y) in y.chunks_exact_mut(c).enumerate() {
            y.fill(0.0);
            for r in rows.window(window_row) {
                for s in cols.window(window_col) {
                    for (y, &x) in y.iter_mut().zip(&x[((image * h + r) * w + s) * c..][..c]) {
                        *y += x;
                    }
                }
            }
            let share = share(shape);
            y.iter_mut().for_each(|y| *y *= share);
        }
    }
}

/// `dx`: each position gets its share of every window that covers it, in the order of the windows.
pub fn avg_pool_grad(shape: &PoolShape, dy: &[f32], dx: &mut [f32]) {
    assert_eq!((dx.len(), dy.len()), (shape.input_len(), shape.output_len()));
    let row_len = shape.w * shape.c;
    let rows_per_task = (par::ELEMENTS_PER_TASK / row_len).max(1);
    par::for_each_chunk(dx, rows_per_task * row_len, |task, rows| {
        for (i, dx) in rows.chunks_exact_mut(row_len).enumerate() {
            avg_pool_grad_row(shape, dy, dx, task * rows_per_task + i);
        }
    });
}

wide! {
    fn avg_pool_grad_row(shape: &PoolShape, dy: &[f32], dx: &mut [f32], row: usize) {
        let PoolShape { h, c, .. } = *shape;
        let (rows, cols) = (shape.rows(), shape.cols());
        let (image, r) = (row / h, row % h);
        for (s, dx) in dx.chunks_exact_mut(c).enumerate() {
            dx.fill(0.0);
            for window_row in rows.covering(r) {
                for window_col in cols.covering(s) {
                    let at = ((image * rows.n_windows + window_row) * cols.n_windows + window_col) * c;
                    for (dx, &dy) in dx.iter_mut().zip(&dy[at..][..c]) {
                        *dx += dy;
                    }
                }
            }
            let share = share(shape);
            dx.iter_mut().for_each(|dx| *dx *= share);
        }
    }
}

#[inline(always)]
fn share(shape: &PoolShape) -> f32 {
    1.0 / (shape.kernel.0 * shape.kernel.1) as f32
}
