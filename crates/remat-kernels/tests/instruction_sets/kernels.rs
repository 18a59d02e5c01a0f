//! The kernels, each as a function of a length.

use remat_kernels::attention::{
    AttentionDropout, AttentionSaved, AttentionShape, Rows, RowsMut, attention, attention_grad,
    attention_grad_workspace,
};
use remat_kernels::conv::{
    ConvShape, conv, conv_grad_input, conv_grad_input_workspace, conv_grad_weight,
    conv_grad_weight_workspace, conv_transpose, conv_workspace,
};
use remat_kernels::gemm::{Mat, MatMut, Write, gemm, gemm_serial};
use remat_kernels::linear::{LinearShape, linear, linear_grad_input, linear_grad_weight};
use remat_kernels::linear_cross_entropy::{
    Classifier, ClassifierGrad, linear_cross_entropy, linear_cross_entropy_grad,
    linear_cross_entropy_with_grad, linear_cross_entropy_workspace,
};
use remat_kernels::matmul::{MatmulShape, matmul};
use remat_kernels::optimizer::{Adam, Sgd, Update, adam, sgd, sgd_momentum};
use remat_kernels::pool::{
    PoolShape, avg_pool, avg_pool_grad, global_avg_pool, global_avg_pool_grad, max_pool, max_pool_grad,
};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::rng::{self, Key};
use remat_kernels::shape::{AxisShape, concat, pad, slice, transpose};
use remat_kernels::{
    accuracy, activation, batch_norm, dropout, elementwise, embedding, fused, fused_batch_norm, gradient,
    layer_norm, loss, rms_norm, softmax, sum_rows,
};

pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Lengths beyond this take too long for a test.
    pub(crate) longest: usize,
    /// All outputs, one after the other.
    pub(crate) run: fn(usize) -> Vec<f32>,
}

const fn kernel(name: &'static str, longest: usize, run: fn(usize) -> Vec<f32>) -> Kernel {
    Kernel { name, longest, run }
}

const ANY: usize = usize::MAX;

/// Rows of matrices: more than a vector of f64, not a multiple of a tile.
const ROWS: usize = 7;
const EPS: f32 = 1e-5;

