//! `y = x · weightᵀ + bias`.

use super::sum_rows::SumRows;
use super::{
    Calibration, Case, Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_rank, expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::linear::{LinearShape, linear, linear_grad_input, linear_grad_weight};
use remat_kernels::naive;

/// `y = x · weightᵀ (+ bias)` over the last dimension of `x`; inputs `x: [.., in]`, `weight: [out, in]` and
/// optionally `bias: [out]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Linear {}

impl OpDef for Linear {
    fn name() -> &'static str {
        "linear"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() != 3 {
            expect_inputs(x, 2)?;
        }
        expect_rank("weight", x[1], 2)?;
        let [outputs, inputs] = [x[1].shape()[0], x[1].shape()[1]];
        let y = with_last("x", x[0], inputs, outputs)?;
        if let Some(bias) = x.get(2) {
            expect_shape("bias", bias, &[outputs])?;
        }
        Ok(vec![y])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let (x, weight, dy) = (args.x[0], args.x[1], args.dy0());
        let mut dx = vec![None; args.x.len()];
        if args.wants[1] {
            dx[1] = Some(b.add(LinearGradWeight {}, &[dy, x])?);
        }
        if args.wants.get(2) == Some(&true) {
            dx[2] = Some(b.add(SumRows { keep: 1 }, &[dy])?);
        }
        if args.wants[0] {
            dx[0] = Some(b.add(LinearGradInput {}, &[dy, weight])?);
        }
        Ok(dx)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::of_products(x, y, &[x[0].numel(), y[0].last()])
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|rows, inputs, outputs| {
            Case::floats(Linear {}, &[&[rows, inputs], &[outputs, inputs]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let bias = (io.n_inputs() == 3).then(|| io.f32(2));
        let shape = sizes(io.x_type(0), io.y_type(0));
        linear(shape, io.f32(0), io.f32(1), bias, io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let LinearShape { rows, inputs, outputs } = sizes(io.x_types[0], io.y_types[0]);
        let zeros = vec![0.0; outputs];
        let bias = io.x.get(2).copied().unwrap_or(&zeros);
        vec![naive::linear::linear(io.x[0], io.x[1], bias, rows, inputs)]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Linear {}, &[&[5, 3], &[7, 3]]),
            Example::normal(Linear {}, &[&[2, 3, 4], &[5, 4], &[5]]),
            Example::normal(Linear {}, &[&[4], &[3, 4], &[3]]),
        ]
    }
}

/// `dx = dy · weight`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LinearGradInput {}

impl OpDef for LinearGradInput {
    fn name() -> &'static str {
        "linear_grad_input"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_rank("weight", x[1], 2)?;
        Ok(vec![with_last("dy", x[0], x[1].shape()[0], x[1].shape()[1])?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::of_products(x, y, &[x[0].numel(), y[0].last()])
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|rows, inputs, outputs| {
            Case::floats(LinearGradInput {}, &[&[rows, outputs], &[outputs, inputs]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = sizes(io.y_type(0), io.x_type(0));
        linear_grad_input(shape, io.f32(0), io.f32(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let LinearShape { rows, inputs, outputs } = sizes(io.y_types[0], io.x_types[0]);
        vec![naive::linear::matmul(io.x[0], io.x[1], rows, outputs, inputs)]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(LinearGradInput {}, &[&[2, 3, 5], &[5, 4]])]
    }
}

/// `dweight = dyᵀ · x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LinearGradWeight {}

impl OpDef for LinearGradWeight {
    fn name() -> &'static str {
        "linear_grad_weight"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        // dy has the rows of x: its type is the type of x with another last dimension.
        with_last("dy", x[0], x[0].last(), x[0].last())?;
        if with_last("x", x[1], x[1].last(), x[0].last())? != *x[0] {
            return Err(format!("dy and x must have the same rows, got {} and {}", x[0], x[1]));
        }
        Ok(vec![Type::f32(&[x[0].last(), x[1].last()]).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::of_products(x, y, &[x[0].numel(), x[1].last()])
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|rows, inputs, outputs| {
            Case::floats(LinearGradWeight {}, &[&[rows, outputs], &[rows, inputs]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = sizes(io.x_type(1), io.x_type(0));
        linear_grad_weight(shape, io.f32(0), io.f32(1), io.out(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let LinearShape { rows, inputs, outputs } = sizes(io.x_types[1], io.x_types[0]);
        let dy_transposed = naive::linear::transpose(io.x[0], rows, outputs);
        vec![naive::linear::matmul(&dy_transposed, io.x[1], outputs, rows, inputs)]
    }

    fn examples() -> Vec<Example> {
        vec![Example::normal(LinearGradWeight {}, &[&[2, 3, 5], &[2, 3, 4]])]
    }
}

/// The sizes of a layer that makes `y` from `x`.
fn sizes(x: &Type, y: &Type) -> LinearShape {
    LinearShape { rows: x.rows(), inputs: x.last(), outputs: y.last() }
}

/// The type of `ty` with its last dimension, which must be `old`, replaced.
fn with_last(what: &str, ty: &Type, old: usize, new: usize) -> Result<Type, String> {
    let mut shape = ty.shape().to_vec();
    match shape.last_mut() {
        Some(last) if *last == old && ty.dtype() == crate::graph::DType::F32 => *last = new,
        _ => return Err(format!("{what} must be a float tensor whose last dimension is {old}, got {ty}")),
    }
    Type::f32(&shape).map_err(|e| e.to_string())
}

/// An op on the products where most of a Transformer's work is, given rows, inputs and outputs.
fn calibration(case: fn(usize, usize, usize) -> Case) -> Calibration {
    Calibration::Arithmetic(vec![case(512, 512, 2048), case(512, 2048, 512)])
}
