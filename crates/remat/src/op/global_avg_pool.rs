//! Average over all positions of an image.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_rank};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::naive::pool as naive;
use remat_kernels::pool::{global_avg_pool, global_avg_pool_grad};

/// The mean of `x: [N, H, W, C]` over height and width, `[N, C]`. Backward reads neither.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct GlobalAvgPool {}

impl OpDef for GlobalAvgPool {
    fn name() -> &'static str {
        "global_avg_pool"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_rank("x", x[0], 4)?;
        if x[0].numel() == 0 {
            return Err(format!("there is nothing to average in {}", x[0]));
        }
        Ok(vec![Type::f32(&[x[0].shape()[0], x[0].last()]).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let size = [b.ty(args.x[0]).shape()[1], b.ty(args.x[0]).shape()[2]];
        Ok(vec![Some(b.add(GlobalAvgPoolGrad { size }, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn run(&self, io: &mut Io<'_>) {
        global_avg_pool(positions(io.x_type(0)), io.x_type(0).last(), io.f32(0), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::global_avg_pool(positions(io.x_types[0]), io.x_types[0].last(), io.x[0])]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(GlobalAvgPool {}, &[&[2, 3, 4, 5]]),
            Example::normal(GlobalAvgPool {}, &[&[1, 2, 1, 67]]),
        ]
    }
}

/// `dx = dy / (H W)` at every position; input `dy: [N, C]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct GlobalAvgPoolGrad {
    /// Height and width of the images that went in.
    pub size: [usize; 2],
}

impl OpDef for GlobalAvgPoolGrad {
    fn name() -> &'static str {
        "global_avg_pool_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_rank("dy", x[0], 2)?;
        let [h, w] = self.size;
        if h == 0 || w == 0 {
            return Err(format!("images of {h}x{w} have no average"));
        }
        Ok(vec![Type::f32(&[x[0].shape()[0], h, w, x[0].last()]).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn run(&self, io: &mut Io<'_>) {
        global_avg_pool_grad(positions(io.y_type(0)), io.x_type(0).last(), io.f32(0), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::global_avg_pool_grad(positions(io.y_types[0]), io.x_types[0].last(), io.x[0])]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(GlobalAvgPoolGrad { size: [3, 4] }, &[&[2, 5]])]
    }
}

/// Height times width of images `[N, H, W, C]`.
fn positions(images: &Type) -> usize {
    images.shape()[1] * images.shape()[2]
}
