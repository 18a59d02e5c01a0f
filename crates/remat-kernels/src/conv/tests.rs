//! Convolution against its definition, over shapes that take each of the ways.

use super::*;
use crate::naive::conv as naive;
use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

const BASE: ConvShape = ConvShape {
    n: 2,
    h: 7,
    w: 9,
    c: 4,
    o: 6,
    kh: 3,
    kw: 3,
    stride: (1, 1),
    padding: (1, 1),
    dilation: (1, 1),
    groups: 1,
    winograd: false,
};

/// Forward and both gradients agree with the naive twin and do not depend on the pool.
#[track_caller]
fn check(shape: ConvShape) {
    let shape = shape.checked().expect("a valid shape");
    let (n_x, n_y) =
        (shape.n * shape.h * shape.w * shape.c, shape.n * shape.out_h() * shape.out_w() * shape.o);
    let (x, weight) = (random(n_x, 1), random(shape.o * shape.patch_len(), 2));
    let (bias, dy) = (random(shape.o, 3), random(n_y, 4));
    let (x64, weight64, dy64) = (wide(&x), wide(&weight), wide(&dy));

    let forward = |bias: Option<&[f32]>| {
        let mut y = vec![f32::NAN; n_y];
        conv(&shape, &x, &weight, bias, &mut y, &mut vec![f32::NAN; conv_workspace(&shape)]);
        y
    };
    let y = same_bits_in_any_pool(|| forward(Some(&bias)));
    assert_close(&y, &naive::conv(&shape, &x64, &weight64, &wide(&bias)), 1e-5);
    let y = same_bits_in_any_pool(|| forward(None));
    assert_close(&y, &naive::conv(&shape, &x64, &weight64, &vec![0.0; shape.o]), 1e-5);

    let dx = same_bits_in_any_pool(|| {
        let mut dx = vec![f32::NAN; n_x];
        let mut workspace = vec![f32::NAN; conv_grad_input_workspace(&shape)];
        conv_grad_input(&shape, &dy, &weight, &mut dx, &mut workspace);
        dx
    });
    let want = naive::conv_grad_input(&shape, &dy64, &weight64);
    assert_close(&dx, &want, 1e-5);

    let bias = random(shape.c, 5);
    let shifted = same_bits_in_any_pool(|| {
        let mut y = vec![f32::NAN; n_x];
        let mut workspace = vec![f32::NAN; conv_grad_input_workspace(&shape)];
        conv_transpose(&shape, &dy, &weight, Some(&bias), &mut y, &mut workspace);
        y
    });
    let want: Vec<f64> =
        want.iter().enumerate().map(|(i, want)| want + f64::from(bias[i % shape.c])).collect();
    assert_close(&shifted, &want, 1e-5);

    let dweight = same_bits_in_any_pool(|| {
        let mut dweight = vec![f32::NAN; weight.len()];
        let mut workspace = vec![f32::NAN; conv_grad_weight_workspace(&shape)];
        conv_grad_weight(&shape, &dy, &x, &mut dweight, &mut workspace);
        dweight
    });
    assert_close(&dweight, &naive::conv_grad_weight(&shape, &dy64, &x64), 1e-5);
}

#[test]
fn same_size_kernels() {
    check(BASE);
    check(ConvShape { kh: 5, kw: 1, padding: (2, 0), ..BASE });
    check(ConvShape { c: 1, o: 1, n: 1, ..BASE });
}

#[test]
fn strides_paddings_and_dilations() {
    check(ConvShape { stride: (2, 2), ..BASE });
    check(ConvShape { stride: (2, 3), padding: (0, 2), ..BASE });
    check(ConvShape { dilation: (2, 3), padding: (3, 3), ..BASE });
    check(ConvShape { kh: 7, kw: 7, stride: (2, 2), padding: (3, 3), c: 3, h: 15, w: 14, ..BASE });
    // More padding than kernel: whole receptive fields are outside the image.
    check(ConvShape { kh: 1, kw: 2, padding: (2, 3), dilation: (1, 2), ..BASE });
}

#[test]
fn pointwise_kernels() {
    check(ConvShape { kh: 1, kw: 1, padding: (0, 0), ..BASE });
    check(ConvShape { kh: 1, kw: 1, padding: (0, 0), stride: (2, 2), ..BASE });
    check(ConvShape { kh: 1, kw: 1, padding: (1, 0), ..BASE });
}

#[test]
fn groups_and_depthwise() {
    check(ConvShape { groups: 2, ..BASE });
    check(ConvShape { groups: 2, dilation: (2, 2), stride: (1, 2), padding: (2, 1), ..BASE });
    check(ConvShape { groups: 4, o: 4, ..BASE });
    check(ConvShape { groups: 4, o: 4, stride: (2, 1), padding: (0, 2), dilation: (1, 2), ..BASE });
    check(ConvShape { groups: 4, o: 8, ..BASE });
}

