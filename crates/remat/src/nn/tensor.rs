//! The handle that layers chain on.

use super::Net;
use super::net::refusal;
use crate::error::Result;
use crate::graph::Builder;
use crate::ids::ValueId;
use crate::op::Op;

/// A tensor of a network under construction: a small handle that can be copied. It has a type and no elements yet.
#[derive(Clone, Copy)]
pub struct Tensor<'g> {
    net: &'g Net,
    /// `None` after a mistake.
    value: Option<ValueId>,
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value {
            Some(value) => self.net.with_type(value, |ty| write!(f, "{value}: {ty}")),
            None => write!(f, "nothing, after a mistake"),
        }
    }
}

impl<'g> Tensor<'g> {
    pub(super) fn new(net: &'g Net, value: Option<ValueId>) -> Tensor<'g> {
        Tensor { net, value }
    }

    /// The network it belongs to.
    pub fn net(self) -> &'g Net {
        self.net
    }

    /// Its place in the graph; `None` after a mistake.
    pub(super) fn value(self) -> Option<ValueId> {
        self.value
    }

    /// The extents, outermost first. Empty for a single number, and after a mistake: code that takes them apart is
    /// safer with [`Tensor::dims`].
    pub fn shape(self) -> Vec<usize> {
        self.value.map_or_else(Vec::new, |value| self.net.with_type(value, |ty| ty.shape().to_vec()))
    }

    /// The extents of a tensor with `N` dimensions: `let [batch, time, width] = x.dims();`. Another number of dimensions
    /// is a mistake; all extents are then 1.
    #[track_caller]
    pub fn dims<const N: usize>(self) -> [usize; N] {
        let made = self.net.build("", &[self], |b, x| {
            let ty = b.ty(x[0]);
            let wrong = || refusal(b, "dims", format!("expected {N} dimensions, got {ty}"));
            ty.shape().try_into().map_err(|_| wrong())
        });
        made.unwrap_or([1; N])
    }

    /// The extent of the last dimension: channels of images, width of tokens. 1 for a single number or after a mistake.
    pub fn width(self) -> usize {
        self.value.map_or(1, |value| self.net.with_type(value, |ty| ty.last()))
    }

    /// Applies an op, one of ours or of your own, and returns its first output. [`Net::apply`] takes more inputs.
    #[track_caller]
    pub fn apply(self, op: impl Into<Op>) -> Tensor<'g> {
        self.net.apply(op, &[self])
    }

    /// Builds with `name` appended to the module path, as [`Net::scope`] does, within a chain.
    pub fn scope<R>(self, name: impl AsRef<str>, build: impl FnOnce(Tensor<'g>) -> R) -> R {
        self.net.scope(name, || build(self))
    }

    /// Adds the nodes of a layer under the scope `name`.
    #[track_caller]
    pub(super) fn layer(
        self,
        name: impl AsRef<str>,
        build: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId>,
    ) -> Tensor<'g> {
        self.net.node(name.as_ref(), &[self], |b, x| build(b, x[0]))
    }

    /// As [`Tensor::scope`], for ready-made blocks: see [`Net::block`].
    #[track_caller]
    pub(super) fn block(
        self,
        name: impl AsRef<str>,
        build: impl FnOnce(Tensor<'g>) -> Tensor<'g>,
    ) -> Tensor<'g> {
        self.net.block(name, || build(self))
    }
}
