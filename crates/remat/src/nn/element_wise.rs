//! Activations, dropout, products, and arithmetic on handles.

use super::Tensor;
use crate::op::add::Add as AddOp;
use crate::op::dropout::Dropout;
use crate::op::gelu::Gelu;
use crate::op::matmul::MatMul;
use crate::op::mul::Mul as MulOp;
use crate::op::relu::Relu;
use crate::op::scale::Scale;
use crate::op::silu::Silu;
use crate::op::softmax::Softmax;
use std::ops::{Add, Mul, Neg, Sub};

impl<'g> Tensor<'g> {
    /// `max(x, 0)`: `nn.ReLU`.
    #[track_caller]
    pub fn relu(self) -> Tensor<'g> {
        self.apply(Relu {})
    }

    /// `x Φ(x)` with the normal distribution function: `nn.GELU`.
    #[track_caller]
    pub fn gelu(self) -> Tensor<'g> {
        self.apply(Gelu { tanh: false })
    }

    /// GELU with the tanh approximation: `nn.GELU(approximate="tanh")`.
    #[track_caller]
    pub fn gelu_tanh(self) -> Tensor<'g> {
        self.apply(Gelu { tanh: true })
    }

    /// `x sigmoid(x)`: `nn.SiLU`.
    #[track_caller]
    pub fn silu(self) -> Tensor<'g> {
        self.apply(Silu {})
    }

    /// Softmax over the last dimension: `nn.Softmax(dim=-1)`.
    #[track_caller]
    pub fn softmax(self) -> Tensor<'g> {
        self.apply(Softmax {})
    }

    /// `factor * x`, as `x * factor` does.
    #[track_caller]
    pub fn scale(self, factor: f32) -> Tensor<'g> {
        self.apply(Scale { factor })
    }

    /// Drops each element with probability `p` and scales the others up: `nn.Dropout`. Its random numbers are a function
    /// of the seed, the step and this place in the network. Probability 0 adds nothing; evaluation leaves it out.
    #[track_caller]
    pub fn dropout(self, p: f32) -> Tensor<'g> {
        if p == 0.0 {
            return self;
        }
        self.layer("", |b, x| {
            let stream = b.random_stream();
            b.add(Dropout { p, stream }, &[x])
        })
    }

    /// Matrix product over the last two dimensions; the leading ones are equal: `torch.matmul`.
    #[track_caller]
    pub fn matmul(self, other: Tensor<'g>) -> Tensor<'g> {
        self.net().apply(MatMul { transpose_a: false, transpose_b: false }, &[self, other])
    }

    /// Matrix product with the other's last two dimensions swapped: `x @ other.mT`, without a copy.
    #[track_caller]
    pub fn matmul_transposed(self, other: Tensor<'g>) -> Tensor<'g> {
        self.net().apply(MatMul { transpose_a: false, transpose_b: true }, &[self, other])
    }
}

/// `a + b`; one of them may be repeated over leading dimensions of the other, as a bias is.
impl<'g> Add for Tensor<'g> {
    type Output = Tensor<'g>;

    #[track_caller]
    fn add(self, other: Tensor<'g>) -> Tensor<'g> {
        self.net().node("", &[self, other], |b, x| {
            let smaller_first = b.ty(x[0]).rank() < b.ty(x[1]).rank();
            let inputs = if smaller_first { [x[1], x[0]] } else { [x[0], x[1]] };
            b.add(AddOp {}, &inputs)
        })
    }
}

/// `a - b`, as `a + (-b)`.
impl<'g> Sub for Tensor<'g> {
    type Output = Tensor<'g>;

    #[track_caller]
    fn sub(self, other: Tensor<'g>) -> Tensor<'g> {
        self + -other
    }
}

impl<'g> Neg for Tensor<'g> {
    type Output = Tensor<'g>;

    #[track_caller]
    fn neg(self) -> Tensor<'g> {
        self.scale(-1.0)
    }
}

/// The product of two tensors of the same shape, element by element.
impl<'g> Mul for Tensor<'g> {
    type Output = Tensor<'g>;

    #[track_caller]
    fn mul(self, other: Tensor<'g>) -> Tensor<'g> {
        self.net().apply(MulOp {}, &[self, other])
    }
}

impl<'g> Mul<f32> for Tensor<'g> {
    type Output = Tensor<'g>;

    #[track_caller]
    fn mul(self, factor: f32) -> Tensor<'g> {
        self.scale(factor)
    }
}