pub(crate) const KERNELS: &[Kernel] = &[
    kernel("relu", ANY, |n| unary(n, activation::relu)),
    kernel("relu_grad", ANY, |n| binary(n, activation::relu_grad)),
    kernel("gelu", ANY, |n| unary(n, activation::gelu)),
    kernel("gelu_grad", ANY, |n| binary(n, activation::gelu_grad)),
    kernel("gelu_tanh", ANY, |n| unary(n, activation::gelu_tanh)),
    kernel("gelu_tanh_grad", ANY, |n| binary(n, activation::gelu_tanh_grad)),
    kernel("silu", ANY, |n| unary(n, activation::silu)),
    kernel("silu_grad", ANY, |n| binary(n, activation::silu_grad)),
    kernel("add", ANY, |n| binary(n, elementwise::add)),
    kernel("mul", ANY, |n| binary(n, elementwise::mul)),
    kernel("scale", ANY, |n| unary(n, |x, y| elementwise::scale(x, 0.3, y))),
    kernel("fill", ANY, |n| output(n, |y| elementwise::fill(0.3, y))),
    kernel("dropout", ANY, |n| unary(n, |x, y| dropout::dropout(x, 0.3, key(), y))),
    kernel("dropout_from", ANY, |n| unary(n, |x, y| dropout::dropout_from(x, 0.3, key(), 5, y))),
    kernel("random numbers", ANY, |n| {
        let mut words = vec![0; n];
        rng::fill_u32(key(), 3, &mut words);
        words.into_iter().map(f32::from_bits).collect()
    }),
    kernel("fused blocks", ANY, |n| {
        let x = random(n, 1);
        output(n, |y| {
            let (x, y) = (Src::from(&x[..]), Dst::from(y));
            fused::for_each_block(&[x], y, |block, registers| {
                let middle = registers.dst(0, block.len());
                activation::silu(x.part(block.start, block.len()), middle);
                activation::gelu(registers.src(0, block.len()), y.part(block.start, block.len()));
            });
        })
    }),
    kernel("normalise", ANY, |n| {
        let constants = [random(n, 2), random(n, 3), random(n, 4)];
        let [mean, scale, bias] = constants.each_ref().map(|c| Src::from(&c[..]));
        unary(ROWS * n, |x, y| fused::normalise(x, [mean, scale, bias], y))
    }),
    kernel("softmax", ANY, |n| unary(ROWS * n, |x, y| softmax::forward(x, n, y))),
    kernel("softmax grad", ANY, |n| binary(ROWS * n, |y, dy, dx| softmax::grad(y, dy, n, dx))),
    kernel("layer_norm", ANY, |n| {
        let (weight, bias) = (random(n, 2), random(n, 3));
        let (mut mean, mut rstd) = (vec![0.0; ROWS], vec![0.0; ROWS]);
        let y = unary(ROWS * n, |x, y| layer_norm::forward(x, &weight, &bias, EPS, y, &mut mean, &mut rstd));
        [y, mean, rstd].concat()
    }),
    kernel("layer_norm grad", ANY, |n| {
        let (weight, mean, rstd) = (random(n, 2), random(ROWS, 3), positive(ROWS, 4));
        let (mut dweight, mut dbias) = (vec![0.0; n], vec![0.0; n]);
        let mut space = vec![0.0; layer_norm::grad_workspace(ROWS, n)];
        let dx = binary(ROWS * n, |x, dy, dx| {
            layer_norm::grad(x, dy, &weight, &mean, &rstd, dx, &mut dweight, &mut dbias, &mut space);
        });
        [dx, dweight, dbias].concat()
    }),
    kernel("rms_norm", ANY, |n| {
        let (weight, mut rstd) = (random(n, 2), vec![0.0; ROWS]);
        let y = unary(ROWS * n, |x, y| rms_norm::forward(x, &weight, EPS, y, &mut rstd));
        [y, rstd].concat()
    }),
    kernel("rms_norm grad", ANY, |n| {
        let (weight, rstd, mut dweight) = (random(n, 2), positive(ROWS, 4), vec![0.0; n]);
        let mut space = vec![0.0; layer_norm::grad_workspace(ROWS, n)];
        let dx = binary(ROWS * n, |x, dy, dx| {
            rms_norm::grad(x, dy, &weight, &rstd, dx, &mut dweight, &mut space);
        });
        [dx, dweight].concat()
    }),
    kernel("batch_norm stats", ANY, |n| {
        let (x, mut mean, mut var) = (random(ROWS * n, 1), vec![0.0; n], vec![0.0; n]);
        batch_norm::stats(x[..].into(), &mut mean, &mut var, &mut vec![0.0; batch_norm::workspace(ROWS, n)]);
        [mean, var].concat()
    }),
    kernel("batch_norm apply", ANY, |n| {
        let [mean, var, weight, bias] = channels(n);
        unary(ROWS * n, |x, y| batch_norm::apply(x, &mean, &var, &weight, &bias, EPS, y))
    }),
    kernel("batch_norm scales", ANY, |n| {
        let [_, var, weight, _] = channels(n);
        output(n, |y| batch_norm::scales(var[..].into(), weight[..].into(), EPS, y))
    }),
    kernel("batch_norm grad", ANY, |n| {
        let [mean, var, weight, _] = channels(n);
        let (mut dweight, mut dbias) = (vec![0.0; n], vec![0.0; n]);
        let mut space = vec![0.0; batch_norm::workspace(ROWS, n)];
        let dx = binary(ROWS * n, |x, dy, dx| {
            batch_norm::grad(x, dy, &mean, &var, &weight, EPS, dx, &mut dweight, &mut dbias, &mut space);
        });
        [dx, dweight, dbias].concat()
    }),
    kernel("running_update", ANY, |n| {
        binary(n, |old, batch, new| batch_norm::running_update(old, batch, 0.1, 1.2, new))
    }),
    kernel("batch norm with relu_grad", ANY, |n| {
        let [mean, var, weight, bias] = channels(n);
        let of =
            fused_batch_norm::Channels { mean: &mean, var: &var, weight: &weight, bias: &bias, eps: EPS };
        let (mut dweight, mut dbias) = (vec![0.0; n], vec![0.0; n]);
        let mut space = vec![0.0; batch_norm::workspace(ROWS, n)];
        let dx = binary(ROWS * n, |x, dz, dx| {
            fused_batch_norm::relu_grad(x, dz, of, dx, &mut dweight, &mut dbias, &mut space);
        });
        [dx, dweight, dbias].concat()
    }),
    kernel("cross_entropy", ANY, |n| {
        let (logits, mut lse) = (random(ROWS * n, 1), vec![0.0; ROWS]);
        let mean = loss::cross_entropy(&logits, &labels(n), &mut lse);
        let right = accuracy::accuracy(&logits, &labels(n));
        let lse_given = lse.clone();
        let grad = unary(ROWS * n, |x, dx| loss::cross_entropy_grad(x, &labels(n), &lse_given, 0.7, dx));
        [lse, vec![mean, right], grad].concat()
    }),
    kernel("mse", ANY, |n| vec![loss::mse(&random(n, 1), &random(n, 2))]),
    kernel("mse_grad", ANY, |n| binary(n, |x, target, dx| loss::mse_grad(x, target, 0.7, dx))),
    kernel("sgd", ANY, |n| update(n, |grad, [p, ..]| sgd(&SGD, grad, p))),
    kernel("sgd_momentum", ANY, |n| update(n, |grad, [p, v, _]| sgd_momentum(&SGD, grad, p, v))),
    kernel("adam", ANY, |n| update(n, |grad, [p, m, v]| adam(&ADAM, 3, grad, p, m, v))),
    kernel("accumulate", ANY, |n| binary(n, |old, g, new| gradient::accumulate(old, g, 0.5, false, new))),
    kernel("sum_squares", ANY, |n| {
        vec![gradient::sum_squares(&random(n, 1), &mut vec![0.0; gradient::sum_squares_workspace(n)])]
    }),
    kernel("sum_rows", ANY, |n| {
        let mut space = vec![0.0; sum_rows::workspace(ROWS, n)];
        output(n, |y| sum_rows::sum_rows(&random(ROWS * n, 1), y, &mut space))
    }),
    kernel("global_avg_pool", ANY, |n| {
        output(2 * n, |y| global_avg_pool(ROWS, n, &random(2 * ROWS * n, 1), y))
    }),
    kernel("global_avg_pool_grad", ANY, |n| {
        output(2 * ROWS * n, |dx| global_avg_pool_grad(ROWS, n, &random(2 * n, 1), dx))
    }),
    kernel("max_pool", ANY, |n| {
        let shape = pool_shape(n);
        let mut idx = vec![0; shape.output_len()];
        let y = output(shape.output_len(), |y| max_pool(&shape, &random(shape.input_len(), 1), y, &mut idx));
        let dy = random(shape.output_len(), 2);
        [y, output(shape.input_len(), |dx| max_pool_grad(&shape, &dy, &idx, dx))].concat()
    }),
    kernel("avg_pool", ANY, |n| {
        let shape = pool_shape(n);
        let y = output(shape.output_len(), |y| avg_pool(&shape, &random(shape.input_len(), 1), y));
        let dy = random(shape.output_len(), 2);
        [y, output(shape.input_len(), |dx| avg_pool_grad(&shape, &dy, dx))].concat()
    }),
    kernel("embedding", ANY, |n| {
        let ids = [2, 0, 2, 1];
        let y = output(4 * n, |y| embedding::embedding(n, &ids, &random(3 * n, 1), y));
        [y, output(3 * n, |dy| embedding::embedding_grad(n, &ids, &random(4 * n, 2), dy))].concat()
    }),
    kernel("copies", ANY, |n| {
        let (shape, x) = (AxisShape { outer: 2, axis: 3, inner: n }, random(6 * n, 1));
        [
            output(4 * n, |y| slice(shape, &x, 1, 2, y)),
            output(12 * n, |y| pad(shape, &x, 1, 2, y)),
            output(12 * n, |y| concat(2, n, &[&x, &x], y)),
            output(6 * n, |y| transpose(&[2, 3, n], &[2, 0, 1], &x, y)),
        ]
        .concat()
    }),
    // The length is that of every side of a product in turn.
    kernel("gemm, columns", ANY, |n| products(13, 40, n)),
    kernel("gemm, rows", ANY, |n| products(n, 40, 21)),
    kernel("gemm, depth", ANY, |n| products(13, n, 21)),
    // Strides from which on operands are copied.
    kernel("gemm, far apart", 40, |n| {
        let (a, b) = (random(n * 600, 1), random(40 * 600, 2));
        let a = Mat::strided(&a, n, 40, 600, 1);
        output(n * n, |c| {
            gemm_serial(Write::Overwrite, 1.0, a, Mat::strided(&b, 40, n, 600, 1), MatMut::new(c, n, n));
        })
    }),
    kernel("matmul", 130, |n| {
        let mut all = Vec::new();
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true)] {
            let shape = MatmulShape { batch: 2, m: 5, k: 9, n, transpose_a, transpose_b };
            all.extend(output(10 * n, |c| matmul(shape, &random(90, 1), &random(18 * n, 2), c)));
        }
        all
    }),
    kernel("linear", 130, |n| {
        let shape = LinearShape { rows: ROWS, inputs: 19, outputs: n };
        let (x, weight, bias, dy) =
            (random(ROWS * 19, 1), random(19 * n, 2), random(n, 3), random(ROWS * n, 4));
        [
            output(ROWS * n, |y| linear(shape, &x, &weight, Some(&bias), y)),
            output(ROWS * 19, |dx| linear_grad_input(shape, &dy, &weight, dx)),
            output(19 * n, |dw| linear_grad_weight(shape, &dy, &x, dw)),
        ]
        .concat()
    }),
    kernel("linear_cross_entropy", 130, |n| {
        let shape = LinearShape { rows: ROWS, inputs: 19, outputs: n };
        let (x, weight, bias) = (random(ROWS * 19, 1), random(19 * n, 2), random(n, 3));
        let layer = Classifier { shape, weight: &weight, bias: Some(&bias) };
        let (mut space, labels) = (vec![0.0; linear_cross_entropy_workspace(shape)], labels(n));
        let mut lse = vec![0.0; ROWS];
        let mut all = vec![linear_cross_entropy(&layer, &x, &labels, &mut lse, &mut space)];
        for with_loss in [false, true] {
            let (mut dx, mut dw, mut db) = (vec![0.0; ROWS * 19], vec![0.0; 19 * n], vec![0.0; n]);
            let grad = ClassifierGrad { dx: &mut dx, dweight: &mut dw, dbias: Some(&mut db) };
            if with_loss {
                let (x, lse) = (&x, &mut lse);
                all.push(linear_cross_entropy_with_grad(&layer, x, &labels, lse, 0.7, grad, &mut space));
            } else {
                linear_cross_entropy_grad(&layer, &x, &labels, &lse, 0.7, grad, &mut space);
            }
            all.extend([dx, dw, db].concat());
        }
        [all, lse].concat()
    }),
    kernel("attention, keys", 257, |n| attentions(3, n, 5)),
    kernel("attention, queries", 257, |n| attentions(n, 3, 5)),
    kernel("attention, head", 130, |n| attentions(3, 5, n)),
    // Few channels, many channels, one kernel per channel; groups; a stride.
    kernel("conv, outputs", 70, |n| convolutions(ConvShape { o: n, ..CONV })),
    kernel("conv, inputs", 70, |n| convolutions(ConvShape { c: n, stride: (2, 1), ..CONV })),
    kernel("conv, depthwise", 70, |n| convolutions(ConvShape { c: n, o: n, groups: n, ..CONV })),
    kernel("conv, groups", 40, |n| convolutions(ConvShape { c: 2 * n, o: 2 * n, groups: 2, ..CONV })),
    kernel("conv, dilated", 40, |n| convolutions(ConvShape { c: 16, o: n, dilation: (2, 2), ..CONV })),
    kernel("conv, pointwise", 70, |n| {
        convolutions(ConvShape { o: n, kh: 1, kw: 1, padding: (0, 0), ..CONV })
    }),
    kernel("conv, width", 70, |n| convolutions(ConvShape { w: n + 2, c: 16, ..CONV })),
    kernel("conv, winograd, outputs", 70, |n| convolutions(ConvShape { o: n, winograd: true, ..CONV })),
    kernel("conv, winograd, inputs", 70, |n| convolutions(ConvShape { c: n, winograd: true, ..CONV })),
    kernel("conv, winograd, width", 40, |n| {
        convolutions(ConvShape { w: n + 2, n: 3, c: 20, o: 36, padding: (2, 0), winograd: true, ..CONV })
    }),
];

