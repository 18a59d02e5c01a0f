//! Cross-entropy of a linear layer's output, without ever holding all logits.
//!
//! In: `x: [rows, inputs]`, `weight: [classes, inputs]`, optionally `bias: [classes]`, and one label per row. Out: the
//! mean of `-log softmax(x · weightᵀ + bias)[label]` over the rows that have a label (a negative label means: leave
//! this row out), and `lse: [rows]` for the backward. Without any label the loss is not a number, as in PyTorch.
//!
//! The logits exist for a chunk of rows at a time, at most `CHUNK` elements or one row. The backward turns
//! them into gradients in place and adds each chunk's products in order: logits that it computes again, or, where loss and
//! gradients are computed together, those at hand. Time O(rows · inputs · classes).

use super::loss::log_sum_exp;
use crate::base::math::exp_of_weight;
use crate::base::par;
use crate::base::simd::wide;
use crate::matrix::linear::{LinearShape, linear};
use crate::product::gemm::{Mat, MatMut, Write, gemm};
use std::ops::Range;

/// Elements of logits (16 MiB) that may exist at a time whatever the size of the weight.
const CHUNK: usize = 1 << 22;
/// Logits may also take this part of what the weight takes. Every chunk reads the weight twice and its gradient once, and writes
/// the gradient: with few rows that takes longer than the products.
const WEIGHT_SHARE: usize = 4;
/// Classes of the bias gradient that one task adds up.
const COLUMNS: usize = 1024;

/// Rows of logits that are computed together: as even as possible, so that the last chunk is not a small rest.
fn rows_per_chunk(shape: LinearShape) -> usize {
    let most = (CHUNK / shape.outputs.max(1)).max(shape.inputs / WEIGHT_SHARE).clamp(1, shape.rows.max(1));
    shape.rows.div_ceil(shape.rows.div_ceil(most).max(1)).max(1)
}

fn chunks(shape: LinearShape) -> impl Iterator<Item = Range<usize>> {
    let chunk = rows_per_chunk(shape);
    (0..shape.rows).step_by(chunk).map(move |start| start..shape.rows.min(start + chunk))
}

/// Elements of workspace that [`linear_cross_entropy`] and [`linear_cross_entropy_grad`] need: a chunk of logits.
pub fn linear_cross_entropy_workspace(shape: LinearShape) -> usize {
    rows_per_chunk(shape) * shape.outputs
}

/// The layer: its sizes (`outputs` are the classes) and its parameters.
#[derive(Clone, Copy)]
pub struct Classifier<'a> {
    /// Sizes.
    pub shape: LinearShape,
    /// `[classes, inputs]`.
    pub weight: &'a [f32],
    /// `[classes]`.
    pub bias: Option<&'a [f32]>,
}

impl Classifier<'_> {
    fn logits(&self, x: &[f32], rows: &Range<usize>, logits: &mut [f32]) {
        let x = &x[rows.start * self.shape.inputs..rows.end * self.shape.inputs];
        linear(LinearShape { rows: rows.len(), ..self.shape }, x, self.weight, self.bias, logits);
    }

    /// The class a label means; none if the row is left out. A label beyond the classes is the caller's to refuse;
    /// here it only must not reach beyond the logits.
    fn class(&self, label: i32) -> Option<usize> {
        usize::try_from(label).ok().map(|class| class.min(self.shape.outputs - 1))
    }

    /// The gradient of one row's loss: its share in the mean.
    fn factor(&self, labels: &[i32], dloss: f32) -> f32 {
        let n_labels = labels.iter().filter(|&&label| self.class(label).is_some()).count();
        (f64::from(dloss) / n_labels.max(1) as f64) as f32
    }
}

/// Returns the mean loss and fills `lse`.
pub fn linear_cross_entropy(
    classifier: &Classifier<'_>,
    x: &[f32],
    labels: &[i32],
    lse: &mut [f32],
    workspace: &mut [f32],
) -> f32 {
    let shape = classifier.shape;
    check(shape, labels, lse);
    let mut mean = Mean::default();
    for rows in chunks(shape) {
        let logits = &mut workspace[..rows.len() * shape.outputs];
        classifier.logits(x, &rows, logits);
        mean.add(classifier, logits, &labels[rows.clone()], &mut lse[rows]);
    }
    mean.value()
}

fn check(shape: LinearShape, labels: &[i32], lse: &[f32]) {
    assert!(labels.len() == shape.rows && lse.len() == shape.rows, "one label and one lse per row");
    assert!(shape.outputs > 0 || shape.rows == 0, "a softmax over no classes");
}

/// The mean of the losses so far.
#[derive(Default)]
struct Mean {
    sum: f64,
    n_labels: usize,
}

impl Mean {
    /// Adds the losses of some rows of logits, in order, and fills their `lse`.
    fn add(&mut self, classifier: &Classifier<'_>, logits: &[f32], labels: &[i32], lse: &mut [f32]) {
        let classes = classifier.shape.outputs;
        log_sum_exp(logits, lse);
        for (i, &label) in labels.iter().enumerate() {
            if let Some(class) = classifier.class(label) {
                self.sum += f64::from(lse[i]) - f64::from(logits[i * classes + class]);
                self.n_labels += 1;
            }
        }
    }

