//! Two-dimensional convolution; images `[N, H, W, C]`, weights `[O, KH, KW, C / groups]`.

use super::sum_rows::SumRows;
use super::{
    Calibration, Case, Cost, Example, GradArgs, Io, NaiveIo, OpDef, expect_inputs, expect_rank, expect_shape,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::conv::{
    ConvShape, conv, conv_grad_input, conv_grad_input_workspace, conv_grad_weight,
    conv_grad_weight_workspace, conv_workspace,
};
use remat_kernels::naive;

/// `y = x ∗ weight (+ bias)`; pairs are `[height, width]`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conv2d {
    /// Input positions from one output position to the next.
    pub stride: [usize; 2],
    /// Zeros added on each side of the image.
    pub padding: [usize; 2],
    /// Input positions from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether forward and gradients are computed by Winograd's algorithm, whose sums are rounded in another way. It belongs
    /// to the node, so no plan changes the bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub winograd: bool,
}

impl Conv2d {
    /// The sizes of a convolution of images `[n, h, w, c]` with `o` kernels `[kh, kw]`, if there is such a one.
    pub(super) fn sizes(&self, image: &[usize], o: usize, kernel: [usize; 2]) -> Result<ConvShape, String> {
        let &[n, h, w, c] = image else { return Err(format!("an image has 4 dimensions, got {image:?}")) };
        let pair = |[height, width]: [usize; 2]| (height, width);
        let shape = ConvShape {
            n,
            h,
            w,
            c,
            o,
            kh: kernel[0],
            kw: kernel[1],
            stride: pair(self.stride),
            padding: pair(self.padding),
            dilation: pair(self.dilation),
            groups: self.groups,
            winograd: self.winograd,
        };
        shape.checked().map_err(|e| e.to_string())
    }

    /// Whether Winograd's algorithm would be faster; false if there is no such convolution.
    pub(crate) fn suits_winograd(&self, image: &[usize], o: usize, kernel: [usize; 2]) -> bool {
        self.sizes(image, o, kernel).is_ok_and(|shape| shape.suits_winograd())
    }

    /// The sizes of the convolution of `x` with `weight`.
    fn sizes_of(&self, x: &Type, weight: &Type) -> Result<ConvShape, String> {
        expect_rank("x", x, 4)?;
        expect_rank("weight", weight, 4)?;
        let &[o, kh, kw, per_group] = weight.shape() else { unreachable!("rank 4 was just checked") };
        let shape = self.sizes(x.shape(), o, [kh, kw])?;
        if per_group != shape.c / shape.groups {
            return Err(format!(
                "x has {} channels in {} groups, but the weight {weight} takes {per_group} per group",
                shape.c, shape.groups
            ));
        }
        Ok(shape)
    }
}

/// The sizes in a kernel call, which the type rule has checked before.
pub(super) fn checked(sizes: Result<ConvShape, String>) -> ConvShape {
    sizes.expect("the types were checked when the node was made")
}

/// `[n, out_h, out_w, o]`.
fn output(shape: &ConvShape) -> [usize; 4] {
    [shape.n, shape.out_h(), shape.out_w(), shape.o]
}

/// Every output element is a sum over one receptive field. Winograd's algorithm has fewer products; what its transforms take
/// beside them is counted as [`WINOGRAD`] of the plain sum.
fn cost(shape: &ConvShape, x: &[&Type], y: &[&Type]) -> Cost {
    let [n, out_h, out_w, o] = output(shape);
    let cost = Cost::of_products(x, y, &[n, out_h, out_w, o, shape.patch_len()]);
    if shape.winograd { Cost { flops: cost.flops / WINOGRAD.1 * WINOGRAD.0, ..cost } } else { cost }
}

/// The time of Winograd's algorithm in terms of that of the plain sum, as `kernel_bench` measures it.
const WINOGRAD: (u64, u64) = (2, 5);

