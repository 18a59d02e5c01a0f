//! Convolutions of images `[batch, height, width, channels]`.

use super::init::fan_in_uniform;
use super::{Pair, Tensor};
use crate::error::{Error, Result};
use crate::graph::{Builder, FileLayout, Init, Kind, Type};
use crate::ids::ValueId;
use crate::op::conv_transpose2d::ConvTranspose2d;
use crate::op::conv2d::Conv2d;

/// Options of [`Tensor::conv2d`]: `nn.Conv2d`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conv {
    outputs: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    dilation: [usize; 2],
    groups: usize,
    bias: bool,
    winograd: Option<bool>,
    weight_init: Option<Init>,
    bias_init: Option<Init>,
}

/// The environment variable that turns Winograd's algorithm off: `off`, or `on` as by default.
const WINOGRAD: &str = "REMAT_WINOGRAD";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Padding {
    /// Half of the dilated kernel.
    Same,
    /// As many zeros on each side.
    Exactly([usize; 2]),
}

impl Conv {
    /// This many output channels, with a bias and without padding, as PyTorch's defaults are.
    pub fn new(outputs: usize, kernel: impl Into<Pair>) -> Conv {
        Conv {
            outputs,
            kernel: kernel.into().0,
            stride: [1; 2],
            padding: Padding::Exactly([0; 2]),
            dilation: [1; 2],
            groups: 1,
            bias: true,
            winograd: None,
            weight_init: None,
            bias_init: None,
        }
    }

    /// As [`Conv::new`], padded so that an odd kernel keeps the size of the image at stride 1: `padding=kernel // 2`.
    pub fn same(outputs: usize, kernel: impl Into<Pair>) -> Conv {
        Conv { padding: Padding::Same, ..Conv::new(outputs, kernel) }
    }

    /// Input positions from one output position to the next.
    pub fn stride(self, stride: impl Into<Pair>) -> Conv {
        Conv { stride: stride.into().0, ..self }
    }

    /// Zeros on each side of the image.
    pub fn padding(self, padding: impl Into<Pair>) -> Conv {
        Conv { padding: Padding::Exactly(padding.into().0), ..self }
    }

    /// Input positions from one element of the kernel to the next.
    pub fn dilation(self, dilation: impl Into<Pair>) -> Conv {
        Conv { dilation: dilation.into().0, ..self }
    }

    /// Groups of channels that do not see each other; as many groups as channels make a depthwise convolution.
    pub fn groups(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }

    /// Without a bias: `bias=False`. Batch norm has a bias of its own.
    pub fn no_bias(self) -> Conv {
        Conv { bias: false, ..self }
    }

    /// Whether to use Winograd's algorithm, which is for kernels of 3×3 with stride 1: faster, and rounded in another way. By
    /// default it is used where it pays, unless `REMAT_WINOGRAD=off` is in the environment.
    pub fn winograd(self, winograd: bool) -> Conv {
        Conv { winograd: Some(winograd), ..self }
    }

    /// What the weight starts from; by default uniform within `1 / sqrt(fan_in)`, as in PyTorch.
    pub fn init(self, init: Init) -> Conv {
        Conv { weight_init: Some(init), ..self }
    }

    /// What the bias starts from; by default as the weight.
    pub fn init_bias(self, init: Init) -> Conv {
        Conv { bias_init: Some(init), ..self }
    }

    fn add(self, b: &mut Builder, x: ValueId) -> Result<ValueId> {
        let [kh, kw] = self.kernel;
        // No groups at all are for the op to refuse.
        let per_group = b.ty(x).last() / self.groups.max(1);
        let default = fan_in_uniform(&[per_group, kh, kw]);
        let padding = match self.padding {
            Padding::Exactly(padding) => padding,
            Padding::Same => [0, 1].map(|axis| self.dilation[axis].saturating_mul(self.kernel[axis] / 2)),
        };
        let weight = conv_weight(b, [self.outputs, kh, kw, per_group], self.weight_init.unwrap_or(default))?;
        let mut inputs = vec![x, weight];
        if self.bias {
            let ty = Type::f32(&[self.outputs])?;
            inputs.push(b.parameter("bias", ty, self.bias_init.unwrap_or(default)));
        }
        let Conv { stride, dilation, groups, .. } = self;
        let plain = Conv2d { stride, padding, dilation, groups, winograd: false };
        let winograd = match self.winograd {
            Some(winograd) => winograd,
            None => is_winograd_on()? && plain.suits_winograd(b.ty(x).shape(), self.outputs, self.kernel),
        };
        b.add(Conv2d { winograd, ..plain }, &inputs)
    }
}

