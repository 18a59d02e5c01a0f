//! What training makes smaller.

use super::embedding::expect_limit;
use super::net::refusal;
use super::{Embedding, Linear, ModelRoles, Net, Tensor};
use crate::op::cross_entropy::CrossEntropy;
use crate::op::linear_cross_entropy::LinearCrossEntropy;
use crate::op::mse::Mse;
use std::ops::{Add, Mul};

/// The number that training makes smaller, with the roles of the tensors it was made from.
///
/// Losses can be added and weighted: `main + auxiliary * 0.3`. The first one then says what the model predicts.
#[derive(Clone, Copy, Debug)]
#[must_use = "a model is trained on the loss that its function returns"]
pub struct Loss<'g> {
    /// The number.
    value: Tensor<'g>,
    /// The output of the op that compares predictions with labels.
    compared: Tensor<'g>,
    prediction: Option<Tensor<'g>>,
    labels: Option<Tensor<'g>>,
}

impl<'g> Loss<'g> {
    fn of(value: Tensor<'g>, prediction: Option<Tensor<'g>>, labels: Option<Tensor<'g>>) -> Loss<'g> {
        Loss { value, compared: value, prediction, labels }
    }

    /// The number as a tensor.
    pub fn tensor(self) -> Tensor<'g> {
        self.value
    }

    /// What the model predicts: logits or values. `None` where they never exist as a whole, as within
    /// [`Tensor::linear_cross_entropy`].
    pub fn prediction(self) -> Option<Tensor<'g>> {
        self.prediction
    }

    /// What the prediction is compared with.
    pub fn labels(self) -> Option<Tensor<'g>> {
        self.labels
    }

    /// Says what the model predicts, for a loss that does not know it.
    #[track_caller]
    pub fn predicting(self, prediction: Tensor<'g>) -> Loss<'g> {
        let checked = self.value.net().node("", &[prediction], |_, x| Ok(x[0]));
        Loss { prediction: Some(checked), ..self }
    }

    /// Its parts in the graph of `net`; `None` after a mistake.
    #[track_caller]
    pub(super) fn roles(self, net: &Net) -> Option<ModelRoles> {
        net.build("", &[self.value, self.compared], |b, x| {
            let Some((compares, _)) = b.graph().values[x[1]].producer else {
                return Err(refusal(b, "loss", "must be computed by the network".to_owned()));
            };
            let [prediction, labels] =
                [self.prediction, self.labels].map(|part| part.and_then(Tensor::value));
            Ok(ModelRoles { loss: x[0], compares, prediction, labels })
        })
    }
}

impl<'g> Add for Loss<'g> {
    type Output = Loss<'g>;

    #[track_caller]
    fn add(self, other: Loss<'g>) -> Loss<'g> {
        Loss { value: self.value + other.value, ..self }
    }
}

impl<'g> Mul<f32> for Loss<'g> {
    type Output = Loss<'g>;

    #[track_caller]
    fn mul(self, factor: f32) -> Loss<'g> {
        Loss { value: self.value * factor, ..self }
    }
}

/// The last layer of [`Tensor::linear_cross_entropy`]: a new one, or parameters that the network has already.
#[derive(Clone, Copy, Debug)]
pub enum Head<'g> {
    /// A linear layer of its own; a plain number of classes makes one.
    New(Linear),
    /// A matrix `[classes, width]`, such as the table of an embedding, and perhaps a bias `[classes]`.
    Tied {
        /// The matrix.
        weight: Tensor<'g>,
        /// The bias.
        bias: Option<Tensor<'g>>,
    },
}

impl From<usize> for Head<'_> {
    fn from(classes: usize) -> Self {
        Head::New(Linear::new(classes))
    }
}

impl From<Linear> for Head<'_> {
    fn from(layer: Linear) -> Self {
        Head::New(layer)
    }
}

impl<'g> From<Tensor<'g>> for Head<'g> {
    fn from(weight: Tensor<'g>) -> Self {
        Head::Tied { weight, bias: None }
    }
}

impl<'g> From<Embedding<'g>> for Head<'g> {
    fn from(table: Embedding<'g>) -> Self {
        Head::from(table.weight())
    }
}

impl<'g> From<(Embedding<'g>, Tensor<'g>)> for Head<'g> {
    fn from((table, bias): (Embedding<'g>, Tensor<'g>)) -> Self {
        Head::Tied { weight: table.weight(), bias: Some(bias) }
    }
}

impl<'g> Tensor<'g> {
    /// The mean cross-entropy of logits `[.., classes]` with labels `[..]`: `nn.CrossEntropyLoss`. Negative labels are
    /// ignored.
    #[track_caller]
    pub fn cross_entropy(self, labels: Tensor<'g>) -> Loss<'g> {
        let value = self.net().node("", &[self, labels], |b, x| {
            expect_limit(b, "cross_entropy", x[1], "classes", b.ty(x[0]).last())?;
            b.add(CrossEntropy {}, x)
        });
        Loss::of(value, Some(self), Some(labels))
    }

    /// A linear layer and the mean cross-entropy of its outputs with `labels`, as one op: the logits, by far the largest
    /// tensor of a language model, never exist as a whole.
    ///
    /// The head is a number of classes, a [`Linear`], or parameters that exist already, such as an [`Embedding`].
    #[track_caller]
    pub fn linear_cross_entropy(
        self,
        name: impl AsRef<str>,
        head: impl Into<Head<'g>>,
        labels: Tensor<'g>,
    ) -> Loss<'g> {
        let head = head.into();
        let mut inputs = vec![self, labels];
        if let Head::Tied { weight, bias } = head {
            inputs.extend([Some(weight), bias].into_iter().flatten());
        }
        let value = self.net().node(name.as_ref(), &inputs, |b, x| {
            let (weight, bias) = match head {
                Head::New(layer) => layer.parameters(b, b.ty(x[0]).last())?,
                Head::Tied { .. } => (x[2], x.get(3).copied()),
            };
            let classes = b.ty(weight).shape().first().copied().unwrap_or(0);
            expect_limit(b, "linear_cross_entropy", x[1], "classes", classes)?;
            let inputs: Vec<_> = [x[0], weight, x[1]].into_iter().chain(bias).collect();
            b.add(LinearCrossEntropy {}, &inputs)
        });
        Loss::of(value, None, Some(labels))
    }

    /// The mean squared difference from a target of the same shape: `nn.MSELoss`.
    #[track_caller]
    pub fn mse(self, target: Tensor<'g>) -> Loss<'g> {
        Loss::of(self.net().apply(Mse {}, &[self, target]), Some(self), Some(target))
    }

    /// Any single number as a loss, such as the output of a loss op of your own.
    #[track_caller]
    pub fn loss(self) -> Loss<'g> {
        let value = self.layer("", |b, x| match b.ty(x).rank() {
            0 => Ok(x),
            _ => Err(refusal(b, "loss", format!("must be a single number, got {}", b.ty(x)))),
        });
        Loss::of(value, None, None)
    }
}