impl OpDef for Conv2d {
    fn name() -> &'static str {
        "conv2d"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if x.len() != 3 {
            expect_inputs(x, 2)?;
        }
        let shape = self.sizes_of(x[0], x[1])?;
        if let Some(bias) = x.get(2) {
            expect_shape("bias", bias, &[shape.o])?;
        }
        Ok(vec![Type::f32(&output(&shape)).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let (x, weight, dy) = (args.x[0], args.x[1], args.dy0());
        let (image, kernel) = (b.ty(x).shape(), b.ty(weight).shape());
        let (size, kernel) = ([image[1], image[2]], [kernel[1], kernel[2]]);
        let mut dx = vec![None; args.x.len()];
        if args.wants[1] {
            dx[1] = Some(b.add(Conv2dGradWeight { conv: *self, kernel }, &[dy, x])?);
        }
        if args.wants.get(2) == Some(&true) {
            dx[2] = Some(b.add(SumRows { keep: 1 }, &[dy])?);
        }
        if args.wants[0] {
            dx[0] = Some(b.add(Conv2dGradInput { conv: *self, size }, &[dy, weight])?);
        }
        Ok(dx)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(&checked(self.sizes_of(x[0], x[1])), x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * conv_workspace(&checked(self.sizes_of(x[0], x[1]))) as u64
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|conv, x, weight, _| Case::floats(conv, &[&x, &weight])))
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = checked(self.sizes_of(io.x_type(0), io.x_type(1)));
        let bias = (io.n_inputs() == 3).then(|| io.f32(2));
        conv(&shape, io.f32(0), io.f32(1), bias, io.out(0), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = checked(self.sizes_of(io.x_types[0], io.x_types[1]));
        let zeros = vec![0.0; shape.o];
        vec![naive::conv::conv(&shape, io.x[0], io.x[1], io.x.get(2).copied().unwrap_or(&zeros))]
    }

    fn examples() -> Vec<Example> {
        let plain = Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1, winograd: false };
        let odd = Conv2d { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 2, winograd: false };
        vec![
            Example::normal(plain, &[&[2, 3, 2, 3], &[4, 1, 1, 3], &[4]]),
            Example::normal(Conv2d { padding: [1, 1], ..plain }, &[&[1, 4, 5, 2], &[3, 3, 3, 2]]),
            Example::normal(Conv2d { stride: [2, 2], ..plain }, &[&[2, 5, 4, 2], &[3, 1, 1, 2]]),
            Example::normal(
                Conv2d { padding: [1, 1], winograd: true, ..plain },
                &[&[1, 6, 5, 3], &[2, 3, 3, 3], &[2]],
            ),
            Example::normal(odd, &[&[1, 5, 4, 4], &[6, 3, 2, 2], &[6]]),
            Example::normal(Conv2d { groups: 3, ..odd }, &[&[1, 5, 4, 3], &[3, 3, 2, 1], &[3]]),
        ]
    }
}

/// The gradient of a convolution with respect to its input; inputs `dy` and the weight.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conv2dGradInput {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of its input, which several sizes of `dy` allow.
    pub size: [usize; 2],
}

impl Conv2dGradInput {
    fn sizes_of(&self, dy: &Type, weight: &Type) -> Result<ConvShape, String> {
        expect_rank("dy", dy, 4)?;
        expect_rank("weight", weight, 4)?;
        let &[o, kh, kw, per_group] = weight.shape() else { unreachable!("rank 4 was just checked") };
        let c = per_group.checked_mul(self.conv.groups).ok_or("the number of channels overflows")?;
        let shape = self.conv.sizes(&[dy.shape()[0], self.size[0], self.size[1], c], o, [kh, kw])?;
        expect_shape("dy", dy, &output(&shape))?;
        Ok(shape)
    }
}

