//! Root-mean-square normalisation over the last dimension.
//!
//! In: `x: [rows, cols]`, weight `[cols]`. Out: `y`, and per row `rstd = 1 / sqrt(mean(x²) + eps)`, which backward
//! needs. `y` may be `x`, and `dx` may be `dy` or `x`: all sums are taken before the first write. Time
//! O(rows · cols); the workspace of the gradient holds the chunks' column sums.

use std::ops::Range;

use crate::elementwise::map_run;
use crate::norm_grad;
use crate::raw::{Dst, Src};
use crate::rows::{column_moments_workspace, for_each_rows, sum_row};
use crate::simd::wide;

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
            let inverse = (1.0 / (squares / cols as f64 + f64::from(eps)).sqrt()) as f32;
            // SAFETY: the row belongs to this task alone.
            unsafe { rstd.write(row, &[inverse]) };
            map_run([(x, start), (weight, 0)], (y, start), cols, |[x, weight]: [f32; 2]| x * inverse * weight);
        }
    }
}

/// Elements of workspace that [`grad`] needs.
pub fn grad_workspace(rows: usize, cols: usize) -> usize {
    column_moments_workspace(rows, cols)
}

/// Gradients of [`forward`]; the formulas stand in the `norm_grad` module.
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
    let moments = norm_grad::grad(norm_grad::Inputs { x, dy, weight, mean: None, rstd }, dx, workspace);
    for (dweight, &moment) in dweight.iter_mut().zip(moments.moment) {
        *dweight = moment as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::tests::out_of_place_and_in_place;
    use crate::naive::norm as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    const EPS: f32 = 1e-6;
    const SHAPES: [(usize, usize); 7] =
        [(1, 1), (3, 5), (10, 64), (7, 65), (100, 768), (3000, 33), (5, 20_000)];

    #[test]
    fn forward_agrees_with_the_definition() {
        for (rows, cols) in SHAPES {
            let (x, weight) = (random(rows * cols, 1), random(cols, 2));
            let y = out_of_place_and_in_place([&x], |[x], y| {
                forward(x, &weight, EPS, y, &mut vec![0.0; rows]);
            });
            assert_close(&y, &naive::rms_norm(&wide(&x), &wide(&weight), f64::from(EPS)), 1e-6);
        }
    }

    #[test]
    fn gradients_agree_with_the_definition() {
        for (rows, cols) in SHAPES {
            let inputs = [random(rows * cols, 1), random(rows * cols, 3)];
            let weight = random(cols, 2);
            let mut rstd = vec![0.0; rows];
            let mut y = vec![0.0; rows * cols];
            forward(Src::from(&inputs[0][..]), &weight, EPS, Dst::from(&mut y[..]), &mut rstd);
            let run = |[x, dy]: [Src<'_>; 2], dx: Dst<'_>, dweight: &mut [f32]| {
                grad(x, dy, &weight, &rstd, dx, dweight, &mut vec![f32::NAN; grad_workspace(rows, cols)]);
            };
            let dx = out_of_place_and_in_place(inputs.each_ref(), |inputs, dx| {
                run(inputs, dx, &mut vec![0.0; cols])
            });
            let dweight = same_bits_in_any_pool(|| {
                let (mut dx, mut dweight) = (vec![0.0; rows * cols], vec![f32::NAN; cols]);
                run([0, 1].map(|i| Src::from(&inputs[i][..])), Dst::from(&mut dx[..]), &mut dweight);
                dweight
            });
            let [x, dy, weight] = [&inputs[0], &inputs[1], &weight].map(|data| wide(data));
            let want = naive::rms_norm_grad(&x, &dy, &weight, &naive::rms_stats(&x, cols, f64::from(EPS)));
            // A single column normalises to ±1, so its gradient is rounding error: compare with dy's size there.
            if cols > 1 {
                assert_close(&dx, &want.0, 3e-6);
            }
            assert_close(&dweight, &want.1, 2e-6);
        }
    }
}