    fn value(&self) -> f32 {
        (self.sum / self.n_labels as f64) as f32
    }
}

/// What [`linear_cross_entropy_grad`] writes.
pub struct ClassifierGrad<'a> {
    /// `[rows, inputs]`.
    pub dx: &'a mut [f32],
    /// `[classes, inputs]`.
    pub dweight: &'a mut [f32],
    /// `[classes]`.
    pub dbias: Option<&'a mut [f32]>,
}

/// The gradients of the mean loss, times `dloss`.
pub fn linear_cross_entropy_grad(
    classifier: &Classifier<'_>,
    x: &[f32],
    labels: &[i32],
    lse: &[f32],
    dloss: f32,
    mut grad: ClassifierGrad<'_>,
    workspace: &mut [f32],
) {
    let shape = classifier.shape;
    check(shape, labels, lse);
    let factor = classifier.factor(labels, dloss);
    for rows in chunks(shape) {
        let logits = &mut workspace[..rows.len() * shape.outputs];
        classifier.logits(x, &rows, logits);
        grad.add(classifier, &Chunk::new(shape, rows, x, labels, lse), factor, logits);
    }
}

/// The loss with its gradients, times `dloss`: the bits of [`linear_cross_entropy`] and then
/// [`linear_cross_entropy_grad`], with the logits computed once instead of twice.
pub fn linear_cross_entropy_with_grad(
    classifier: &Classifier<'_>,
    x: &[f32],
    labels: &[i32],
    lse: &mut [f32],
    dloss: f32,
    mut grad: ClassifierGrad<'_>,
    workspace: &mut [f32],
) -> f32 {
    let shape = classifier.shape;
    check(shape, labels, lse);
    let factor = classifier.factor(labels, dloss);
    let mut mean = Mean::default();
    for rows in chunks(shape) {
        let logits = &mut workspace[..rows.len() * shape.outputs];
        classifier.logits(x, &rows, logits);
        mean.add(classifier, logits, &labels[rows.clone()], &mut lse[rows.clone()]);
        grad.add(classifier, &Chunk::new(shape, rows, x, labels, lse), factor, logits);
    }
    mean.value()
}

/// Some rows: which they are, and their part of what has a row for each.
struct Chunk<'a> {
    rows: Range<usize>,
    x: &'a [f32],
    labels: &'a [i32],
    lse: &'a [f32],
}

impl<'a> Chunk<'a> {
    fn new(shape: LinearShape, rows: Range<usize>, x: &'a [f32], labels: &'a [i32], lse: &'a [f32]) -> Self {
        let x = &x[rows.start * shape.inputs..rows.end * shape.inputs];
        Chunk { x, labels: &labels[rows.clone()], lse: &lse[rows.clone()], rows }
    }
}

impl ClassifierGrad<'_> {
    /// Turns the logits of some rows into their gradients and adds what follows from them; the first rows come first.
    fn add(&mut self, classifier: &Classifier<'_>, chunk: &Chunk<'_>, factor: f32, logits: &mut [f32]) {
        let LinearShape { inputs, outputs, .. } = classifier.shape;
        let Chunk { rows, x, labels, lse } = chunk;
        par::for_each_chunk(logits, outputs, |i, logits| match classifier.class(labels[i]) {
            Some(class) => {
                scaled_softmax(logits, lse[i], factor);
                logits[class] -= factor;
            }
            None => logits.fill(0.0),
        });
        let write = if rows.start == 0 { Write::Overwrite } else { Write::Accumulate };
        let x = Mat::new(x, rows.len(), inputs);
        let weight = Mat::new(classifier.weight, outputs, inputs);
        let dlogits = Mat::new(logits, rows.len(), outputs);
        let dx = MatMut::new(&mut self.dx[rows.start * inputs..], rows.len(), inputs);
        gemm(Write::Overwrite, 1.0, dlogits, weight, dx);
        gemm(write, 1.0, dlogits.t(), x, MatMut::new(self.dweight, outputs, inputs));
        if let Some(dbias) = self.dbias.as_deref_mut() {
            add_columns(logits, outputs, write, dbias);
        }
    }
}

wide! {
    /// `factor e^(x - lse)` in place.
    fn scaled_softmax(logits: &mut [f32], lse: f32, factor: f32) {
        for logit in logits {
            *logit = factor * exp_of_weight(*logit - lse);
        }
    }
}

