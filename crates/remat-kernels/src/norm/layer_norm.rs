//! Layer normalisation over the last dimension.
//!
//! In: `x: [rows, cols]`, weight and bias `[cols]`. Out: `y`, and per row the mean and the inverse deviation
//! `1 / sqrt(var + eps)`, which backward needs. `y` may be `x`, and `dx` may be `dy` or `x`: all sums are taken before
//! the first write. Time O(rows · cols); the workspace of the gradient holds the chunks' column sums.

use std::ops::Range;

use super::{inverse_deviation, not_negative, row_norm};
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;

pub use super::row_norm::grad_workspace;
use crate::loops::map::map_run;
use crate::loops::rows::{for_each_rows, sum_row};

/// `y = (x - mean) rstd weight + bias`, row by row.
pub fn forward(
    x: Src<'_>,
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    y: Dst<'_>,
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let (rows, cols) = (mean.len(), weight.len());
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols), "input and output are [rows, cols]");
    assert_eq!((bias.len(), rstd.len()), (cols, rows), "one bias per column, one deviation per row");
    let (weight, bias, mean, rstd) = (Src::from(weight), Src::from(bias), Dst::from(mean), Dst::from(rstd));
    for_each_rows(rows, cols, |rows| forward_rows(x, weight, bias, eps, y, mean, rstd, rows));
}

wide! {
    fn forward_rows(
        x: Src<'_>,
        weight: Src<'_>,
        bias: Src<'_>,
        eps: f32,
        y: Dst<'_>,
        mean: Dst<'_>,
        rstd: Dst<'_>,
        rows: Range<usize>,
    ) {
        let cols = weight.len();
        for row in rows {
            let start = row * cols;
            // Distances from the mean of a few elements do not cancel as they are added.
            let pivot = pivot(x, start, cols);
            let [sum, squares] = sum_row([(x, start)], cols, |[x], [sum, squares]| {
                let distance = x - pivot;
                [sum + distance, distance.mul_add(distance, squares)]
            });
            let distance = sum / cols as f64;
            let var = not_negative(squares / cols as f64 - distance * distance);
            let centre = (f64::from(pivot) + distance) as f32;
            let inverse = inverse_deviation(var, eps);
            // SAFETY: the row belongs to this task alone.
            unsafe {
                mean.write(row, &[centre]);
                rstd.write(row, &[inverse]);
            }
            let inputs = [(x, start), (weight, 0), (bias, 0)];
            map_run(inputs, (y, start), cols, |[x, weight, bias]: [f32; 3]| (x - centre) * inverse * weight + bias);
        }
    }
}

/// A number that the elements of a row lie around: the mean of the first ones.
#[inline(always)]
fn pivot(x: Src<'_>, start: usize, cols: usize) -> f32 {
    const ELEMENTS: usize = 8;
    if cols < ELEMENTS {
        return x.array::<1>(start)[0];
    }
    let [a, b, c, d, e, f, g, h] = x.array::<ELEMENTS>(start);
    (((a + b) + (c + d)) + ((e + f) + (g + h))) / ELEMENTS as f32
}

/// Gradients of [`forward`]; the formulas are in the `row_norm` module.
#[allow(clippy::too_many_arguments)]
pub fn grad(
    x: Src<'_>,
    dy: Src<'_>,
    weight: &[f32],
    mean: &[f32],
    rstd: &[f32],
    dx: Dst<'_>,
    dweight: &mut [f32],
    dbias: &mut [f32],
    workspace: &mut [f32],
) {
    let inputs = row_norm::Inputs { x, dy, weight, mean: Some(mean), rstd };
    let moments = row_norm::grad(inputs, dx, workspace);
    for c in 0..weight.len() {
        dweight[c] = moments.moment[c] as f32;
        dbias[c] = moments.sum[c] as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::norm as naive;
    use crate::norm::row_norm::testing::{SHAPES, gradients};
    use crate::testing::{assert_close, out_of_place_and_in_place, random, wide};

    const EPS: f32 = 1e-5;

    /// `mean` and `rstd` of the rows of `x`.
    fn statistics(x: &[f32], weight: &[f32], bias: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let rows = x.len() / weight.len();
        let (mut mean, mut rstd, mut y) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; x.len()]);
        forward(Src::from(x), weight, bias, EPS, Dst::from(&mut y[..]), &mut mean, &mut rstd);
        (mean, rstd)
    }

    #[test]
    fn forward_agrees_with_the_definition() {
        for (rows, cols) in SHAPES {
            let (x, weight, bias) = (random(rows * cols, 1), random(cols, 2), random(cols, 3));
            let y = out_of_place_and_in_place([&x], |[x], y| {
                forward(x, &weight, &bias, EPS, y, &mut vec![0.0; rows], &mut vec![0.0; rows]);
            });
            let want = naive::layer_norm(&wide(&x), &wide(&weight), &wide(&bias), f64::from(EPS));
            assert_close(&y, &want, 2e-6);
        }
    }

    #[test]
    fn gradients_agree_with_the_definition() {
        for (rows, cols) in SHAPES {
            let (x, weight, bias) = (random(rows * cols, 1), random(cols, 2), random(cols, 3));
            let (mean, rstd) = statistics(&x, &weight, &bias);
            let (dx, [dweight, dbias], dy) =
                gradients(&x, cols, |[x, dy], dx, [dweight, dbias], workspace| {
                    grad(x, dy, &weight, &mean, &rstd, dx, dweight, dbias, workspace);
                });
            let [x, dy, weight] = [&x, &dy, &weight].map(|data| wide(data));
            let (mean, rstd) = naive::layer_stats(&x, cols, f64::from(EPS));
            let want = naive::layer_norm_grad(&x, &dy, &weight, (&mean, &rstd));
            assert_close(&dx, &want.0, 3e-6);
            assert_close(&dweight, &want.1, 2e-6);
            assert_close(&dbias, &want.2, 2e-6);
        }
    }

    #[test]
    fn a_mean_far_from_zero_costs_no_accuracy_beyond_that_of_the_input() {
        let x: Vec<f32> = random(8 * 500, 1).iter().map(|x| x + 1000.0).collect();
        let (mean, rstd) = statistics(&x, &[1.0; 500], &[0.0; 500]);
        for (row, x) in wide(&x).chunks_exact(500).enumerate() {
            let centre = x.iter().sum::<f64>() / 500.0;
            let var = x.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / 500.0;
            assert!((f64::from(mean[row]) - centre).abs() < 1e-4);
            assert!((f64::from(rstd[row]) * (var + f64::from(EPS)).sqrt() - 1.0).abs() < 1e-6);
        }
    }
}
