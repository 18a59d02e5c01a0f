//! Losses: cross-entropy from logits, and the mean squared error. Both are means; sums are taken in `f64`, in order.
//!
//! Cross-entropy: in `logits: [rows, cols]` and a label per row, out the mean over the rows with a label of
//! `lse - logit[label]`, and per row `lse = ln Σ e^logit`, from which backward gets the probabilities in one pass. A
//! negative label marks a row to ignore, as PyTorch's -100 does; a loss over no row at all is not a number. `dlogits`
//! may be `logits`. Labels are checked by [`check_labels`] before a kernel runs. Time O(elements), no workspace.

use std::ops::Range;

use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::map::{Map, map, map_run};
use crate::loops::rows::{for_each_rows, sum_row};
use crate::norm::softmax::{ScaledExp, for_each_sum_of_exp};

/// `Err(i)` if `labels[i]` is the first label that is `cols` or more.
pub fn check_labels(labels: &[i32], cols: usize) -> Result<(), usize> {
    let inside = |&label: &i32| usize::try_from(label).map_or(true, |label| label < cols);
    labels.iter().position(|label| !inside(label)).map_or(Ok(()), Err)
}

/// Returns the mean loss and writes `lse: [rows]`.
pub fn cross_entropy(logits: &[f32], labels: &[i32], lse: &mut [f32]) -> f32 {
    let rows = labels.len();
    let cols = logits.len() / rows.max(1);
    assert_eq!((logits.len(), lse.len()), (rows * cols, rows), "one label and one lse for every row");
    log_sum_exp(logits, lse);
    let mut sum = 0.0;
    for (row, &label) in labels.iter().enumerate() {
        if let Ok(label) = usize::try_from(label) {
            sum += f64::from(lse[row]) - f64::from(logits[row * cols..][..cols][label]);
        }
    }
    (sum / count(labels)) as f32
}

/// Writes `ln Σ e^logit` of every row of `logits: [rows, cols]`.
pub(crate) fn log_sum_exp(logits: &[f32], lse: &mut [f32]) {
    let (rows, cols) = (lse.len(), logits.len() / lse.len().max(1));
    let (logits, lse) = (Src::from(logits), Dst::from(lse));
    for_each_rows(rows, cols, |rows| lse_rows(logits, cols, lse, rows));
}

wide! {
    fn lse_rows(logits: Src<'_>, cols: usize, lse: Dst<'_>, rows: Range<usize>) {
        for_each_sum_of_exp(logits, cols, rows, None, |row, max, sum| {
            // SAFETY: the row belongs to this task alone.
            unsafe { lse.write(row, &[(f64::from(max) + libm::log(sum)) as f32]) }
        });
    }
}

/// `dlogits = (e^(logit - lse) - [column is the label]) dloss / (rows with a label)`.
pub fn cross_entropy_grad(logits: Src<'_>, labels: &[i32], lse: &[f32], dloss: f32, dlogits: Dst<'_>) {
    let rows = labels.len();
    let cols = logits.len() / rows.max(1);
    assert_eq!((dlogits.len(), lse.len()), (rows * cols, rows), "one label and one lse for every row");
    let factor = (f64::from(dloss) / count(labels)) as f32;
    for_each_rows(rows, cols, |rows| {
        cross_entropy_grad_rows(logits, cols, labels, lse, factor, dlogits, rows);
    });
}

wide! {
    fn cross_entropy_grad_rows(
        logits: Src<'_>,
        cols: usize,
        labels: &[i32],
        lse: &[f32],
        factor: f32,
        dlogits: Dst<'_>,
        rows: Range<usize>,
    ) {
        for row in rows {
            let start = row * cols;
            let Ok(label) = usize::try_from(labels[row]) else {
                map_run([], (dlogits, start), cols, |[]: [f32; 0]| 0.0);
                continue;
            };
            assert!(label < cols, "labels were checked");
            // The label's logit is read before the row is written, because it may be the same memory.
            let mut logit = [0.0];
            logits.read(start + label, &mut logit);
            let probability = ScaledExp { shift: lse[row], factor };
            map_run([(logits, start)], (dlogits, start), cols, probability);
            // SAFETY: the row belongs to this task alone.
            unsafe { dlogits.write(start + label, &[probability.at(logit) - factor]) }
        }
    }
}

