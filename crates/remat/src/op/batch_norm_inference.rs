//! Batch normalisation with given statistics: what evaluation runs instead of the statistics of a batch.

use super::{Cost, Example, Fill, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_shape};
use crate::graph::Type;
use remat_kernels::batch_norm as kernels;

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` per channel; inputs `x: [.., C]`, `weight`, `bias`, `mean` and
/// `variance`. It belongs to evaluation, which is never differentiated, and has no gradient.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchNormInference {
    /// Added to the variance.
    pub eps: f32,
}

impl OpDef for BatchNormInference {
    fn name() -> &'static str {
        "batch_norm_inference"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 5)?;
        expect_float("x", x[0])?;
        for (what, ty) in ["weight", "bias", "mean", "variance"].iter().zip(&x[1..]) {
            expect_shape(what, ty, &[x[0].last()])?;
        }
        Ok(vec![x[0].clone()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 4)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn run(&self, io: &mut Io<'_>) {
        let (weight, bias, mean, variance) = (io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        kernels::apply(io.src(0), mean, variance, weight, bias, self.eps, io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let &[x, weight, bias, mean, variance] = io.x else {
            unreachable!("the type rule takes five inputs")
        };
        let element = |(i, x): (usize, &f64)| {
            let c = i % mean.len();
            (x - mean[c]) / (variance[c] + f64::from(self.eps)).sqrt() * weight[c] + bias[c]
        };
        vec![x.iter().enumerate().map(element).collect()]
    }

    fn examples() -> Vec<Example> {
        let example = |shape: &[usize], c: usize| {
            let channel: &[usize] = &[c];
            let shapes = [shape, channel, channel, channel, channel];
            Example::normal(BatchNormInference { eps: 1e-5 }, &shapes).fill(4, Fill::Uniform(0.5, 2.0))
        };
        vec![example(&[2, 2, 3, 5], 5), example(&[1, 66], 66)]
    }
}
