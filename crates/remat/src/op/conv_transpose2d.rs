//! Transposed convolution: learned upsampling. Images `[N, H, W, C]`, weights `[C, KH, KW, O]`.

use super::conv2d::{Conv2d, Conv2dGradWeight, checked};
use super::sum_rows::SumRows;
use super::{Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_rank, expect_shape};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::conv::{ConvShape, conv_grad_input_workspace, conv_transpose};
use remat_kernels::naive;

/// The convolution that would map the output to the input, run backwards: every input position adds a kernel to the
/// output. With the roles swapped, its gradients are the gradients of that convolution.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ConvTranspose2d {
    /// Output positions from one input position to the next.
    pub stride: [usize; 2],
    /// Rows and columns cut off on each side of the output.
    pub padding: [usize; 2],
}

impl ConvTranspose2d {
    fn conv(&self) -> Conv2d {
        Conv2d { stride: self.stride, padding: self.padding, dilation: [1, 1], groups: 1, winograd: false }
    }

    /// The sizes of the convolution from the output back to `x`.
    fn sizes_of(&self, x: &Type, weight: &Type) -> Result<ConvShape, String> {
        expect_rank("x", x, 4)?;
        expect_rank("weight", weight, 4)?;
        let (&[n, h, w, c], &[inputs, kh, kw, outputs]) = (x.shape(), weight.shape()) else {
            unreachable!("rank 4 was just checked")
        };
        if inputs != c {
            return Err(format!("x has {c} channels, but the weight {weight} takes {inputs}"));
        }
        let length = |size: usize, kernel: usize, axis: usize| {
            let reach = size.checked_sub(1)?.checked_mul(self.stride[axis])?.checked_add(kernel)?;
            reach.checked_sub(self.padding[axis].checked_mul(2)?).filter(|&length| length > 0)
        };
        let lengths = length(h, kh, 0).zip(length(w, kw, 1));
        let (out_h, out_w) =
            lengths.ok_or_else(|| format!("padding {:?} leaves nothing of the output", self.padding))?;
        self.conv().sizes(&[n, out_h, out_w, outputs], c, [kh, kw])
    }
}

impl OpDef for ConvTranspose2d {
    fn name() -> &'static str {
        "conv_transpose2d"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() != 3 {
            expect_inputs(x, 2)?;
        }
        let shape = self.sizes_of(x[0], x[1])?;
        if let Some(bias) = x.get(2) {
            expect_shape("bias", bias, &[shape.c])?;
        }
        Ok(vec![Type::f32(&[shape.n, shape.h, shape.w, shape.c]).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let (x, weight, dy) = (args.x[0], args.x[1], args.dy0());
        let kernel = b.ty(weight).shape();
        let kernel = [kernel[1], kernel[2]];
        let mut dx = vec![None; args.x.len()];
        if args.wants[1] {
            dx[1] = Some(b.add(Conv2dGradWeight { conv: self.conv(), kernel }, &[x, dy])?);
        }
        if args.wants.get(2) == Some(&true) {
            dx[2] = Some(b.add(SumRows { keep: 1 }, &[dy])?);
        }
        if args.wants[0] {
            dx[0] = Some(b.add(self.conv(), &[dy, weight])?);
        }
        Ok(dx)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::of_products(x, y, &[x[0].rows(), x[1].numel()])
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * conv_grad_input_workspace(&checked(self.sizes_of(x[0], x[1]))) as u64
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = checked(self.sizes_of(io.x_type(0), io.x_type(1)));
        let bias = (io.n_inputs() == 3).then(|| io.f32(2));
        conv_transpose(&shape, io.f32(0), io.f32(1), bias, io.out(0), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = checked(self.sizes_of(io.x_types[0], io.x_types[1]));
        let mut y = naive::conv::conv_grad_input(&shape, io.x[0], io.x[1]);
        if let Some(bias) = io.x.get(2) {
            y.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i % shape.c]);
        }
        vec![y]
    }

    fn examples() -> Vec<Example> {
        let double = ConvTranspose2d { stride: [2, 2], padding: [0, 0] };
        let odd = ConvTranspose2d { stride: [1, 3], padding: [1, 0] };
        vec![
            Example::normal(double, &[&[2, 3, 2, 4], &[4, 2, 2, 3], &[3]]),
            Example::normal(odd, &[&[1, 3, 2, 2], &[2, 3, 4, 3]]),
        ]
    }
}