/// Adds the rows of `dlogits` to `dbias` (or starts it), in order.
fn add_columns(dlogits: &[f32], classes: usize, write: Write, dbias: &mut [f32]) {
    par::for_each_chunk(dbias, COLUMNS, |i, dbias| {
        if write == Write::Overwrite {
            dbias.fill(0.0);
        }
        for row in dlogits.chunks_exact(classes) {
            for (dbias, dlogit) in dbias.iter_mut().zip(&row[i * COLUMNS..]) {
                *dbias += dlogit;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::linear as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    /// Loss and gradients agree with the definition: the gradients, with the product rule on the naive logits.
    #[track_caller]
    fn check(rows: usize, inputs: usize, outputs: usize, with_bias: bool, every_nth_left_out: usize) {
        let shape = LinearShape { rows, inputs, outputs };
        let (x, weight, bias) = (random(rows * inputs, 1), random(outputs * inputs, 2), random(outputs, 3));
        let label = |r: usize| if r % every_nth_left_out == 1 { -100 } else { (r * 7 % outputs) as i32 };
        let labels: Vec<i32> = (0..rows).map(label).collect();
        let bias = with_bias.then_some(&bias[..]);
        let classifier = Classifier { shape, weight: &weight, bias };
        let (x64, weight64) = (wide(&x), wide(&weight));
        let bias64 = bias.map_or(vec![0.0; outputs], wide);

        let dloss = 1.5;
        let got = same_bits_in_any_pool(|| {
            let mut workspace = vec![f32::NAN; linear_cross_entropy_workspace(shape)];
            let mut lse = vec![f32::NAN; rows];
            let loss = linear_cross_entropy(&classifier, &x, &labels, &mut lse, &mut workspace);
            let (mut dx, mut dweight) = (vec![f32::NAN; x.len()], vec![f32::NAN; weight.len()]);
            let mut dbias = vec![0.0; outputs];
            let grad = ClassifierGrad {
                dx: &mut dx,
                dweight: &mut dweight,
                dbias: with_bias.then_some(&mut dbias[..]),
            };
            linear_cross_entropy_grad(&classifier, &x, &labels, &lse, dloss, grad, &mut workspace);
            [vec![loss], dx, dweight, dbias].concat()
        });
        let mut together = vec![f32::NAN; got.len()];
        let (loss, rest) = together.split_at_mut(1);
        let (dx, rest) = rest.split_at_mut(x.len());
        let (dweight, dbias) = rest.split_at_mut(weight.len());
        dbias.fill(0.0);
        let grad = ClassifierGrad { dx, dweight, dbias: with_bias.then_some(dbias) };
        let (mut lse, mut workspace) = (vec![0.0; rows], vec![0.0; linear_cross_entropy_workspace(shape)]);
        loss[0] =
            linear_cross_entropy_with_grad(&classifier, &x, &labels, &mut lse, dloss, grad, &mut workspace);
        assert!(got.iter().map(|v| v.to_bits()).eq(together.iter().map(|v| v.to_bits())));

        let (loss, rest) = got.split_at(1);
        let (dx, rest) = rest.split_at(x.len());
        let (dweight, dbias) = rest.split_at(weight.len());
        assert_close(loss, &[naive::linear_cross_entropy(&x64, &weight64, &bias64, &labels)], 1e-6);

        let lse = naive::log_sum_exp(&naive::linear(&x64, &weight64, &bias64, rows, inputs), outputs);
        let want =
            naive::linear_cross_entropy_grad(&x64, &weight64, &bias64, &labels, &lse, f64::from(dloss));
        assert_close(dx, &want[0], 1e-5);
        assert_close(dweight, &want[1], 1e-5);
        if with_bias {
            assert_close(dbias, &want[2], 1e-5);
        }
    }

    #[test]
    fn agrees_with_the_definition() {
        check(1, 1, 1, true, 9);
        check(7, 5, 11, false, 3);
        check(40, 33, 130, true, 4);
    }

    #[test]
    fn several_chunks_of_logits() {
        let shape = LinearShape { rows: 25, inputs: 2, outputs: CHUNK / 10 };
        assert_eq!(chunks(shape).collect::<Vec<_>>(), [0..9, 9..18, 18..25]);
        assert!(linear_cross_entropy_workspace(shape) <= CHUNK);
        check(5, 2, CHUNK / 2 - 3, true, 3);
    }

    #[test]
    fn without_any_label_the_loss_is_not_a_number_and_the_gradient_is_zero() {
        let shape = LinearShape { rows: 2, inputs: 1, outputs: 3 };
        let classifier = Classifier { shape, weight: &[1.0, 2.0, 3.0], bias: None };
        let (mut lse, mut workspace) = ([0.0; 2], [0.0; 6]);
        let (mut dx, mut dweight) = ([9.0; 2], [9.0; 3]);
        assert!(linear_cross_entropy(&classifier, &[1.0, 2.0], &[-1, -1], &mut lse, &mut workspace).is_nan());
        let grad = ClassifierGrad { dx: &mut dx, dweight: &mut dweight, dbias: None };
        linear_cross_entropy_grad(&classifier, &[1.0, 2.0], &[-1, -1], &lse, 1.0, grad, &mut workspace);
        assert_eq!((dx, dweight), ([0.0; 2], [0.0; 3]));
    }
}
