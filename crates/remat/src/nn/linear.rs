//! Fully connected layers.

use super::Tensor;
use super::init::fan_in_uniform;
use crate::error::Result;
use crate::graph::{Builder, Init, Type};
use crate::ids::ValueId;
use crate::op::linear::Linear as LinearOp;

/// Options of [`Tensor::linear`], as in `nn.Linear`. A plain number is short for [`Linear::new`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Linear {
    outputs: usize,
    bias: bool,
    weight_init: Option<Init>,
    bias_init: Option<Init>,
}

impl Linear {
    /// This many outputs, with a bias; weight and bias start uniform within `1 / sqrt(inputs)`, as in PyTorch.
    pub fn new(outputs: usize) -> Linear {
        Linear { outputs, bias: true, weight_init: None, bias_init: None }
    }

    /// Without a bias: `bias=False`.
    pub fn no_bias(self) -> Linear {
        Linear { bias: false, ..self }
    }

    /// What the weight starts from.
    pub fn init(self, init: Init) -> Linear {
        Linear { weight_init: Some(init), ..self }
    }

    /// What the bias starts from.
    pub fn init_bias(self, init: Init) -> Linear {
        Linear { bias_init: Some(init), ..self }
    }

    /// The parameters `weight` and `bias` of a layer with this many inputs.
    pub(super) fn parameters(&self, b: &mut Builder, inputs: usize) -> Result<(ValueId, Option<ValueId>)> {
        let default = fan_in_uniform(&[inputs]);
        let ty = Type::f32(&[self.outputs, inputs])?;
        let weight = b.parameter("weight", ty, self.weight_init.unwrap_or(default));
        let bias = match self.bias {
            true => Some(b.parameter("bias", Type::f32(&[self.outputs])?, self.bias_init.unwrap_or(default))),
            false => None,
        };
        Ok((weight, bias))
    }
}

impl From<usize> for Linear {
    fn from(outputs: usize) -> Linear {
        Linear::new(outputs)
    }
}

impl<'g> Tensor<'g> {
    /// `x · weightᵀ + bias` over the last dimension: `nn.Linear`. Parameters are `weight: [outputs, inputs]` and `bias`.
    ///
    /// ```
    /// # use remat::nn::{Init, Linear, Model};
    /// # Model::build("example", |g| {
    /// # let x = g.input("input", [4, 8]);
    /// let h = x.linear("fc1", 16);
    /// let logits = h.linear("fc2", Linear::new(10).no_bias().init(Init::Normal(0.02)));
    /// # assert_eq!(logits.shape(), [4, 10]);
    /// # logits.cross_entropy(g.labels("labels", [4], 10))
    /// # })?;
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn linear(self, name: impl AsRef<str>, options: impl Into<Linear>) -> Tensor<'g> {
        let options = options.into();
        self.layer(name, |b, x| {
            let (weight, bias) = options.parameters(b, b.ty(x).last())?;
            let inputs: Vec<ValueId> = [x, weight].into_iter().chain(bias).collect();
            b.add(LinearOp {}, &inputs)
        })
    }

    /// Linear layers `name.0`, `name.1`, … of these widths, with ReLU between them.
    #[track_caller]
    pub fn mlp(self, name: impl AsRef<str>, widths: &[usize]) -> Tensor<'g> {
        self.block(name, |mut x| {
            for (i, &width) in widths.iter().enumerate() {
                let name = i.to_string();
                x = x.linear(&name, width);
                if i + 1 < widths.len() {
                    x = x.scope(name, Tensor::relu);
                }
            }
            x
        })
    }
}
