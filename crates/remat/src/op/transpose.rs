//! Dimensions in another order, as a copy.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_rank};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{naive, shape};

/// Dimension `d` of the output is dimension `perm[d]` of the input.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Transpose {
    /// A permutation of the input's dimensions.
    pub perm: Vec<usize>,
}

impl OpDef for Transpose {
    fn name() -> &'static str {
        "transpose"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 1)?;
        expect_rank("x", x[0], self.perm.len())?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x[0].rank()) {
            return Err(format!("{:?} is not a permutation of the dimensions of {}", self.perm, x[0]));
        }
        let turned: Vec<usize> = self.perm.iter().map(|&d| x[0].shape()[d]).collect();
        Ok(vec![Type::f32(&turned).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let mut perm = vec![0; self.perm.len()];
        for (to, &from) in self.perm.iter().enumerate() {
            perm[from] = to;
        }
        Ok(vec![Some(b.add(Transpose { perm }, &[args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, 0)
    }

    fn run(&self, io: &mut Io<'_>) {
        shape::transpose(io.x_type(0).shape(), &self.perm, io.f32(0), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::shape::transpose(io.x_types[0].shape(), &self.perm, io.x[0])]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Transpose { perm: vec![1, 0] }, &[&[3, 5]]),
            Example::normal(Transpose { perm: vec![2, 0, 1] }, &[&[2, 3, 4]]),
            Example::normal(Transpose { perm: vec![0, 2, 1, 3] }, &[&[2, 3, 4, 2]]),
        ]
    }
}