/// The number of rows with a label.
fn count(labels: &[i32]) -> f64 {
    labels.iter().filter(|&&label| label >= 0).count() as f64
}

wide! {
    /// The mean of `(x - target)²`.
    pub fn mse(x: &[f32], target: &[f32]) -> f32 {
        assert_eq!(x.len(), target.len(), "one target for every element");
        let inputs = [(Src::from(x), 0), (Src::from(target), 0)];
        let [sum] = sum_row(inputs, x.len(), |[x, target], [sum]| {
            let difference = x - target;
            [difference.mul_add(difference, sum)]
        });
        (sum / x.len() as f64) as f32
    }
}

/// `dx = 2 (x - target) dloss / n`; `dx` may be either input, and the gradient of the target is the same with the
/// inputs swapped.
pub fn mse_grad(x: Src<'_>, target: Src<'_>, dloss: f32, dx: Dst<'_>) {
    let factor = (2.0 * f64::from(dloss) / x.len() as f64) as f32;
    map([x, target], dx, move |[x, target]: [f32; 2]| factor * (x - target));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::loss as naive;
    use crate::testing::{
        LENGTHS, assert_close, out_of_place_and_in_place, random, same_bits_in_any_pool, wide,
    };

    fn labels(rows: usize, cols: usize) -> Vec<i32> {
        // Every fifth row is to be ignored.
        (0..rows).map(|r| if r % 5 == 4 { -100 } else { ((r * 7919) % cols) as i32 }).collect()
    }

    #[test]
    fn cross_entropy_agrees_with_the_definition() {
        for (rows, cols) in [(1, 2), (3, 5), (10, 64), (7, 1000), (300, 65), (40, 30_011)] {
            let logits: Vec<f32> = random(rows * cols, 1).iter().map(|x| 5.0 * x + 100.0).collect();
            let labels = labels(rows, cols);
            assert_eq!(check_labels(&labels, cols), Ok(()));
            let got = same_bits_in_any_pool(|| {
                let mut lse = vec![f32::NAN; rows + 1];
                lse[rows] = cross_entropy(&logits, &labels, &mut lse[..rows]);
                lse
            });
            let (want_loss, want_lse) = naive::cross_entropy(&wide(&logits), &labels);
            assert_close(&got[..rows], &want_lse, 1e-7);
            assert_close(&got[rows..], &[want_loss], 2e-6);

            let dlogits = out_of_place_and_in_place([&logits], |[logits], dlogits| {
                cross_entropy_grad(logits, &labels, &got[..rows], 0.7, dlogits);
            });
            // A logit near 100 is known to 4e-6, and so is the relative error of its exponential.
            let want = naive::cross_entropy_grad(&wide(&logits), &labels, &want_lse, 0.7);
            assert_close(&dlogits, &want, 1e-5);
        }
    }

    #[test]
    fn a_loss_over_no_row_is_not_a_number_and_has_no_gradient() {
        let logits = [1.0, 2.0, 3.0, 4.0];
        let mut lse = [0.0; 2];
        assert!(cross_entropy(&logits, &[-1, -1], &mut lse).is_nan());
        let mut dlogits = [f32::NAN; 4];
        cross_entropy_grad(Src::from(&logits[..]), &[-1, -1], &lse, 1.0, Dst::from(&mut dlogits[..]));
        assert_eq!(dlogits, [0.0; 4]);
    }

    #[test]
    fn the_first_bad_label_is_named() {
        assert_eq!(check_labels(&[0, -100, 4], 5), Ok(()));
        assert_eq!(check_labels(&[0, -100, 5, 9], 5), Err(2));
    }

    #[test]
    fn mean_squared_error_agrees_with_the_definition() {
        for n in LENGTHS {
            let inputs = [random(n, 1), random(n, 2)];
            let (x, target) = (wide(&inputs[0]), wide(&inputs[1]));
            assert_close(&[mse(&inputs[0], &inputs[1])], &[naive::mse(&x, &target)], 1e-7);
            let dx =
                out_of_place_and_in_place(inputs.each_ref(), |[x, target], dx| mse_grad(x, target, 0.7, dx));
            assert_close(&dx, &naive::mse_grad(&x, &target, 0.7), 1e-6);
        }
    }
}
