//! Average over windows of images.

use super::window::{Window, input_type, output_type, work};
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::naive::pool as naive;
use remat_kernels::pool::{PoolShape, avg_pool, avg_pool_grad};

/// The average of each window of `x: [N, H, W, C]`; padding counts as zeros, which is PyTorch's default. Backward reads
/// neither `x` nor `y`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AvgPool {
    /// Extent of the window, `[height, width]`.
    pub kernel: [usize; 2],
    /// Input positions from one window to the next.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: [usize; 2],
}

impl AvgPool {
    fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    fn shape(&self, x: &Type) -> PoolShape {
        self.window().over(x).expect("the type rule accepted x")
    }
}

impl OpDef for AvgPool {
    fn name() -> &'static str {
        "avg_pool"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        Ok(vec![output_type(&self.window().over(x[0])?)?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let AvgPool { kernel, stride, padding } = *self;
        let size = [b.ty(args.x[0]).shape()[1], b.ty(args.x[0]).shape()[2]];
        Ok(vec![Some(b.add(AvgPoolGrad { kernel, stride, padding, size }, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, work(&self.shape(x[0])))
    }

    fn run(&self, io: &mut Io<'_>) {
        avg_pool(&self.shape(io.x_type(0)), io.f32(0), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::avg_pool(&self.shape(io.x_types[0]), io.x[0])]
    }

    fn examples() -> Vec<Example> {
        let op = |kernel, stride, padding| AvgPool { kernel, stride, padding };
        vec![
            Example::normal(op([3, 3], [2, 2], [1, 1]), &[&[2, 5, 6, 3]]),
            Example::normal(op([2, 2], [2, 2], [0, 0]), &[&[1, 4, 5, 3]]),
            Example::normal(op([2, 3], [3, 1], [1, 0]), &[&[1, 6, 4, 2]]),
        ]
    }
}

/// Gives every position its share of the windows that cover it; input `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AvgPoolGrad {
    /// As in the forward op.
    pub kernel: [usize; 2],
    /// As in the forward op.
    pub stride: [usize; 2],
    /// As in the forward op.
    pub padding: [usize; 2],
    /// Height and width of the images that went in.
    pub size: [usize; 2],
}

impl AvgPoolGrad {
    fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    fn shape(&self, dy: &Type) -> PoolShape {
        self.window().behind(dy, self.size).expect("the type rule accepted dy")
    }
}

impl OpDef for AvgPoolGrad {
    fn name() -> &'static str {
        "avg_pool_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        Ok(vec![input_type(&self.window().behind(x[0], self.size)?)?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, work(&self.shape(x[0])))
    }

    fn run(&self, io: &mut Io<'_>) {
        avg_pool_grad(&self.shape(io.x_type(0)), io.f32(0), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::avg_pool_grad(&self.shape(io.x_types[0]), io.x[0])]
    }

    fn examples() -> Vec<Example> {
        let op = AvgPoolGrad { kernel: [3, 3], stride: [2, 2], padding: [1, 1], size: [5, 6] };
        vec![Example::normal(op, &[&[2, 3, 3, 5]])]
    }
}
