//! Convolution and its gradients: every product of the definition is visited once.

use crate::settings::conv::ConvShape;

/// Calls `product(x index, weight index, y index)` for every product in the convolution.
fn for_each_product(s: &ConvShape, mut product: impl FnMut(usize, usize, usize)) {
    let (inputs, outputs) = (s.c / s.groups, s.o / s.groups);
    for image in 0..s.n {
        for (out_row, out_column) in (0..s.out_h()).flat_map(|r| (0..s.out_w()).map(move |c| (r, c))) {
            for (o, kr, kc) in (0..s.o).flat_map(|o| (0..s.kh * s.kw).map(move |k| (o, k / s.kw, k % s.kw))) {
                let row = (out_row * s.stride.0 + kr * s.dilation.0) as isize - s.padding.0 as isize;
                let column = (out_column * s.stride.1 + kc * s.dilation.1) as isize - s.padding.1 as isize;
                if !(0..s.h as isize).contains(&row) || !(0..s.w as isize).contains(&column) {
                    continue;
                }
                for i in 0..inputs {
                    let channel = o / outputs * inputs + i;
                    let x = ((image * s.h + row as usize) * s.w + column as usize) * s.c + channel;
                    let weight = ((o * s.kh + kr) * s.kw + kc) * inputs + i;
                    let y = ((image * s.out_h() + out_row) * s.out_w() + out_column) * s.o + o;
                    product(x, weight, y);
                }
            }
        }
    }
}

/// `x ∗ weight + bias`.
pub fn conv(shape: &ConvShape, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let positions = shape.n * shape.out_h() * shape.out_w();
    let mut y = bias.repeat(positions);
    for_each_product(shape, |xi, wi, yi| y[yi] += x[xi] * weight[wi]);
    y
}

/// The gradient with respect to the input.
pub fn conv_grad_input(shape: &ConvShape, dy: &[f64], weight: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; shape.n * shape.h * shape.w * shape.c];
    for_each_product(shape, |xi, wi, yi| dx[xi] += dy[yi] * weight[wi]);
    dx
}

/// The gradient with respect to the weight.
pub fn conv_grad_weight(shape: &ConvShape, dy: &[f64], x: &[f64]) -> Vec<f64> {
    let mut dweight = vec![0.0; shape.o * shape.patch_len()];
    for_each_product(shape, |xi, wi, yi| dweight[wi] += dy[yi] * x[xi]);
    dweight
}