/// Whether the environment leaves Winograd's algorithm to the shapes.
fn is_winograd_on() -> Result<bool> {
    let Some(value) = std::env::var_os(WINOGRAD) else { return Ok(true) };
    match value.to_string_lossy().as_ref() {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(Error::Environment { message: format!("{WINOGRAD}: `{other}` is neither on nor off") }),
    }
}

/// Options of [`Tensor::conv_transpose2d`]: `nn.ConvTranspose2d`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConvTranspose {
    outputs: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    bias: bool,
    weight_init: Option<Init>,
    bias_init: Option<Init>,
}

impl ConvTranspose {
    /// This many output channels, with a bias. Kernel 2 and stride 2 double height and width.
    pub fn new(outputs: usize, kernel: impl Into<Pair>) -> ConvTranspose {
        ConvTranspose {
            outputs,
            kernel: kernel.into().0,
            stride: [1; 2],
            padding: [0; 2],
            bias: true,
            weight_init: None,
            bias_init: None,
        }
    }

    /// Output positions from one input position to the next.
    pub fn stride(self, stride: impl Into<Pair>) -> ConvTranspose {
        ConvTranspose { stride: stride.into().0, ..self }
    }

    /// Rows and columns cut off on each side of the output.
    pub fn padding(self, padding: impl Into<Pair>) -> ConvTranspose {
        ConvTranspose { padding: padding.into().0, ..self }
    }

    /// Without a bias: `bias=False`.
    pub fn no_bias(self) -> ConvTranspose {
        ConvTranspose { bias: false, ..self }
    }

    /// What the weight starts from; by default as in PyTorch.
    pub fn init(self, init: Init) -> ConvTranspose {
        ConvTranspose { weight_init: Some(init), ..self }
    }

    /// What the bias starts from; by default as the weight.
    pub fn init_bias(self, init: Init) -> ConvTranspose {
        ConvTranspose { bias_init: Some(init), ..self }
    }

    fn add(self, b: &mut Builder, x: ValueId) -> Result<ValueId> {
        let [kh, kw] = self.kernel;
        // PyTorch takes the fan-in from the weight's second axis, which for a transposed convolution are the outputs.
        let default = fan_in_uniform(&[self.outputs, kh, kw]);
        let shape = [b.ty(x).last(), kh, kw, self.outputs];
        let mut inputs = vec![x, conv_weight(b, shape, self.weight_init.unwrap_or(default))?];
        if self.bias {
            let ty = Type::f32(&[self.outputs])?;
            inputs.push(b.parameter("bias", ty, self.bias_init.unwrap_or(default)));
        }
        b.add(ConvTranspose2d { stride: self.stride, padding: self.padding }, &inputs)
    }
}

/// A parameter `weight` whose elements weight files hold in PyTorch's order.
fn conv_weight(b: &mut Builder, shape: [usize; 4], init: Init) -> Result<ValueId> {
    Ok(b.source("weight", Kind::Parameter, Type::f32(&shape)?, init, FileLayout::ConvWeight))
}

impl<'g> Tensor<'g> {
    /// Convolution of images: `nn.Conv2d`. Parameters are `weight: [outputs, height, width, inputs / groups]` (weight
    /// files hold PyTorch's order) and `bias`.
    #[track_caller]
    pub fn conv2d(self, name: impl AsRef<str>, options: Conv) -> Tensor<'g> {
        self.layer(name, |b, x| options.add(b, x))
    }

    /// Transposed convolution, learned upsampling: `nn.ConvTranspose2d`.
    #[track_caller]
    pub fn conv_transpose2d(self, name: impl AsRef<str>, options: ConvTranspose) -> Tensor<'g> {
        self.layer(name, |b, x| options.add(b, x))
    }
}
