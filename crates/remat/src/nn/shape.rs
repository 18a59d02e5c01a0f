//! Tensors in other shapes: views, permutations, parts, and pairs of extents.

use super::Tensor;
use super::net::refusal;
use crate::op::pad::Pad;
use crate::op::reshape::Reshape;
use crate::op::slice::Slice;
use crate::op::transpose::Transpose;
use std::ops::Range;

/// Height and width: one number for both, or `[height, width]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair(pub [usize; 2]);

impl From<usize> for Pair {
    fn from(both: usize) -> Pair {
        Pair([both; 2])
    }
}

impl From<[usize; 2]> for Pair {
    fn from(pair: [usize; 2]) -> Pair {
        Pair(pair)
    }
}

impl<'g> Tensor<'g> {
    /// The same elements with other extents: `reshape`. Nothing is copied.
    #[track_caller]
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Tensor<'g> {
        self.apply(Reshape { shape: shape.as_ref().to_vec() })
    }

    /// All dimensions but the first made one: `flatten(1)`.
    #[track_caller]
    pub fn flatten(self) -> Tensor<'g> {
        self.layer("", |b, x| {
            let shape = b.ty(x).shape();
            let (batch, rest) = shape.split_first().map_or((1, 1), |(&n, rest)| (n, rest.iter().product()));
            b.add(Reshape { shape: vec![batch, rest] }, &[x])
        })
    }

    /// Dimension `d` of the result is dimension `order[d]`: `permute`.
    #[track_caller]
    pub fn permute(self, order: impl AsRef<[usize]>) -> Tensor<'g> {
        self.apply(Transpose { perm: order.as_ref().to_vec() })
    }

    /// Two dimensions swapped: `transpose`.
    #[track_caller]
    pub fn transpose(self, a: usize, b: usize) -> Tensor<'g> {
        self.layer("", |builder, x| {
            let ty = builder.ty(x);
            if a.max(b) >= ty.rank() {
                return Err(refusal(builder, "transpose", format!("{ty} has no dimension {}", a.max(b))));
            }
            let mut perm: Vec<usize> = (0..ty.rank()).collect();
            perm.swap(a, b);
            builder.add(Transpose { perm }, &[x])
        })
    }

    /// The part `range` of dimension `axis`: `narrow`, or `x[:, start:end]`.
    #[track_caller]
    pub fn slice(self, axis: usize, range: Range<usize>) -> Tensor<'g> {
        self.apply(Slice { axis, start: range.start, end: range.end })
    }

    /// This tensor, then another, along `axis`: `torch.cat`. [`Net::concat`](super::Net::concat) takes more.
    #[track_caller]
    pub fn concat(self, other: Tensor<'g>, axis: usize) -> Tensor<'g> {
        self.net().concat(&[self, other], axis)
    }

    /// Zeros before and after along `axis`: `functional.pad`.
    #[track_caller]
    pub fn pad(self, axis: usize, before: usize, after: usize) -> Tensor<'g> {
        self.apply(Pad { axis, before, after })
    }
}
