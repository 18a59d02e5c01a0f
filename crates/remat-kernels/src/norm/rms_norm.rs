//! Root-mean-square normalisation over the last dimension.
//!
//! In: `x: [rows, cols]`, weight `[cols]`. Out: `y`, and per row `rstd = 1 / sqrt(mean(x²) + eps)`, which backward
//! needs. `y` may be `x`, and `dx` may be `dy` or `x`: all sums are taken before the first write. Time
//! O(rows · cols); the workspace of the gradient holds the chunks' column sums.

use std::ops::Range;

use super::{inverse_deviation, row_norm};
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;

pub use super::row_norm::grad_workspace;
use crate::loops::map::map_run;
use crate::loops::rows::{for_each_rows, sum_row};

/// `y = x rstd weight`, row by row.
pub fn forward(x: Src<'_>, weight: &[f32], eps: f32, y: Dst<'_>, rstd: &mut [f32]) {
    let (rows, cols) = (rstd.len(), weight.len());
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols), "input and output are [rows, cols]");
    let (weight, rstd) = (Src::from(weight), Dst::from(rstd));
    for_each_rows(rows, cols, |rows| forward_rows(x, weight, eps, y, rstd, rows));
}

wide! {
    fn forward_rows(x: Src<'_>, weight: Src<'_>, eps: f32, y: Dst<'_>, rstd: Dst<'_>, rows: Range<usize>) {
        let cols = weight.len();
        for row in rows {
            let start = row * cols;
            let [squares] = sum_row([(x, start)], cols, |[x], [sum]| [x.mul_add(x, sum)]);
            let inverse = inverse_deviation(squares / cols as f64, eps);
            // SAFETY: the row belongs to this task alone.
            unsafe { rstd.write(row, &[inverse]) };
            map_run([(x, start), (weight, 0)], (y, start), cols, |[x, weight]: [f32; 2]| x * inverse * weight);
        }
    }
}

/// Gradients of [`forward`]; the formulas are in the `row_norm` module.
#[allow(clippy::too_many_arguments)]
pub fn grad(
    x: Src<'_>,
    dy: Src<'_>,
    weight: &[f32],
    rstd: &[f32],
    dx: Dst<'_>,
    dweight: &mut [f32],
    workspace: &mut [f32],
) {
    let moments = row_norm::grad(row_norm::Inputs { x, dy, weight, mean: None, rstd }, dx, workspace);
    for (dweight, &moment) in dweight.iter_mut().zip(moments.moment) {
        *dweight = moment as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::norm as naive;
    use crate::norm::row_norm::testing::{SHAPES, gradients};
    use crate::testing::{assert_close, out_of_place_and_in_place, random, wide};

    const EPS: f32 = 1e-6;

    fn with_one_column() -> impl Iterator<Item = (usize, usize)> {
        SHAPES.into_iter().chain([(1, 1)])
    }

    #[test]
    fn forward_agrees_with_the_definition() {
        for (rows, cols) in with_one_column() {
            let (x, weight) = (random(rows * cols, 1), random(cols, 2));
            let y = out_of_place_and_in_place([&x], |[x], y| {
                forward(x, &weight, EPS, y, &mut vec![0.0; rows]);
            });
            assert_close(&y, &naive::rms_norm(&wide(&x), &wide(&weight), f64::from(EPS)), 1e-6);
        }
    }

    #[test]
    fn gradients_agree_with_the_definition() {
        for (rows, cols) in with_one_column() {
            let (x, weight) = (random(rows * cols, 1), random(cols, 2));
            let (mut rstd, mut y) = (vec![0.0; rows], vec![0.0; rows * cols]);
            forward(Src::from(&x[..]), &weight, EPS, Dst::from(&mut y[..]), &mut rstd);
            let (dx, [dweight], dy) = gradients(&x, cols, |[x, dy], dx, [dweight], workspace| {
                grad(x, dy, &weight, &rstd, dx, dweight, workspace);
            });
            let [x, dy, weight] = [&x, &dy, &weight].map(|data| wide(data));
            let want = naive::rms_norm_grad(&x, &dy, &weight, &naive::rms_stats(&x, cols, f64::from(EPS)));
            // A single column normalises to ±1, so its gradient is rounding error and there is nothing to compare.
            if cols > 1 {
                assert_close(&dx, &want.0, 3e-6);
            }
            assert_close(&dweight, &want.1, 2e-6);
        }
    }
}
