//! Batched matrix product.

use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs};
use crate::graph::{Builder, DType, Type};
use crate::ids::ValueId;
use remat_kernels::matmul::{MatmulShape, matmul};
use remat_kernels::naive;

/// `c = a · b` over the last two dimensions; the leading ones are equal. Its gradients are products of the same kind.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct MatMul {
    /// The last two dimensions of `a` are swapped.
    pub transpose_a: bool,
    /// The last two dimensions of `b` are swapped.
    pub transpose_b: bool,
}

impl MatMul {
    fn sizes(&self, a: &Type, b: &Type) -> Result<MatmulShape, String> {
        let floats = a.dtype() == DType::F32 && b.dtype() == DType::F32;
        if !floats || a.rank() < 2 || a.rank() != b.rank() {
            return Err(format!("takes two float tensors of the same rank, at least 2, got {a} and {b}"));
        }
        let (batch_a, matrix_a) = a.shape().split_at(a.rank() - 2);
        let (batch_b, matrix_b) = b.shape().split_at(b.rank() - 2);
        let turned =
            |matrix: &[usize], turn: bool| if turn { [matrix[1], matrix[0]] } else { [matrix[0], matrix[1]] };
        let [m, k] = turned(matrix_a, self.transpose_a);
        let [k_of_b, n] = turned(matrix_b, self.transpose_b);
        if batch_a != batch_b || k != k_of_b {
            return Err(format!(
                "cannot multiply {a}{} by {b}{}",
                if self.transpose_a { " transposed" } else { "" },
                if self.transpose_b { " transposed" } else { "" }
            ));
        }
        let batch = batch_a.iter().product();
        Ok(MatmulShape { batch, m, k, n, transpose_a: self.transpose_a, transpose_b: self.transpose_b })
    }
}

impl OpDef for MatMul {
    fn name() -> &'static str {
        "matmul"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let sizes = self.sizes(x[0], x[1])?;
        let mut shape = x[0].shape().to_vec();
        let first = shape.len() - 2;
        shape[first..].copy_from_slice(&[sizes.m, sizes.n]);
        Ok(vec![Type::f32(&shape).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, builder: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let (a, b, dc) = (args.x[0], args.x[1], args.dy0());
        let mut product = |left, transpose_a, right, transpose_b| {
            builder.add(MatMul { transpose_a, transpose_b }, &[left, right])
        };
        // With A and B the factors as they enter the product: dA = dc · Bᵀ and dB = Aᵀ · dc. The gradient of an
        // operand that is stored transposed is the transpose of that.
        let mut gradients = vec![None; 2];
        if args.wants[1] {
            gradients[1] = Some(match self.transpose_b {
                false => product(a, !self.transpose_a, dc, false)?,
                true => product(dc, true, a, self.transpose_a)?,
            });
        }
        if args.wants[0] {
            gradients[0] = Some(match self.transpose_a {
                false => product(dc, false, b, !self.transpose_b)?,
                true => product(b, self.transpose_b, dc, true)?,
            });
        }
        Ok(gradients)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        let k = x[0].shape()[x[0].rank() - if self.transpose_a { 2 } else { 1 }];
        Cost::of_products(x, y, &[y[0].numel(), k])
    }

    fn run(&self, io: &mut Io<'_>) {
        let sizes =
            self.sizes(io.x_type(0), io.x_type(1)).expect("the types were checked when the node was made");
        matmul(sizes, io.f32(0), io.f32(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let MatmulShape { batch, m, k, n, .. } =
            self.sizes(io.x_types[0], io.x_types[1]).expect("the types were checked");
        let untransposed = |x: &[f64], rows, cols, transposed| {
            if transposed { naive::linear::transpose(x, cols, rows) } else { x.to_vec() }
        };
        let mut c = Vec::new();
        for i in 0..batch {
            let a = untransposed(&io.x[0][i * m * k..][..m * k], m, k, self.transpose_a);
            let b = untransposed(&io.x[1][i * k * n..][..k * n], k, n, self.transpose_b);
            c.extend(naive::linear::matmul(&a, &b, m, k, n));
        }
        vec![c]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(MatMul { transpose_a: false, transpose_b: false }, &[&[3, 4], &[4, 5]]),
            Example::normal(MatMul { transpose_a: true, transpose_b: false }, &[&[2, 4, 3], &[2, 4, 5]]),
            Example::normal(
                MatMul { transpose_a: false, transpose_b: true },
                &[&[2, 2, 3, 4], &[2, 2, 5, 4]],
            ),
            Example::normal(MatMul { transpose_a: true, transpose_b: true }, &[&[2, 4, 3], &[2, 5, 4]]),
        ]
    }
}
