//! Type rules that poolings over windows share.

use super::expect_rank;
use crate::graph::Type;
use remat_kernels::pool::PoolShape;

/// Kernel, stride and padding of a pooling, each `[height, width]`.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
}

impl Window {
    /// The sizes of a pooling of images of this type.
    pub(super) fn over(&self, x: &Type) -> Result<PoolShape, String> {
        expect_rank("x", x, 4)?;
        let &[n, h, w, c] = x.shape() else { unreachable!("the rank was checked") };
        self.sizes(n, [h, w], c)
    }

    /// The sizes of the pooling that `dy` is a gradient of, for images of this size.
    pub(super) fn behind(&self, dy: &Type, size: [usize; 2]) -> Result<PoolShape, String> {
        expect_rank("dy", dy, 4)?;
        let &[n, _, _, c] = dy.shape() else { unreachable!("the rank was checked") };
        let shape = self.sizes(n, size, c)?;
        if dy.shape() != [n, shape.out_h(), shape.out_w(), c] {
            let [h, w] = size;
            return Err(format!("{dy} is not the gradient of this pooling of images of {h}x{w}"));
        }
        Ok(shape)
    }

    fn sizes(&self, n: usize, [h, w]: [usize; 2], c: usize) -> Result<PoolShape, String> {
        let [kernel, stride, padding] = [self.kernel, self.stride, self.padding].map(|[h, w]| (h, w));
        PoolShape { n, h, w, c, kernel, stride, padding }.checked().map_err(|e| e.to_string())
    }
}

/// The type of the images that go in.
pub(super) fn input_type(shape: &PoolShape) -> Result<Type, String> {
    Type::f32(&[shape.n, shape.h, shape.w, shape.c]).map_err(|e| e.to_string())
}

/// The type of the images that come out.
pub(super) fn output_type(shape: &PoolShape) -> Result<Type, String> {
    Type::f32(&[shape.n, shape.out_h(), shape.out_w(), shape.c]).map_err(|e| e.to_string())
}

/// Window positions over all outputs: the comparisons or additions of a pooling.
pub(super) fn work(shape: &PoolShape) -> u64 {
    let window = (shape.kernel.0 as u64).saturating_mul(shape.kernel.1 as u64);
    window.saturating_mul(shape.output_len() as u64)
}
