//! Rows of a table picked by ids.

use super::{
    Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_ints, expect_rank, expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::{embedding as kernels, naive::embedding as naive};

/// `y = table[ids]`; inputs `ids`, integers of any shape, and `table: [V, C]`. Backward reads the ids only.
///
/// The host checks the ids before a step; the kernel takes them as they are.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Embedding {}

impl OpDef for Embedding {
    fn name() -> &'static str {
        "embedding"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_ints("ids", x[0])?;
        expect_rank("table", x[1], 2)?;
        Ok(vec![rows_of(x[0], x[1].last())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        if !args.wants[1] {
            return Ok(vec![None, None]);
        }
        let rows = b.ty(args.x[1]).shape()[0];
        Ok(vec![None, Some(b.add(EmbeddingGrad { rows }, &[args.x[0], args.dy0()])?)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        // Only the picked rows of the table are read.
        Cost { flops: 0, bytes: x[0].bytes().saturating_add(2 * y[0].bytes()) }
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::embedding(io.x_type(1).last(), io.i32(0), io.f32(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::embedding(io.x_types[1].last(), &io.whole_numbers(0), io.x[1])]
    }

    fn examples() -> Vec<Example> {
        let example = |ids: &[usize], table: &[usize]| {
            let ids = Type::i32(ids).expect("a small shape");
            Example::normal(Embedding {}, &[&[], table]).ints(0, ids, table[0])
        };
        vec![example(&[2, 7], &[5, 3]), example(&[4], &[3, 67]), example(&[], &[2, 3])]
    }
}

/// The gradient of the table: the sum of the rows of `dy` with each id; inputs `ids` and `dy`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct EmbeddingGrad {
    /// Rows of the table.
    pub rows: usize,
}

impl OpDef for EmbeddingGrad {
    fn name() -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_ints("ids", x[0])?;
        if x[1].rank() == 0 {
            return Err(format!("dy must hold a row for every id, got {}", x[1]));
        }
        let cols = x[1].last();
        expect_shape("dy", x[1], rows_of(x[0], cols)?.shape())?;
        Ok(vec![Type::f32(&[self.rows, cols]).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::with_flops(x, y, x[1].numel() as u64)
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::embedding_grad(io.x_type(1).last(), io.i32(0), io.f32(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let cols = io.x_types[1].last();
        vec![naive::embedding_grad(cols, &io.whole_numbers(0), io.x[1], self.rows)]
    }

    fn examples() -> Vec<Example> {
        let ids = Type::i32(&[2, 7]).expect("a small shape");
        vec![Example::normal(EmbeddingGrad { rows: 5 }, &[&[], &[2, 7, 3]]).ints(0, ids, 5)]
    }
}

/// A row of `cols` floats for every id.
fn rows_of(ids: &Type, cols: usize) -> Result<Type, String> {
    Type::f32(&[ids.shape(), &[cols]].concat()).map_err(|e| e.to_string())
}