const CONV: ConvShape = ConvShape {
    n: 2,
    h: 5,
    w: 6,
    c: 3,
    o: 4,
    kh: 3,
    kw: 3,
    stride: (1, 1),
    padding: (1, 1),
    dilation: (1, 1),
    groups: 1,
    winograd: false,
};

const SGD: Sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.01, nesterov: true, gradient_scale: 0.7 };
const ADAM: Adam = Adam {
    lr: 0.1,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.01,
    decoupled: true,
    gradient_scale: 0.7,
};

fn key() -> Key {
    Key::new(1, 2, 3)
}

/// Numbers of many magnitudes and both signs, some of them subnormal, and zeros of both signs.
fn random(len: usize, seed: u64) -> Vec<f32> {
    if cfg!(miri) {
        // Random numbers take Miri longer than the kernels do.
        return (0..len).map(|i| ((37 * i + 11 * seed as usize) % 101) as f32 / 25.0 - 2.0).collect();
    }
    let key = Key::new(seed, 0, 0);
    let number = |i: u64| match rng::uniform_u32(key, 2 * i + 1) % 64 {
        0 => 0.0,
        1 => -0.0,
        2 => f32::from_bits(rng::uniform_u32(key, 2 * i) & 0x807f_ffff),
        3 => 1e3 * (rng::uniform_f32(key, 2 * i) - 0.5),
        _ => 4.0 * (rng::uniform_f32(key, 2 * i) - 0.5),
    };
    (0..len as u64).map(number).collect()
}