impl OpDef for Conv2dGradInput {
    fn name() -> &'static str {
        "conv2d_grad_input"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let shape = self.sizes_of(x[0], x[1])?;
        Ok(vec![Type::f32(&[shape.n, shape.h, shape.w, shape.c]).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(&checked(self.sizes_of(x[0], x[1])), x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * conv_grad_input_workspace(&checked(self.sizes_of(x[0], x[1]))) as u64
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|conv, x, weight, y| {
            Case::floats(Conv2dGradInput { conv, size: [x[1], x[2]] }, &[&y, &weight])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = checked(self.sizes_of(io.x_type(0), io.x_type(1)));
        conv_grad_input(&shape, io.f32(0), io.f32(1), io.out(0), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = checked(self.sizes_of(io.x_types[0], io.x_types[1]));
        vec![naive::conv::conv_grad_input(&shape, io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        let conv = Conv2d { stride: [2, 2], padding: [1, 1], dilation: [1, 1], groups: 1, winograd: false };
        let winograd = Conv2d { stride: [1, 1], winograd: true, ..conv };
        vec![
            Example::normal(
                Conv2dGradInput { conv: winograd, size: [5, 6] },
                &[&[1, 5, 6, 4], &[4, 3, 3, 2]],
            ),
            Example::normal(Conv2dGradInput { conv, size: [5, 5] }, &[&[2, 3, 3, 4], &[4, 3, 3, 2]]),
            Example::normal(Conv2dGradInput { conv, size: [6, 6] }, &[&[2, 3, 3, 4], &[4, 3, 3, 2]]),
        ]
    }
}

/// The gradient of a convolution with respect to its weight; inputs `dy` and `x`.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conv2dGradWeight {
    /// The convolution.
    pub conv: Conv2d,
    /// Height and width of its kernel.
    pub kernel: [usize; 2],
}

impl Conv2dGradWeight {
    fn sizes_of(&self, dy: &Type, x: &Type) -> Result<ConvShape, String> {
        expect_rank("dy", dy, 4)?;
        expect_rank("x", x, 4)?;
        let shape = self.conv.sizes(x.shape(), dy.last(), self.kernel)?;
        expect_shape("dy", dy, &output(&shape))?;
        Ok(shape)
    }
}

impl OpDef for Conv2dGradWeight {
    fn name() -> &'static str {
        "conv2d_grad_weight"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        let shape = self.sizes_of(x[0], x[1])?;
        let weight = [shape.o, shape.kh, shape.kw, shape.c / shape.groups];
        Ok(vec![Type::f32(&weight).map_err(|e| e.to_string())?])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(&checked(self.sizes_of(x[0], x[1])), x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        4 * conv_grad_weight_workspace(&checked(self.sizes_of(x[0], x[1]))) as u64
    }

    fn calibration() -> Option<Calibration> {
        Some(calibration(|conv, x, weight, y| {
            Case::floats(Conv2dGradWeight { conv, kernel: [weight[1], weight[2]] }, &[&y, &x])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let shape = checked(self.sizes_of(io.x_type(0), io.x_type(1)));
        conv_grad_weight(&shape, io.f32(0), io.f32(1), io.out(0), io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = checked(self.sizes_of(io.x_types[0], io.x_types[1]));
        vec![naive::conv::conv_grad_weight(&shape, io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        let conv = Conv2d { stride: [1, 2], padding: [1, 0], dilation: [2, 1], groups: 2, winograd: false };
        let winograd =
            Conv2d { stride: [1; 2], padding: [1; 2], dilation: [1; 2], groups: 1, winograd: true };
        vec![
            Example::normal(Conv2dGradWeight { conv, kernel: [3, 2] }, &[&[2, 3, 3, 4], &[2, 5, 6, 2]]),
            Example::normal(
                Conv2dGradWeight { conv: winograd, kernel: [3, 3] },
                &[&[2, 5, 6, 4], &[2, 5, 6, 2]],
            ),
        ]
    }
}

/// An op on the convolutions where most of a ResNet's work is, given the convolution, its input, weight and output.
fn calibration(case: fn(Conv2d, [usize; 4], [usize; 4], [usize; 4]) -> Case) -> Calibration {
    let sizes = [(28, 128, 128, 3), (14, 1024, 256, 1), (14, 256, 256, 3), (14, 256, 1024, 1)];
    let sized = |(image, inputs, outputs, kernel)| {
        let padding = [kernel / 2; 2];
        let conv = Conv2d { stride: [1; 2], padding, dilation: [1; 2], groups: 1, winograd: false };
        let image = |channels| [2, image, image, channels];
        case(conv, image(inputs), [outputs, kernel, kernel, inputs], image(outputs))
    };
    Calibration::Arithmetic(sizes.into_iter().map(sized).collect())
}
