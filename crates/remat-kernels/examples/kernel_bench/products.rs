//! Convolutions, linear layers and attention, in the shapes of ResNet, a translation model and a decoder.

use crate::Bench;
use crate::memory::Memory;
use remat_kernels::attention::{
    AttentionSaved, AttentionShape, Rows, RowsMut, attention, attention_grad, attention_grad_workspace,
};
use remat_kernels::conv::{
    ConvShape, conv, conv_grad_input, conv_grad_input_workspace, conv_grad_weight,
    conv_grad_weight_workspace, conv_workspace,
};
use remat_kernels::linear::{LinearShape, linear, linear_grad_input, linear_grad_weight};

/// oneDNN 3 on NHWC images, batch 4, on one core with a peak of 102.8 GFLOP/s: GFLOP/s of forward, backward-data and
/// backward-weights, by the name of the shape.
const ONEDNN: [(&str, [f64; 3]); 4] = [
    ("conv 3x3/1 64->64 56^2", [98.0, 97.0, 54.0]),
    ("conv 3x3/1 128->128 28^2", [104.0, 102.0, 66.0]),
    ("conv 3x3/1 256->256 14^2", [102.0, 100.0, 68.0]),
    ("conv 1x1/1 1024->256 14^2", [96.0, 98.0, 66.0]),
];

/// Channels in and out, side of the image, side of the kernel, stride.
const CONVOLUTIONS: [(usize, usize, usize, usize, usize); 13] = [
    (64, 64, 56, 3, 1),
    (128, 128, 28, 3, 1),
    (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1),
    (128, 128, 56, 3, 2),
    (1024, 256, 14, 1, 1),
    (256, 1024, 14, 1, 1),
    (512, 128, 28, 1, 1),
    (128, 512, 28, 1, 1),
    (256, 64, 56, 1, 1),
    (64, 256, 56, 1, 1),
    (256, 512, 56, 1, 2),
    (3, 64, 224, 7, 2),
];

/// Rows, inputs and outputs. First a square; then a translation model of width 512 and its classifier, whose rows come in
/// chunks; then a decoder of width 1024.
const LINEAR_LAYERS: [(usize, usize, usize); 10] = [
    (1024, 1024, 1024),
    (2048, 512, 512),
    (2048, 512, 1536),
    (2048, 512, 2048),
    (2048, 2048, 512),
    (137, 512, 30_000),
    (1024, 1024, 3072),
    (1024, 1024, 4096),
    (1024, 4096, 1024),
    (256, 1024, 50_257),
];

/// Behind the name of a shape.
const DIRECTIONS: [&str; 3] = ["forward", "backward-data", "backward-weights"];

impl Bench {
    pub(crate) fn products(&self) {
        for (c, o, size, kernel, stride) in CONVOLUTIONS {
            self.conv(c, o, size, kernel, stride, false);
            if (kernel, stride) == (3, 1) {
                self.conv(c, o, size, kernel, stride, true);
            }
        }
        for (rows, inputs, outputs) in LINEAR_LAYERS {
            self.linear(LinearShape { rows, inputs, outputs });
        }
        self.attention(1024, 8, 64);
    }

    /// By Winograd's algorithm as many multiply-adds are counted as the plain sums have, so that times can be compared.
    fn conv(&self, c: usize, o: usize, size: usize, kernel: usize, stride: usize, winograd: bool) {
        let shape = ConvShape {
            n: 4,
            h: size,
            w: size,
            c,
            o,
            kh: kernel,
            kw: kernel,
            stride: (stride, stride),
            padding: (kernel / 2, kernel / 2),
            dilation: (1, 1),
            groups: 1,
            winograd,
        };
        let algorithm = if winograd { " winograd" } else { "" };
        let name = format!("conv {kernel}x{kernel}/{stride} {c}->{o} {size}^2{algorithm}");
        if !self.wants_any(&name, &DIRECTIONS) {
            return;
        }
        let positions = shape.n * shape.out_h() * shape.out_w();
        let flops = 2.0 * (positions * o * shape.patch_len()) as f64;
        let (image, weights, output) = (shape.n * size * size * c, o * shape.patch_len(), positions * o);
        let space = conv_workspace(&shape)
            .max(conv_grad_input_workspace(&shape))
            .max(conv_grad_weight_workspace(&shape));
        let lens = [image, weights, output, output, image, weights, space];
        let mut memory = Memory::of(&lens);
        let [x, weight, dy, y, dx, dweight, space] = memory.tensors(lens);

        let onednn = ONEDNN.iter().find(|(shape, _)| *shape == name).map(|&(_, speeds)| speeds);
        let reference = |direction: usize| onednn.map(|speeds| speeds[direction]);
        self.product(&format!("{name} forward"), flops, reference(0), || {
            conv(&shape, x, weight, None, y, space);
        });
        self.product(&format!("{name} backward-data"), flops, reference(1), || {
            conv_grad_input(&shape, dy, weight, dx, space);
        });
        self.product(&format!("{name} backward-weights"), flops, reference(2), || {
            conv_grad_weight(&shape, dy, x, dweight, space);
        });
    }

    fn linear(&self, shape: LinearShape) {
        let LinearShape { rows, inputs, outputs } = shape;
        let name = format!("linear {rows}x{inputs}->{outputs}");
        if !self.wants_any(&name, &DIRECTIONS) {
            return;
        }
        let flops = 2.0 * (rows * inputs * outputs) as f64;
        let (input, weights, output) = (rows * inputs, outputs * inputs, rows * outputs);
        let lens = [input, weights, output, output, input, weights];
        let mut memory = Memory::of(&lens);
        let [x, weight, dy, y, dx, dweight] = memory.tensors(lens);
        self.product(&format!("{name} forward"), flops, None, || linear(shape, x, weight, None, y));
        self.product(&format!("{name} backward-data"), flops, None, || {
            linear_grad_input(shape, dy, weight, dx);
        });
        self.product(&format!("{name} backward-weights"), flops, None, || {
            linear_grad_weight(shape, dy, x, dweight);
        });
    }

    /// Causal attention over a packed projection; half of the products of the full matrix are counted.
    fn attention(&self, tokens: usize, heads: usize, head_dim: usize) {
        let shape = causal(tokens, heads, head_dim);
        let width = heads * head_dim;
        let name = format!("attention {tokens}x{heads}x{head_dim}");
        let product = (tokens * tokens * width) as f64;
        let (packed, single) = (tokens * 3 * width, tokens * width);
        let lens = [packed, single, heads * tokens, single, packed, attention_grad_workspace(&shape)];
        let mut memory = Memory::of(&lens);
        let [packed, out, lse, dout, grads, space] = memory.tensors(lens);
        let [q, k, v] = [0, 1, 2].map(|part| Rows::new(packed, 3 * width, part * width));
        self.product(&format!("{name} forward"), 2.0 * product, None, || {
            attention(&shape, q, k, v, RowsMut::new(out, width), lse);
        });
        self.product(&format!("{name} backward"), 5.0 * product, None, || {
            let saved = AttentionSaved { q, k, v, out: Rows::new(out, width, 0), lse };
            let [dq, dk, dv] = RowsMut::packed(grads, width);
            attention_grad(&shape, &saved, Rows::new(dout, width, 0), dq, dk, dv, space);
        });
    }
}

/// Causal attention of one text.
pub(crate) fn causal(tokens: usize, heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape {
        batch: 1,
        heads,
        queries: tokens,
        keys: tokens,
        head_dim,
        causal: true,
        scale: 1.0 / (head_dim as f32).sqrt(),
        dropout: None,
    }
}