fn positive(len: usize, seed: u64) -> Vec<f32> {
    random(len, seed).iter().map(|x| x.abs() + 0.1).collect()
}

/// Mean, variance, weight and bias.
fn channels(n: usize) -> [Vec<f32>; 4] {
    [random(n, 2), positive(n, 3), random(n, 4), random(n, 5)]
}

/// A label for every row, and one row without.
fn labels(classes: usize) -> Vec<i32> {
    (0..ROWS).map(|row| if row == 3 { -100 } else { (row * 5 % classes) as i32 }).collect()
}

/// An output of so many elements that the kernel must fill.
fn output(len: usize, kernel: impl FnOnce(&mut [f32])) -> Vec<f32> {
    let mut y = vec![f32::NAN; len];
    kernel(&mut y);
    y
}

fn unary(len: usize, kernel: impl FnOnce(Src<'_>, Dst<'_>)) -> Vec<f32> {
    output(len, |y| kernel(Src::from(&random(len, 1)[..]), Dst::from(y)))
}

fn binary(len: usize, kernel: impl FnOnce(Src<'_>, Src<'_>, Dst<'_>)) -> Vec<f32> {
    let (a, b) = (random(len, 1), random(len, 2));
    output(len, |y| kernel(Src::from(&a[..]), Src::from(&b[..]), Dst::from(y)))
}

fn update(len: usize, kernel: impl FnOnce(Src<'_>, [Update<'_>; 3])) -> Vec<f32> {
    let (grad, old) = (random(len, 1), [random(len, 2), random(len, 3), positive(len, 4)]);
    let mut new = old.clone();
    let [a, b, c] = new.each_mut().map(|new| Dst::from(&mut new[..]));
    let pair = |i: usize, new| Update { old: Src::from(&old[i][..]), new };
    kernel(Src::from(&grad[..]), [pair(0, a), pair(1, b), pair(2, c)]);
    new.concat()
}

