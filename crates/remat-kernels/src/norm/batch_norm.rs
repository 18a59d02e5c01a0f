//! Batch normalisation in training, on a matrix of `rows = N·H·W` samples (images are NHWC) by `C` channels.
//!
//! In: `x: [rows, C]`, weight and bias `[C]`. Out: `y`, and the mean and biased variance `[C]` of the batch, which
//! backward needs and the running statistics are updated from. `y` may be `x`, and `dx` may be `dy` or `x`: all sums
//! are taken before the first write. Time O(rows · C); the workspace holds the chunks' sums.

use std::ops::Range;

use super::not_negative;
use crate::base::cache::prefetch;
use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::map::map;
use crate::loops::rows::{ColumnSums, column_moments_workspace, sum_columns};

/// Channels whose constants are computed once for the rows of a task: as many as fit in the first-level cache, because
/// longer runs of neighbours stream better.
const CHANNELS: usize = 1024;
/// Channels that are read, computed and written together.
const BLOCK: usize = 16;
/// Elements per task: more than elsewhere, to pay for the constants.
const ELEMENTS_PER_TASK: usize = 1 << 17;

/// Elements of workspace that [`stats`] and [`grad`] need.
pub fn workspace(rows: usize, channels: usize) -> usize {
    column_moments_workspace(rows, channels)
}

/// Mean and biased variance of each column of `x: [rows, C]`.
pub fn stats(x: Src<'_>, mean: &mut [f32], var: &mut [f32], workspace: &mut [f32]) {
    let channels = mean.len();
    assert_eq!(var.len(), channels, "one variance for every mean");
    let n_rows = x.len() / channels.max(1);
    assert_eq!(x.len(), n_rows * channels, "the matrix is [rows, channels]");
    pivots(x, mean);
    let pivots = Src::from(&*mean);
    let moments = sum_columns(n_rows, channels, workspace, |rows, sums| add_squares(x, pivots, rows, sums));
    let n_rows = n_rows as f64;
    for c in 0..channels {
        let distance = moments.sum[c] / n_rows;
        mean[c] = (f64::from(mean[c]) + distance) as f32;
        var[c] = not_negative(moments.moment[c] / n_rows - distance * distance) as f32;
    }
}

wide! {
    /// Adds the distances of `x` from the pivots, and their squares. With pivots that are typical elements the terms do not
    /// cancel.
    fn add_squares(x: Src<'_>, pivots: Src<'_>, rows: Range<usize>, sums: &mut ColumnSums<'_>) {
        sums.add(rows, [x], [pivots], |[x], [pivot], [sum, squares]| {
            let distance = x - pivot;
            [sum + distance, distance.mul_add(distance, squares)]
        });
    }
}

/// Elements that the columns of `x` lie around: the means of the first rows.
fn pivots(x: Src<'_>, pivots: &mut [f32]) {
    const ROWS: usize = 8;
    let cols = pivots.len();
    let n_rows = ROWS.min(x.len() / cols.max(1));
    for (c, pivot) in pivots.iter_mut().enumerate() {
        let sum: f32 = (0..n_rows).map(|row| x.array::<1>(row * cols + c)[0]).sum();
        *pivot = sum / n_rows.max(1) as f32;
    }
}

/// `y = (x - mean) / sqrt(var + eps) * weight + bias`.
pub fn apply(x: Src<'_>, mean: &[f32], var: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: Dst<'_>) {
    let constants = |c: usize| [mean[c], weight[c] * inverse_deviation(var[c], eps), bias[c]];
    map_channels([x], y, mean.len(), constants, |[x], [mean, scale, bias]| (x - mean) * scale + bias);
}

/// What [`apply`] multiplies the centred elements of each channel with: `weight / sqrt(var + eps)`.
pub fn scales(var: Src<'_>, weight: Src<'_>, eps: f32, scales: &mut [f32]) {
    map([var, weight], scales.into(), move |[var, weight]: [f32; 2]| weight * inverse_deviation(var, eps));
}

/// Gradients of [`apply`] after [`stats`], the batch statistics being functions of `x` too.
///
/// With `x̂ = (x - mean) / σ`: `dbias = Σ dy`, `dweight = Σ dy x̂`, and
/// `dx = weight / σ (dy - dbias / rows - x̂ dweight / rows)`.
#[allow(clippy::too_many_arguments)]
pub fn grad(
    x: Src<'_>,
    dy: Src<'_>,
    mean: &[f32],
    var: &[f32],
    weight: &[f32],
    eps: f32,
    dx: Dst<'_>,
    dweight: &mut [f32],
    dbias: &mut [f32],
    workspace: &mut [f32],
) {
    let channels = mean.len();
    let inverse_rows = channels as f32 / x.len() as f32;
    let n_rows = x.len() / channels.max(1);
    assert_eq!([x.len(), dy.len()], [n_rows * channels; 2], "both matrices are [rows, channels]");
    let means = Src::from(mean);
    let moments =
        sum_columns(n_rows, channels, workspace, |rows, sums| add_products(x, dy, means, rows, sums));
    for c in 0..channels {
        dbias[c] = moments.sum[c] as f32;
        dweight[c] = (moments.moment[c] * f64::from(inverse_deviation(var[c], eps))) as f32;
    }
    let constants = |c: usize| {
        let inverse = inverse_deviation(var[c], eps);
        [mean[c], weight[c] * inverse, dbias[c] * inverse_rows, dweight[c] * inverse_rows * inverse]
    };
    map_channels([x, dy], dx, channels, constants, |[x, dy], [mean, scale, offset, slope]| {
        scale * (dy - offset - (x - mean) * slope)
    });
}

