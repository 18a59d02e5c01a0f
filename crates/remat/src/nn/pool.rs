//! Pooling of images `[batch, height, width, channels]`.

use super::{Pair, Tensor};
use crate::op::avg_pool::AvgPool;
use crate::op::global_avg_pool::GlobalAvgPool;
use crate::op::max_pool::MaxPool;

/// A pooling window. A plain number is short for [`Pool::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Pool {
    /// Windows of this extent side by side.
    pub fn new(kernel: impl Into<Pair>) -> Pool {
        let kernel = kernel.into().0;
        Pool { kernel, stride: kernel, padding: [0; 2] }
    }

    /// Input positions from one window to the next.
    pub fn stride(self, stride: impl Into<Pair>) -> Pool {
        Pool { stride: stride.into().0, ..self }
    }

    /// Positions around the image that windows may cover.
    pub fn padding(self, padding: impl Into<Pair>) -> Pool {
        Pool { padding: padding.into().0, ..self }
    }
}

impl From<usize> for Pool {
    fn from(kernel: usize) -> Pool {
        Pool::new(kernel)
    }
}

impl<'g> Tensor<'g> {
    /// The maximum of each window: `nn.MaxPool2d`. `max_pool(2)` halves height and width.
    #[track_caller]
    pub fn max_pool(self, window: impl Into<Pool>) -> Tensor<'g> {
        let Pool { kernel, stride, padding } = window.into();
        self.apply(MaxPool { kernel, stride, padding })
    }

    /// The average of each window, padding counted as zeros: `nn.AvgPool2d`.
    #[track_caller]
    pub fn avg_pool(self, window: impl Into<Pool>) -> Tensor<'g> {
        let Pool { kernel, stride, padding } = window.into();
        self.apply(AvgPool { kernel, stride, padding })
    }

    /// The average over height and width, `[batch, channels]`: `nn.AdaptiveAvgPool2d(1)` and `flatten`.
    #[track_caller]
    pub fn global_avg_pool(self) -> Tensor<'g> {
        self.apply(GlobalAvgPool {})
    }
}
