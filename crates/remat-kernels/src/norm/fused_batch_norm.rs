//! The gradient of batch normalisation with a ReLU behind it, without a pass for the ReLU.
//!
//! In: what [`batch_norm::grad`](crate::batch_norm::grad) reads, the bias, and the gradient `dz` of the ReLU's
//! output. Out: the same three gradients, bit for bit, as if the ReLU's gradient had been taken first. The mask is
//! not read but computed again: the sign of the normalised value follows from `x`, which is read anyway, so five
//! tensors pass through memory instead of eight and the ReLU's output is not needed. `dx` may be `dz` or `x`. Time
//! O(rows · C).

use std::ops::Range;

use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::rows::{ColumnSums, sum_columns};
use crate::norm::batch_norm::{inverse_deviation, map_channels, scales};

/// One channel's constants, or all of them as tensors.
#[derive(Clone, Copy)]
pub struct Channels<'a> {
    /// Mean of the batch.
    pub mean: &'a [f32],
    /// Biased variance of the batch.
    pub var: &'a [f32],
    /// The norm's weight.
    pub weight: &'a [f32],
    /// The norm's bias.
    pub bias: &'a [f32],
    /// Added to the variance.
    pub eps: f32,
}

/// Writes the gradients of `relu(batch_norm(x))`. The workspace is the one of
/// [`batch_norm::grad`](crate::batch_norm::grad).
pub fn relu_grad(
    x: Src<'_>,
    dz: Src<'_>,
    channels: Channels<'_>,
    dx: Dst<'_>,
    dweight: &mut [f32],
    dbias: &mut [f32],
    workspace: &mut [f32],
) {
    let Channels { mean, var, weight, bias, eps } = channels;
    let cols = mean.len();
    assert_eq!((x.len(), dz.len()), (dx.len(), dx.len()), "x, dz and dx have one shape");
    // The scales are kept where the weight's gradient will be, until the sums are made.
    scales(var.into(), weight.into(), eps, dweight);
    let constants = [mean.into(), Src::from(&*dweight), bias.into()];
    let n_rows = x.len() / cols.max(1);
    let moments = sum_columns(n_rows, cols, workspace, |rows, sums| add_masked(x, dz, constants, rows, sums));
    for c in 0..cols {
        dbias[c] = moments.sum[c] as f32;
        dweight[c] = (moments.moment[c] * f64::from(inverse_deviation(var[c], eps))) as f32;
    }
    let inverse_rows = cols as f32 / x.len() as f32;
    let constants = |c: usize| {
        let inverse = inverse_deviation(var[c], eps);
        let slope = dweight[c] * inverse_rows * inverse;
        [mean[c], weight[c] * inverse, bias[c], dbias[c] * inverse_rows, slope]
    };
    map_channels([x, dz], dx, cols, constants, |[x, dz], [mean, scale, bias, offset, slope]| {
        let centred = x - mean;
        let dy = if centred * scale + bias > 0.0 { dz } else { 0.0 };
        scale * (dy - offset - centred * slope)
    });
}

wide! {
    /// Adds the masked gradients, and their products with the centred `x`.
    fn add_masked(
        x: Src<'_>,
        dz: Src<'_>,
        constants: [Src<'_>; 3],
        rows: Range<usize>,
        sums: &mut ColumnSums<'_>,
    ) {
        sums.add(rows, [x, dz], constants, |[x, dz], [mean, scale, bias], [sum, moment]| {
            let centred = x - mean;
            let dy = if centred * scale + bias > 0.0 { dz } else { 0.0 };
            [sum + dy, dy.mul_add(centred, moment)]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::batch_norm;
    use crate::pointwise::activation;
    use crate::testing::{out_of_place_and_in_place, random};

    #[test]
    fn all_three_gradients_have_the_bits_of_two_steps() {
        for (rows, cols) in [(9, 1), (7, 3), (500, 64), (33, 65), (3000, 16), (40, 2048), (5, 5000)] {
            let (x, dz) = (random(rows * cols, 1), random(rows * cols, 2));
            let (weight, bias) = (random(cols, 3), random(cols, 4));
            let (mut mean, mut var) = (vec![0.0; cols], vec![0.0; cols]);
            let mut workspace = vec![f32::NAN; batch_norm::workspace(rows, cols)];
            batch_norm::stats(Src::from(&x[..]), &mut mean, &mut var, &mut workspace);
            let channels = Channels { mean: &mean, var: &var, weight: &weight, bias: &bias, eps: 1e-5 };

            let mut dy = vec![f32::NAN; x.len()];
            batch_norm::apply(Src::from(&x[..]), &mean, &var, &weight, &bias, 1e-5, Dst::from(&mut dy[..]));
            let y = dy.clone();
            activation::relu_grad(Src::from(&y[..]), Src::from(&dz[..]), Dst::from(&mut dy[..]));
            let mut want = [vec![f32::NAN; x.len()], vec![f32::NAN; cols], vec![f32::NAN; cols]];
            let [dx, dweight, dbias] = want.each_mut().map(|v| &mut v[..]);
            let (x_src, dx) = (Src::from(&x[..]), Dst::from(dx));
            let dy = Src::from(&dy[..]);
            batch_norm::grad(x_src, dy, &mean, &var, &weight, 1e-5, dx, dweight, dbias, &mut workspace);

            let run = |[x, dz]: [Src<'_>; 2], dx: Dst<'_>, dweight: &mut [f32], dbias: &mut [f32]| {
                let mut workspace = vec![f32::NAN; batch_norm::workspace(rows, cols)];
                relu_grad(x, dz, channels, dx, dweight, dbias, &mut workspace);
            };
            let dx = out_of_place_and_in_place([&x, &dz], |inputs, dx| {
                run(inputs, dx, &mut vec![0.0; cols], &mut vec![0.0; cols]);
            });
            let (mut again, mut dweight, mut dbias) = (dx.clone(), vec![0.0; cols], vec![0.0; cols]);
            let inputs = [Src::from(&x[..]), Src::from(&dz[..])];
            run(inputs, Dst::from(&mut again[..]), &mut dweight, &mut dbias);
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            for (got, want) in [dx, dweight, dbias].iter().zip(&want) {
                assert!(bits(got) == bits(want), "[{rows}, {cols}]");
            }
        }
    }
}