fn products(rows: usize, depth: usize, cols: usize) -> Vec<f32> {
    let (a, b) = (random(rows * depth, 1), random(depth * cols, 2));
    let (a, b) = (Mat::new(&a, rows, depth), Mat::new(&b, depth, cols));
    let plain = output(rows * cols, |c| gemm(Write::Overwrite, 1.0, a, b, MatMut::new(c, rows, cols)));
    let mut added = random(rows * cols, 3);
    gemm(Write::Accumulate, 0.3, b.t(), a.t(), MatMut::strided(&mut added, cols, rows, 1, cols));
    [plain, added].concat()
}

fn pool_shape(channels: usize) -> PoolShape {
    PoolShape { n: 1, h: 5, w: 6, c: channels, kernel: (3, 2), stride: (2, 1), padding: (1, 1) }
}

fn attentions(queries: usize, keys: usize, head_dim: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for (causal, dropout) in [(false, None), (true, Some(AttentionDropout { probability: 0.2, key: key() }))]
    {
        let (batch, heads) = (1, 2);
        let shape = AttentionShape { batch, heads, queries, keys, head_dim, causal, scale: 0.4, dropout };
        let width = heads * head_dim;
        let (q, k, v) = (random(queries * width, 1), random(keys * width, 2), random(keys * width, 3));
        let dout = random(queries * width, 4);
        let (mut out, mut lse) = (vec![f32::NAN; queries * width], vec![f32::NAN; heads * queries]);
        let rows = |data| Rows::new(data, width, 0);
        let [q, k, v, dout] = [&q, &k, &v, &dout].map(|data| rows(&data[..]));
        attention(&shape, q, k, v, RowsMut::new(&mut out, width), &mut lse);
        let saved = AttentionSaved { q, k, v, out: rows(&out), lse: &lse };
        let mut grads =
            [vec![f32::NAN; queries * width], vec![f32::NAN; keys * width], vec![0.0; keys * width]];
        let [dq, dk, dv] = grads.each_mut().map(|grad| RowsMut::new(grad, width));
        let mut space = vec![f32::NAN; attention_grad_workspace(&shape)];
        attention_grad(&shape, &saved, dout, dq, dk, dv, &mut space);
        all.extend([grads.concat(), out.clone(), lse.clone()].concat());
    }
    all
}

fn convolutions(shape: ConvShape) -> Vec<f32> {
    let shape = shape.checked().expect("a convolution");
    let (n_x, n_w) = (shape.n * shape.h * shape.w * shape.c, shape.o * shape.patch_len());
    let n_y = shape.n * shape.out_h() * shape.out_w() * shape.o;
    let (x, weight, dy) = (random(n_x, 1), random(n_w, 2), random(n_y, 3));
    let (bias, dx_bias) = (random(shape.o, 4), random(shape.c, 5));
    let space = |len: usize| vec![f32::NAN; len];
    let mut forward = space(conv_workspace(&shape));
    let (mut input, mut weights) =
        (space(conv_grad_input_workspace(&shape)), space(conv_grad_weight_workspace(&shape)));
    [
        output(n_y, |y| conv(&shape, &x, &weight, Some(&bias), y, &mut forward)),
        output(n_x, |dx| conv_grad_input(&shape, &dy, &weight, dx, &mut input)),
        output(n_x, |dx| conv_transpose(&shape, &dy, &weight, Some(&dx_bias), dx, &mut input)),
        output(n_w, |dw| conv_grad_weight(&shape, &dy, &x, dw, &mut weights)),
    ]
    .concat()
}