wide! {
    /// Adds `dy`, and its products with the centred `x`.
    fn add_products(x: Src<'_>, dy: Src<'_>, means: Src<'_>, rows: Range<usize>, sums: &mut ColumnSums<'_>) {
        sums.add(rows, [x, dy], [means], |[x, dy], [mean], [sum, moment]| {
            [sum + dy, dy.mul_add(x - mean, moment)]
        });
    }
}

/// `new = (1 - momentum) old + momentum correction batch`; `new` may be `old`.
///
/// `correction` is 1 for the mean and `rows / (rows - 1)` for the variance: the running one is the unbiased one.
pub fn running_update(old: Src<'_>, batch: Src<'_>, momentum: f32, correction: f32, new: Dst<'_>) {
    map([old, batch], new, move |[old, batch]: [f32; 2]| {
        (1.0 - momentum) * old + momentum * (correction * batch)
    });
}

pub(crate) fn inverse_deviation(var: f32, eps: f32) -> f32 {
    super::inverse_deviation(f64::from(var), eps)
}

/// `y[r, c] = f(inputs[r, c], constants(c))`; `y` may be one of the inputs.
///
/// Rows of few channels are handled several at a time, as one long row in which the constants repeat.
pub(crate) fn map_channels<const N: usize, const K: usize>(
    inputs: [Src<'_>; N],
    y: Dst<'_>,
    channels: usize,
    constants: impl Fn(usize) -> [f32; K] + Copy + Send + Sync,
    f: impl Fn([f32; N], [f32; K]) -> f32 + Copy + Send + Sync,
) {
    for input in &inputs {
        assert_eq!(input.len(), y.len(), "inputs and output have the same shape");
    }
    let channels = channels.max(1);
    let row_len = channels * (CHANNELS / channels).max(1);
    let rows_per_task = (ELEMENTS_PER_TASK / row_len).max(1);
    par::for_each_range(y.len(), rows_per_task * row_len, |range| {
        map_channels_of(inputs, y, channels, row_len, range, constants, f);
    });
}

wide! {
    fn map_channels_of[const N: usize, const K: usize, C: Fn(usize) -> [f32; K], F: Fn([f32; N], [f32; K]) -> f32](
        inputs: [Src<'_>; N],
        y: Dst<'_>,
        channels: usize,
        row_len: usize,
        range: Range<usize>,
        constants: C,
        f: F,
    ) {
        for first in (0..row_len).step_by(CHANNELS) {
            let mut table = [[0.0; CHANNELS]; K];
            let width = CHANNELS.min(row_len - first);
            for i in 0..width.min(channels) {
                for (column, constant) in table.iter_mut().zip(constants(first + i)) {
                    column[i] = constant;
                }
            }
            for repeat in (channels..width).step_by(channels) {
                table.iter_mut().for_each(|column| column.copy_within(..channels, repeat));
            }
            for row_start in range.clone().step_by(row_len) {
                let row_end = range.end.min(row_start + row_len);
                let at = row_start + first;
                let width = CHANNELS.min(row_end.saturating_sub(at));
                let whole = width / BLOCK * BLOCK;
                for i in (0..whole).step_by(BLOCK) {
                    map_channel_block::<N, K, BLOCK>(inputs, y, at, i, &table, &f);
                    if row_len > CHANNELS {
                        // The processor does not foresee where the next part of a row begins.
                        let next = at + i + row_len;
                        inputs.iter().for_each(|input| prefetch(input.address().wrapping_add(next)));
                        prefetch(y.address().wrapping_add(next));
                    }
                }
                for i in whole..width {
                    map_channel_block::<N, K, 1>(inputs, y, at, i, &table, &f);
                }
            }
        }
    }
}

/// `W` channels of a row, the first of which is at `first` in the table of constants.
#[inline(always)]
fn map_channel_block<const N: usize, const K: usize, const W: usize>(
    inputs: [Src<'_>; N],
    y: Dst<'_>,
    at: usize,
    first: usize,
    table: &[[f32; CHANNELS]; K],
    f: &impl Fn([f32; N], [f32; K]) -> f32,
) {
    let (mut blocks, mut constants) = ([[0.0; W]; N], [[0.0; W]; K]);
    for (block, input) in blocks.iter_mut().zip(inputs) {
        *block = input.array(at + first);
    }
    for (constants, column) in constants.iter_mut().zip(table) {
        *constants = Src::from(&column[..]).array(first);
    }
    let mut out = [0.0; W];
    for (i, out) in out.iter_mut().enumerate() {
        let (mut x, mut constant) = ([0.0; N], [0.0; K]);
        for (x, block) in x.iter_mut().zip(&blocks) {
            *x = block[i];
        }
        for (constant, column) in constant.iter_mut().zip(&constants) {
            *constant = column[i];
        }
        *out = f(x, constant);
    }
    // SAFETY: tasks get disjoint rows, and this task has read the block already.
    unsafe { y.write(at + first, &out) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::norm as naive;
    use crate::testing::{assert_close, out_of_place_and_in_place, random, same_bits_in_any_pool, wide};

    const EPS: f32 = 1e-5;
    const SHAPES: [(usize, usize); 8] =
        [(9, 1), (7, 3), (64, 32), (500, 64), (33, 65), (1000, 100), (3000, 16), (40, 2048)];

    struct Case {
        channels: usize,
        x: Vec<f32>,
        dy: Vec<f32>,
        weight: Vec<f32>,
        bias: Vec<f32>,
    }

    /// Data with a mean that is `offset` times the spread.
    fn case(rows: usize, channels: usize, offset: f32) -> Case {
        let x = random(rows * channels, 1).iter().map(|x| x + offset).collect();
        let weight = random(channels, 3);
        Case { channels, x, dy: random(rows * channels, 2), weight, bias: random(channels, 4) }
    }

    impl Case {
        fn stats(&self) -> (Vec<f32>, Vec<f32>) {
            let both = same_bits_in_any_pool(|| {
                let mut both = vec![f32::NAN; 2 * self.channels];
                let (mean, var) = both.split_at_mut(self.channels);
                let mut workspace = vec![f32::NAN; workspace(self.x.len() / self.channels, self.channels)];
                stats(Src::from(&self.x[..]), mean, var, &mut workspace);
                both
            });
            (both[..self.channels].to_vec(), both[self.channels..].to_vec())
        }
    }

    #[test]
    fn forward_agrees_with_the_definition() {
        for (rows, channels) in SHAPES {
            let case = case(rows, channels, 0.0);
            let (mean, var) = case.stats();
            let (want_mean, want_var) = naive::batch_stats(&wide(&case.x), channels);
            assert_close(&mean, &want_mean, 1e-6);
            assert_close(&var, &want_var, 1e-6);
            let y = out_of_place_and_in_place([&case.x], |[x], y| {
                apply(x, &mean, &var, &case.weight, &case.bias, EPS, y);
            });
            let want =
                naive::batch_norm(&wide(&case.x), &wide(&case.weight), &wide(&case.bias), f64::from(EPS));
            assert_close(&y, &want, 2e-6);
        }
    }

    #[test]
    fn gradients_agree_with_the_definition() {
        for (rows, channels) in SHAPES {
            let case = case(rows, channels, 0.0);
            let (mean, var) = case.stats();
            let [mut dweight, mut dbias] = [vec![f32::NAN; channels], vec![f32::NAN; channels]];
            let run = |[x, dy]: [Src<'_>; 2], dx: Dst<'_>, dweight: &mut [f32], dbias: &mut [f32]| {
                let mut workspace = vec![f32::NAN; workspace(rows, channels)];
                grad(x, dy, &mean, &var, &case.weight, EPS, dx, dweight, dbias, &mut workspace);
            };
            let dx = out_of_place_and_in_place([&case.x, &case.dy], |inputs, dx| {
                run(inputs, dx, &mut vec![0.0; channels], &mut vec![0.0; channels]);
            });
            let mut again = dx.clone();
            run(
                [Src::from(&case.x[..]), Src::from(&case.dy[..])],
                Dst::from(&mut again[..]),
                &mut dweight,
                &mut dbias,
            );
            let (mean, var) = naive::batch_stats(&wide(&case.x), channels);
            let [x, dy, weight] = [&case.x, &case.dy, &case.weight].map(|data| wide(data));
            let want = naive::batch_norm_grad(&x, &dy, &weight, (&mean, &var), f64::from(EPS));
            assert_close(&dx, &want.0, 3e-6);
            assert_close(&dweight, &want.1, 1e-5);
            assert_close(&dbias, &want.2, 1e-6);
        }
    }

    #[test]
    fn a_mean_far_from_zero_costs_no_accuracy_beyond_that_of_the_input() {
        for offset in [100.0, 3000.0] {
            let case = case(5000, 24, offset);
            let (mean, var) = case.stats();
            let (want_mean, want_var) = naive::batch_stats(&wide(&case.x), case.channels);
            assert_close(&mean, &want_mean, 1e-7);
            assert_close(&var, &want_var, 1e-6);
        }
    }

    #[test]
    fn running_statistics_move_towards_the_batch() {
        let inputs = [random(37, 1), random(37, 2)];
        let new = out_of_place_and_in_place(inputs.each_ref(), |[old, batch], new| {
            running_update(old, batch, 0.1, 1.25, new);
        });
        assert_close(&new, &naive::running_update(&wide(&inputs[0]), &wide(&inputs[1]), 0.1, 1.25), 2e-7);
    }
}
