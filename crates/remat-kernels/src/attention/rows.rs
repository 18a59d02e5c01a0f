//! Tokens of a buffer, each a row of heads: contiguous, or a slice of every row of a packed projection.

use super::AttentionShape;
use crate::product::gemm::{Mat, MatMut};
use std::marker::PhantomData;
use std::ops::Range;

/// Tokens that are read: element `e` of token `t` is `data[offset + t * stride + e]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
    offset: usize,
}

impl<'a> Rows<'a> {
    /// Tokens that start `offset` elements into `data` and lie `stride` elements apart.
    pub fn new(data: &'a [f32], stride: usize, offset: usize) -> Self {
        Rows { data, stride, offset }
    }

    /// Head `head` of some tokens, `[tokens, head_dim]`.
    pub(super) fn head(&self, shape: &AttentionShape, tokens: Range<usize>, head: usize) -> Mat<'a> {
        let first = self.offset + tokens.start * self.stride + head * shape.head_dim;
        Mat::strided(&self.data[first..], tokens.len(), shape.head_dim, self.stride, 1)
    }

    /// Head `head` of one token.
    pub(super) fn head_row(&self, shape: &AttentionShape, token: usize, head: usize) -> &'a [f32] {
        &self.data[self.offset + token * self.stride + head * shape.head_dim..][..shape.head_dim]
    }
}

/// Tokens that are written; like [`Rows`], and no element belongs to two tokens or to two `RowsMut`.
pub struct RowsMut<'a> {
    ptr: *mut f32,
    len: usize,
    stride: usize,
    offset: usize,
    width: usize,
    _life: PhantomData<&'a mut [f32]>,
}

// SAFETY: like the exclusive slice it stands for; tasks take disjoint heads and tokens.
unsafe impl Send for RowsMut<'_> {}
// SAFETY: as above; writing through a shared `RowsMut` is an unsafe operation.
unsafe impl Sync for RowsMut<'_> {}

impl<'a> RowsMut<'a> {
    /// Contiguous tokens of `width` elements.
    pub fn new(data: &'a mut [f32], width: usize) -> Self {
        let [rows] = RowsMut::packed(data, width);
        rows
    }

    /// Each row of `data` holds `N` parts of `width` elements, one after the other: its `N` columns of parts.
    pub fn packed<const N: usize>(data: &'a mut [f32], width: usize) -> [Self; N] {
        let (ptr, len) = (data.as_mut_ptr(), data.len());
        std::array::from_fn(|part| RowsMut {
            ptr,
            len,
            stride: N * width,
            offset: part * width,
            width,
            _life: PhantomData,
        })
    }

    /// Head `head` of some tokens, `[tokens, head_dim]`.
    ///
    /// # Safety
    /// Nothing else touches this head of these tokens while the result lives.
    pub(super) unsafe fn head(
        &self,
        shape: &AttentionShape,
        tokens: Range<usize>,
        head: usize,
    ) -> MatMut<'_> {
        assert!((head + 1) * shape.head_dim <= self.width, "head beyond its token");
        let last = tokens.end.saturating_sub(1).saturating_mul(self.stride);
        assert!(last.saturating_add(self.offset + self.width) <= self.len, "tokens reach beyond their data");
        // SAFETY: in range by the assertions, exclusive by the caller's promise.
        unsafe {
            let first = self.ptr.add(self.offset + tokens.start * self.stride + head * shape.head_dim);
            MatMut::from_raw(first, tokens.len(), shape.head_dim, self.stride, 1)
        }
    }

    /// Writes head `head` of one token.
    ///
    /// # Safety
    /// Nothing else touches this head of this token now.
    pub(super) unsafe fn write(&self, shape: &AttentionShape, token: usize, head: usize, values: &[f32]) {
        assert!(
            values.len() == shape.head_dim && (head + 1) * shape.head_dim <= self.width,
            "size of a head"
        );
        let first = token.saturating_mul(self.stride).saturating_add(self.offset + head * shape.head_dim);
        assert!(first.saturating_add(values.len()) <= self.len, "token beyond its data");
        // SAFETY: in range by the assertions, exclusive by the caller's promise; `values` is the caller's own.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.ptr.add(first), values.len()) }
    }
}