/// Enough channels for pointers into the image; sizes that leave rests of positions, channels and runs.
#[test]
fn many_channels() {
    let many = ConvShape { c: 20, o: 35, ..BASE };
    check(many);
    let whole_vectors = ConvShape { n: 5, c: 32, o: 16, h: 9, ..BASE };
    check(whole_vectors);
    check(ConvShape { stride: (2, 3), padding: (0, 2), ..whole_vectors });
    check(ConvShape { dilation: (2, 3), padding: (3, 3), ..whole_vectors });
    check(ConvShape { kh: 1, kw: 2, padding: (2, 3), dilation: (1, 2), stride: (3, 1), ..whole_vectors });
    check(ConvShape { o: 38, groups: 2, stride: (1, 2), ..whole_vectors });
    check(ConvShape { kh: 1, kw: 1, padding: (0, 0), stride: (2, 2), ..whole_vectors });
    check(ConvShape { stride: (2, 2), ..many });
    check(ConvShape { stride: (2, 3), padding: (0, 2), ..many });
    check(ConvShape { dilation: (2, 3), padding: (3, 3), ..many });
    check(ConvShape { kh: 1, kw: 2, padding: (2, 3), dilation: (1, 2), stride: (3, 1), ..many });
    check(ConvShape { kh: 1, kw: 1, padding: (0, 0), stride: (2, 2), ..many });
    check(ConvShape { c: 40, o: 34, groups: 2, stride: (1, 2), ..BASE });
    check(ConvShape { n: 1, c: 16, o: 150, ..BASE });
    check(ConvShape { n: 1, c: 420, o: 20, h: 4, w: 5, ..BASE });
    check(ConvShape { n: 1, c: 20, o: 420, h: 4, w: 5, ..BASE });
}

/// Rows of the kernel as runs; the last one is longer than a visit of the product.
#[test]
fn few_channels() {
    check(ConvShape { kh: 7, kw: 7, stride: (2, 2), padding: (3, 3), c: 3, o: 40, h: 30, w: 29, ..BASE });
    check(ConvShape { c: 6, stride: (1, 2), padding: (2, 5), dilation: (2, 1), ..BASE });
    check(ConvShape { n: 1, c: 14, kw: 25, w: 21, padding: (1, 12), ..BASE });
}

/// Images that tiles divide and that they do not, all paddings, tails of channels, several tasks and pieces.
#[test]
fn by_winograd() {
    let base = ConvShape { winograd: true, ..BASE };
    check(base);
    check(ConvShape { n: 1, h: 3, w: 3, c: 1, o: 1, padding: (0, 0), ..base });
    check(ConvShape { h: 8, w: 4, c: 16, o: 32, ..base });
    check(ConvShape { h: 9, w: 6, c: 35, o: 17, padding: (0, 2), ..base });
    check(ConvShape { h: 5, w: 5, c: 33, o: 65, padding: (2, 0), ..base });
    check(ConvShape { n: 5, h: 17, w: 13, c: 40, o: 33, ..base });
    let several = ConvShape { n: 9, h: 21, w: 20, c: 20, o: 70, ..base };
    check(several);
}

/// With a stride of two, three of four positions of the input are seen by no tap; there are several groups of them.
#[test]
fn strided_pointwise_kernel_on_a_large_image() {
    let pointwise = ConvShape { kh: 1, kw: 1, padding: (0, 0), stride: (2, 2), ..BASE };
    check(ConvShape { n: 1, c: 40, o: 16, h: 61, w: 60, ..pointwise });
}

#[test]
fn several_pieces() {
    let shape = ConvShape { n: 3, h: 40, w: 33, c: 64, o: 2, ..BASE };
    assert!(pieces(&shape).count() > 1, "the shape must need several pieces");
    assert!(conv_grad_input_workspace(&shape) <= PIECE);
    check(shape);
}

#[test]
fn wrong_sizes_are_explained() {
    let message = |shape: ConvShape| shape.checked().expect_err("an invalid shape").to_string();
    assert_eq!(
        message(ConvShape { kh: 10, ..BASE }),
        "kernel reaches over 10 in height, but the padded image has only 9"
    );
    assert_eq!(message(ConvShape { groups: 4, ..BASE }), "6 output channels do not divide into 4 groups");
    assert_eq!(
        message(ConvShape { stride: (0, 1), ..BASE }),
        "the stride of a convolution must be at least 1"
    );
    assert_eq!(message(ConvShape { n: usize::MAX / 2, ..BASE }), "sizes of a convolution overflow");
}
