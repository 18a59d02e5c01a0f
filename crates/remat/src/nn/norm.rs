//! Normalisation layers. They all normalise or scale along the last dimension: channels of images, width of tokens.

use super::Tensor;
use super::net::refusal;
use crate::error::Result;
use crate::graph::{Builder, Init, Type};
use crate::ids::ValueId;
use crate::op::batch_norm::BatchNorm as BatchNormOp;
use crate::op::layer_norm::LayerNorm;
use crate::op::rms_norm::RmsNorm;
use crate::op::running_update::RunningUpdate;

/// Options of [`Tensor::batch_norm_with`], as in `nn.BatchNorm2d`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BatchNorm {
    /// Added to the variance; 1e-5 by default.
    pub eps: f32,
    /// Weight of the new batch in the running statistics; 0.1 by default.
    pub momentum: f32,
}

impl Default for BatchNorm {
    fn default() -> BatchNorm {
        BatchNorm { eps: 1e-5, momentum: 0.1 }
    }
}

impl BatchNorm {
    /// The running statistics are updated by nodes of their own, so that the norm can be recomputed.
    fn add(self, b: &mut Builder, x: ValueId) -> Result<ValueId> {
        let rows = b.ty(x).rows();
        if rows < 2 {
            let message = "training needs more than one value per channel; use a larger batch or image";
            return Err(refusal(b, "batch_norm", message.to_owned()));
        }
        let ty = Type::f32(&[b.ty(x).last()])?;
        let weight = b.parameter("weight", ty.clone(), Init::Constant(1.0));
        let bias = b.parameter("bias", ty.clone(), Init::Constant(0.0));
        let running_mean = b.buffer("running_mean", ty.clone(), Init::Constant(0.0));
        let running_var = b.buffer("running_var", ty, Init::Constant(1.0));
        let [y, mean, var] = b.add_all(BatchNormOp { eps: self.eps }, &[x, weight, bias])?[..] else {
            unreachable!("batch norm has three outputs")
        };
        // The running variance is the unbiased one, while the batch is normalised with the biased one.
        let unbiased = (rows as f64 / (rows - 1) as f64) as f32;
        let momentum = self.momentum;
        b.add(RunningUpdate { momentum, correction: 1.0 }, &[running_mean, mean])?;
        b.add(RunningUpdate { momentum, correction: unbiased }, &[running_var, var])?;
        Ok(y)
    }
}

impl<'g> Tensor<'g> {
    /// Normalises every channel over the batch: `nn.BatchNorm1d`, `nn.BatchNorm2d`. Parameters are `weight` and `bias`;
    /// the running statistics, which evaluation uses, are kept up to date.
    #[track_caller]
    pub fn batch_norm(self, name: impl AsRef<str>) -> Tensor<'g> {
        self.batch_norm_with(name, BatchNorm::default())
    }

    /// [`Tensor::batch_norm`] with options.
    #[track_caller]
    pub fn batch_norm_with(self, name: impl AsRef<str>, options: BatchNorm) -> Tensor<'g> {
        self.layer(name, |b, x| options.add(b, x))
    }

    /// Normalises every row: `nn.LayerNorm`. Parameters are `weight` and `bias`; PyTorch's epsilon, 1e-5.
    #[track_caller]
    pub fn layer_norm(self, name: impl AsRef<str>) -> Tensor<'g> {
        self.layer_norm_eps(name, 1e-5)
    }

    /// [`Tensor::layer_norm`] with another epsilon.
    #[track_caller]
    pub fn layer_norm_eps(self, name: impl AsRef<str>, eps: f32) -> Tensor<'g> {
        self.layer(name, |b, x| {
            let ty = Type::f32(&[b.ty(x).last()])?;
            let weight = b.parameter("weight", ty.clone(), Init::Constant(1.0));
            let bias = b.parameter("bias", ty, Init::Constant(0.0));
            b.add(LayerNorm { eps }, &[x, weight, bias])
        })
    }

    /// Divides every row by its root mean square: `nn.RMSNorm`. The parameter is `weight`; the epsilon is 1e-6.
    #[track_caller]
    pub fn rms_norm(self, name: impl AsRef<str>) -> Tensor<'g> {
        self.rms_norm_eps(name, 1e-6)
    }

    /// [`Tensor::rms_norm`] with another epsilon.
    #[track_caller]
    pub fn rms_norm_eps(self, name: impl AsRef<str>, eps: f32) -> Tensor<'g> {
        self.layer(name, |b, x| {
            let weight = b.parameter("weight", Type::f32(&[b.ty(x).last()])?, Init::Constant(1.0));
            b.add(RmsNorm { eps }, &[x, weight])
        })
    }
}
