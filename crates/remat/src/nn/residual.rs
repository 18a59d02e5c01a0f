//! Residual blocks of image networks: He et al., "Deep residual learning for image recognition", 2015.

use super::init::he_normal;
use super::{Conv, Tensor};

/// A block of [`Tensor::residual`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residual {
    kind: Kind,
    width: usize,
    stride: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Basic,
    Bottleneck,
}

impl Residual {
    /// Two 3×3 convolutions of this many channels: torchvision's `BasicBlock`.
    pub fn basic(width: usize) -> Residual {
        Residual { kind: Kind::Basic, width, stride: 1 }
    }

    /// 1×1 and 3×3 convolutions of this many channels and a 1×1 one of four times as many: torchvision's `Bottleneck`,
    /// with the stride on the 3×3 convolution ("V1.5").
    pub fn bottleneck(width: usize) -> Residual {
        Residual { kind: Kind::Bottleneck, width, stride: 1 }
    }

    /// Divides height and width of the image.
    pub fn stride(self, stride: usize) -> Residual {
        Residual { stride, ..self }
    }
}

impl<'g> Tensor<'g> {
    /// `relu(branch(x) + x)`; where shapes change, the shortcut is a 1×1 convolution with batch norm. Names and
    /// initialisation are torchvision's.
    #[track_caller]
    pub fn residual(self, name: impl AsRef<str>, block: Residual) -> Tensor<'g> {
        let Residual { kind, width, stride } = block;
        self.block(name, |x| {
            let (branch, outputs) = match kind {
                Kind::Basic => {
                    let y = x.conv_norm_relu(1, width, 3, stride);
                    (y.he_conv("conv2", width, 3, 1).batch_norm("bn2"), width)
                }
                Kind::Bottleneck => {
                    let outputs = width.saturating_mul(4);
                    let y = x.conv_norm_relu(1, width, 1, 1).conv_norm_relu(2, width, 3, stride);
                    (y.he_conv("conv3", outputs, 1, 1).batch_norm("bn3"), outputs)
                }
            };
            let shortcut = match stride == 1 && x.width() == outputs {
                true => x,
                false => x.he_conv("downsample.0", outputs, 1, stride).batch_norm("downsample.1"),
            };
            (branch + shortcut).scope("relu", Tensor::relu)
        })
    }

    /// The `n`-th convolution of a block with what follows it.
    fn conv_norm_relu(self, n: usize, width: usize, kernel: usize, stride: usize) -> Tensor<'g> {
        let y = self.he_conv(&format!("conv{n}"), width, kernel, stride);
        y.batch_norm(format!("bn{n}")).scope("relu", Tensor::relu)
    }

    /// A convolution without bias, with torchvision's initialisation.
    fn he_conv(self, name: &str, outputs: usize, kernel: usize, stride: usize) -> Tensor<'g> {
        let init = he_normal(&[outputs, kernel, kernel]);
        self.conv2d(name, Conv::same(outputs, kernel).stride(stride).no_bias().init(init))
    }
}
