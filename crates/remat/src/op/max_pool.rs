//! Maximum over windows of images.

use super::window::{Window, input_type, output_type, work};
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::{Builder, DType, Type};
use crate::ids::ValueId;
use remat_kernels::naive::pool as naive;
use remat_kernels::pool::{MAX_WINDOW, PoolShape, max_pool, max_pool_grad};

/// The maximum of each window of `x: [N, H, W, C]`; outputs `y` and, a byte each, the place of the maximum in its window.
///
/// Backward reads the places only: a quarter of the bytes of `y`, and a far smaller part of the bytes of `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct MaxPool {
    /// Extent of the window, `[height, width]`.
    pub kernel: [usize; 2],
    /// Input positions from one window to the next.
    pub stride: [usize; 2],
    /// Positions around the image that windows may cover; they are never the maximum.
    pub padding: [usize; 2],
}

impl MaxPool {
    fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    fn shape(&self, x: &Type) -> PoolShape {
        self.window().over(x).expect("the type rule accepted x")
    }
}

impl OpDef for MaxPool {
    fn name() -> &'static str {
        "max_pool"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        let shape = self.window().over(x[0])?;
        expect_small_window(self.kernel)?;
        let y = output_type(&shape)?;
        let places = y.with_dtype(DType::U8);
        Ok(vec![y, places])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let MaxPool { kernel, stride, padding } = *self;
        let size = [b.ty(args.x[0]).shape()[1], b.ty(args.x[0]).shape()[2]];
        let op = MaxPoolGrad { kernel, stride, padding, size };
        Ok(vec![Some(b.add(op, &[args.dy0(), args.y[1]])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, work(&self.shape(x[0])))
    }

    fn run(&self, io: &mut Io<'_>) {
        max_pool(&self.shape(io.x_type(0)), io.f32(0), io.out(0), io.out_u8(1));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let (y, places) = naive::max_pool(&self.shape(io.x_types[0]), io.x[0]);
        vec![y, places.into_iter().map(f64::from).collect()]
    }

    fn examples() -> Vec<Example> {
        let op = |kernel, stride, padding| MaxPool { kernel, stride, padding };
        vec![
            Example::normal(op([3, 3], [2, 2], [1, 1]), &[&[2, 5, 6, 3]]),
            Example::normal(op([2, 2], [2, 2], [0, 0]), &[&[1, 4, 5, 3]]),
            Example::normal(op([2, 3], [3, 1], [1, 0]), &[&[1, 6, 4, 2]]),
        ]
    }
}

/// Puts each `dy` at the place of its maximum; inputs `dy` and the places.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct MaxPoolGrad {
    /// As in the forward op.
    pub kernel: [usize; 2],
    /// As in the forward op.
    pub stride: [usize; 2],
    /// As in the forward op.
    pub padding: [usize; 2],
    /// Height and width of the images that went in.
    pub size: [usize; 2],
}

impl MaxPoolGrad {
    fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    fn shape(&self, dy: &Type) -> PoolShape {
        self.window().behind(dy, self.size).expect("the type rule accepted dy")
    }
}

impl OpDef for MaxPoolGrad {
    fn name() -> &'static str {
        "max_pool_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let shape = self.window().behind(x[0], self.size)?;
        expect_small_window(self.kernel)?;
        if x[1].dtype() != DType::U8 || x[1].shape() != x[0].shape() {
            return Err(format!("dy and the places must have the same shape, got {} and {}", x[0], x[1]));
        }
        Ok(vec![input_type(&shape)?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, work(&self.shape(x[0])))
    }

    fn run(&self, io: &mut Io<'_>) {
        max_pool_grad(&self.shape(io.x_type(0)), io.f32(0), io.u8(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let places: Vec<u8> = io.x[1].iter().map(|&place| place as u8).collect();
        vec![naive::max_pool_grad(&self.shape(io.x_types[0]), io.x[0], &places)]
    }

    fn examples() -> Vec<Example> {
        // Images large enough and windows small enough that no window reaches into the padding.
        let op = MaxPoolGrad { kernel: [3, 3], stride: [2, 2], padding: [0, 0], size: [5, 7] };
        let places = Type::new(DType::U8, &[2, 2, 3, 5]).expect("a small shape");
        vec![Example::normal(op, &[&[2, 2, 3, 5], &[]]).ints(1, places, 9)]
    }
}

/// Fails with a message unless a place in the window fits in a byte.
fn expect_small_window([height, width]: [usize; 2]) -> Result<(), String> {
    match height.checked_mul(width) {
        Some(..=MAX_WINDOW) => Ok(()),
        _ => Err(format!("a window of {height}x{width} has more than {MAX_WINDOW} positions")),
    }
}
