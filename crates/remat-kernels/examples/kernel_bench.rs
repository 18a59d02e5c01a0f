//! How fast the kernels are, against what the machine can do.
//!
//! In: optionally `--threads N` (default 1) and words that select lines by name. Out: one line per kernel and shape.
//! Products are given in GFLOP/s and as a share of the fused-multiply-add peak of the threads; kernels that only
//! stream memory in GB/s and as a share of the bandwidth of a copy. Bytes are those of one perfect pass: what must be
//! read and written at least once (twice for batch norm's gradient, which needs its sums before its first output).
//!
//! Kernel and limit run alternately, and every figure is the best of many short runs: the kernels do the same work each
//! time, so a slower run tells about the rest of the machine. With one thread on Linux the clock counts only the time
//! that the thread had the processor, so that other programs disturb little.

use std::time::{Duration, Instant};

use rayon::prelude::*;
use remat_kernels::activation::{gelu, gelu_grad, relu, relu_grad, silu, silu_grad};
use remat_kernels::attention::{
    AttentionSaved, AttentionShape, Rows, RowsMut, attention, attention_grad, attention_grad_workspace,
};
use remat_kernels::conv::{
    ConvShape, conv, conv_grad_input, conv_grad_input_workspace, conv_grad_weight,
    conv_grad_weight_workspace, conv_workspace,
};
use remat_kernels::dropout::dropout;
use remat_kernels::elementwise::add;
use remat_kernels::linear::{LinearShape, linear, linear_grad_input, linear_grad_weight};
use remat_kernels::loss::{cross_entropy, cross_entropy_grad};
use remat_kernels::optimizer::{Adam, Update, adam};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::rng::Key;
use remat_kernels::{batch_norm, layer_norm, rms_norm, softmax};

/// Time spent on one line, and the runs that are made at least.
const TIME_PER_LINE: Duration = Duration::from_millis(400);
const MIN_RUNS: usize = 5;
/// Elements of a streamed tensor: 32 MiB, well beyond the caches of a core.
const STREAM: usize = 1 << 23;
/// Channels and columns of the streamed matrices.
const COLUMNS: usize = 512;

fn main() {
    let mut threads = 1;
    let mut words = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--threads" {
            threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| {
                eprintln!("--threads needs a number");
                std::process::exit(2);
            });
        } else {
            words.push(argument);
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    match pool {
        Ok(pool) => pool.install(|| Bench::new(words).run()),
        Err(error) => {
            eprintln!("no pool of {threads} threads: {error}");
            std::process::exit(2);
        }
    }
}

/// oneDNN 3 on NHWC images, batch 4, on one core with a peak of 102.8 GFLOP/s: GFLOP/s of forward, backward-data and
/// backward-weights, by the name of the shape.
const ONEDNN: [(&str, [f64; 3]); 4] = [
    ("conv 3x3/1 64->64 56^2", [98.0, 97.0, 54.0]),
    ("conv 3x3/1 128->128 28^2", [104.0, 102.0, 66.0]),
    ("conv 3x3/1 256->256 14^2", [102.0, 100.0, 68.0]),
    ("conv 1x1/1 1024->256 14^2", [96.0, 98.0, 66.0]),
];

struct Bench {
    words: Vec<String>,
}

impl Bench {
    fn new(words: Vec<String>) -> Bench {
        println!("{} threads; kernel and limit measured alternately", rayon::current_num_threads());
        Bench { words }
    }

    fn run(&self) {
        let conv_shapes = [
            (64, 64, 56, 3, 1),
            (128, 128, 28, 3, 1),
            (256, 256, 14, 3, 1),
            (512, 512, 7, 3, 1),
            (1024, 256, 14, 1, 1),
            (256, 64, 56, 1, 1),
            (64, 256, 56, 1, 1),
            (128, 128, 56, 3, 2),
            (256, 512, 56, 1, 2),
            (3, 64, 224, 7, 2),
        ];
        for (c, o, size, kernel, stride) in conv_shapes {
            self.conv(c, o, size, kernel, stride);
        }
        let linear_shapes = [(1024, 1024, 1024), (2048, 512, 2048), (2048, 2048, 512), (2048, 512, 30_000)];
        for (rows, inputs, outputs) in linear_shapes {
            self.linear(LinearShape { rows, inputs, outputs });
        }
        self.attention(1024, 8, 64);
        self.streams();
    }

    fn conv(&self, c: usize, o: usize, size: usize, kernel: usize, stride: usize) {
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
        };
        let name = format!("conv {kernel}x{kernel}/{stride} {c}->{o} {size}^2");
        let positions = shape.n * shape.out_h() * shape.out_w();
        let flops = 2.0 * (positions * o * shape.patch_len()) as f64;
        let (x, weight) = (values(shape.n * size * size * c), values(o * shape.patch_len()));
        let dy = values(positions * o);

        let onednn = ONEDNN.iter().find(|(shape, _)| *shape == name).map(|&(_, speeds)| speeds);
        let reference = |direction: usize| onednn.map(|speeds| speeds[direction]);
        let (mut y, mut space) = (values(dy.len()), values(conv_workspace(&shape)));
        self.compared_product(&format!("{name} forward"), flops, reference(0), || {
            conv(&shape, &x, &weight, None, &mut y, &mut space);
        });
        let (mut dx, mut space) = (values(x.len()), values(conv_grad_input_workspace(&shape)));
        self.compared_product(&format!("{name} backward-data"), flops, reference(1), || {
            conv_grad_input(&shape, &dy, &weight, &mut dx, &mut space);
        });
        let (mut dweight, mut space) = (values(weight.len()), values(conv_grad_weight_workspace(&shape)));
        self.compared_product(&format!("{name} backward-weights"), flops, reference(2), || {
            conv_grad_weight(&shape, &dy, &x, &mut dweight, &mut space);
        });
    }

    fn linear(&self, shape: LinearShape) {
        let LinearShape { rows, inputs, outputs } = shape;
        let name = format!("linear {rows}x{inputs}->{outputs}");
        let flops = 2.0 * (rows * inputs * outputs) as f64;
        let (x, weight, dy) = (values(rows * inputs), values(outputs * inputs), values(rows * outputs));
        let mut y = values(dy.len());
        self.product(&format!("{name} forward"), flops, || linear(shape, &x, &weight, None, &mut y));
        let mut dx = values(x.len());
        self.product(&format!("{name} backward-data"), flops, || {
            linear_grad_input(shape, &dy, &weight, &mut dx);
        });
        let mut dweight = values(weight.len());
        self.product(&format!("{name} backward-weights"), flops, || {
            linear_grad_weight(shape, &dy, &x, &mut dweight);
        });
    }

    /// Causal attention over a packed projection; half of the products of the full matrix are counted.
    fn attention(&self, tokens: usize, heads: usize, head_dim: usize) {
        let shape = AttentionShape {
            batch: 1,
            heads,
            queries: tokens,
            keys: tokens,
            head_dim,
            causal: true,
            scale: 1.0 / (head_dim as f32).sqrt(),
            dropout: None,
        };
        let width = heads * head_dim;
        let name = format!("attention {tokens}x{heads}x{head_dim}");
        let product = (tokens * tokens * width) as f64;
        let packed = values(tokens * 3 * width);
        let [q, k, v] = [0, 1, 2].map(|part| Rows::new(&packed, 3 * width, part * width));
        let (mut out, mut lse) = (values(tokens * width), values(heads * tokens));
        self.product(&format!("{name} forward"), 2.0 * product, || {
            attention(&shape, q, k, v, RowsMut::new(&mut out, width), &mut lse);
        });
        let (dout, mut grads) = (values(tokens * width), values(tokens * 3 * width));
        let mut space = values(attention_grad_workspace(&shape));
        self.product(&format!("{name} backward"), 5.0 * product, || {
            let saved = AttentionSaved { q, k, v, out: Rows::new(&out, width, 0), lse: &lse };
            let [dq, dk, dv] = RowsMut::packed(&mut grads, width);
            attention_grad(&shape, &saved, Rows::new(&dout, width, 0), dq, dk, dv, &mut space);
        });
    }

    /// Kernels that stream memory; the number behind the name is how many tensors each reads and writes.
    fn streams(&self) {
        let rows = STREAM / COLUMNS;
        let (x, dy) = (values(STREAM), values(STREAM));
        let mut y = values(STREAM);
        let (weight, bias) = (values(COLUMNS), values(COLUMNS));
        let (mut dweight, mut dbias) = (values(COLUMNS), values(COLUMNS));
        self.stream("relu", 2, || relu(Src::from(&x[..]), Dst::from(&mut y[..])));
        self.stream("relu_grad", 3, || {
            relu_grad(Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
        });
        self.stream("add", 3, || add(Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..])));
        self.stream("gelu", 2, || gelu(Src::from(&x[..]), Dst::from(&mut y[..])));
        self.stream("gelu_grad", 3, || {
            gelu_grad(Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
        });
        self.stream("silu", 2, || silu(Src::from(&x[..]), Dst::from(&mut y[..])));
        self.stream("silu_grad", 3, || {
            silu_grad(Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
        });
        self.stream("dropout", 2, || {
            dropout(Src::from(&x[..]), 0.1, Key::new(1, 2, 3), Dst::from(&mut y[..]));
        });
        self.stream("softmax", 2, || softmax::forward(Src::from(&x[..]), COLUMNS, Dst::from(&mut y[..])));
        self.stream("softmax_grad", 3, || {
            softmax::grad(Src::from(&x[..]), Src::from(&dy[..]), COLUMNS, Dst::from(&mut y[..]));
        });

        let labels: Vec<i32> = (0..rows).map(|row| (row % COLUMNS) as i32).collect();
        let mut lse = values(rows);
        self.stream("cross_entropy", 1, || {
            std::hint::black_box(cross_entropy(&x, &labels, &mut lse));
        });
        self.stream("cross_entropy_grad", 2, || {
            cross_entropy_grad(Src::from(&x[..]), &labels, &lse, 1.0, Dst::from(&mut y[..]));
        });

        let (mut mean, mut rstd) = (values(rows), values(rows));
        self.stream("layer_norm", 2, || {
            let y = Dst::from(&mut y[..]);
            layer_norm::forward(Src::from(&x[..]), &weight, &bias, 1e-5, y, &mut mean, &mut rstd);
        });
        let mut space = values(layer_norm::grad_workspace(rows, COLUMNS));
        self.stream("layer_norm grad", 3, || {
            let (x, dy, dx) = (Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
            layer_norm::grad(x, dy, &weight, &mean, &rstd, dx, &mut dweight, &mut dbias, &mut space);
        });

        self.stream("rms_norm", 2, || {
            rms_norm::forward(Src::from(&x[..]), &weight, 1e-5, Dst::from(&mut y[..]), &mut rstd);
        });
        self.stream("rms_norm grad", 3, || {
            let (x, dy, dx) = (Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
            rms_norm::grad(x, dy, &weight, &rstd, dx, &mut dweight, &mut space);
        });

        let (mut mean, mut var) = (values(COLUMNS), values(COLUMNS));
        let mut space = values(batch_norm::workspace(rows, COLUMNS));
        self.stream("batch_norm stats", 1, || {
            batch_norm::stats(Src::from(&x[..]), &mut mean, &mut var, &mut space);
        });
        self.stream("batch_norm apply", 2, || {
            let y = Dst::from(&mut y[..]);
            batch_norm::apply(Src::from(&x[..]), &mean, &var, &weight, &bias, 1e-5, y);
        });
        self.stream("batch_norm grad (two passes)", 5, || {
            let (x, dy, dx) = (Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
            let (dweight, dbias) = (&mut dweight, &mut dbias);
            batch_norm::grad(x, dy, &mean, &var, &weight, 1e-5, dx, dweight, dbias, &mut space);
        });

        let (mut param, mut first, mut second) = (values(STREAM), values(STREAM), vec![0.1; STREAM]);
        let config = Adam {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            gradient_scale: 1.0,
        };
        self.stream("adam", 7, || {
            adam(&config, 1, Src::from(&dy[..]), own(&mut param), own(&mut first), own(&mut second));
        });
    }

    fn product(&self, name: &str, flops: f64, task: impl FnMut()) {
        self.compared_product(name, flops, None, task);
    }

    fn compared_product(&self, name: &str, flops: f64, onednn: Option<f64>, mut task: impl FnMut()) {
        if !self.is_wanted(name) {
            return;
        }
        let (time, peak_time) = best_times(&mut task, &mut run_chains);
        let (speed, peak) = (flops / time / 1e9, chain_flops() / peak_time / 1e9);
        let onednn = onednn.map_or(String::new(), |speed| format!("   oneDNN {speed:.0} GFLOP/s"));
        println!("{name:<46} {speed:>7.1} GFLOP/s {:>5.0} % of peak {peak:.1}{onednn}", 100.0 * speed / peak);
    }

    fn stream(&self, name: &str, tensors: usize, mut task: impl FnMut()) {
        if !self.is_wanted(name) {
            return;
        }
        let (from, mut to) = (values(STREAM), values(STREAM));
        let (time, copy_time) = best_times(&mut task, &mut || copy(&from, &mut to));
        let speed = |tensors: usize, time: f64| (4 * STREAM * tensors) as f64 / time / 1e9;
        let (speed, limit) = (speed(tensors, time), speed(2, copy_time));
        println!("{name:<46} {speed:>7.1} GB/s    {:>5.0} % of copy {limit:.1}", 100.0 * speed / limit);
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.words.iter().all(|word| name.contains(word.as_str()))
    }
}

/// An update in the parameter's own storage.
fn own(tensor: &mut [f32]) -> Update<'_> {
    let (pointer, len) = (tensor.as_mut_ptr(), tensor.len());
    // SAFETY: the exclusive borrow lasts as long as the update, which alone touches the memory.
    unsafe { Update { old: Src::from_raw(pointer, len), new: Dst::from_raw(pointer, len) } }
}

/// Values without a pattern that a kernel could profit from.
fn values(len: usize) -> Vec<f32> {
    let mix = |i: usize| (i as u32).wrapping_mul(0x9E37_79B9) >> 8;
    (0..len).map(|i| mix(i) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Seconds of the fastest run of a kernel and of the fastest run of its limit, which take turns.
fn best_times(task: &mut impl FnMut(), limit: &mut impl FnMut()) -> (f64, f64) {
    let (start, mut best, mut runs) = (Instant::now(), (f64::INFINITY, f64::INFINITY), 0);
    while runs < MIN_RUNS || start.elapsed() < TIME_PER_LINE {
        best = (best.0.min(seconds(task)), best.1.min(seconds(limit)));
        runs += 1;
    }
    best
}

fn seconds(task: &mut impl FnMut()) -> f64 {
    let alone = rayon::current_num_threads() == 1;
    let (wall, thread) = (Instant::now(), if alone { thread_time() } else { None });
    task();
    match thread.zip(thread_time()) {
        Some((before, after)) => after - before,
        None => wall.elapsed().as_secs_f64(),
    }
}

/// Seconds that this thread has spent on a processor.
#[cfg(target_os = "linux")]
fn thread_time() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the timespec it is given.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (status == 0).then_some(time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64)
}

#[cfg(not(target_os = "linux"))]
fn thread_time() -> Option<f64> {
    None
}

fn copy(from: &[f32], to: &mut [f32]) {
    let chunk = STREAM / rayon::current_num_threads();
    to.par_chunks_mut(chunk).zip(from.par_chunks(chunk)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Multiply-adds per measurement of the peak and thread; independent chains that hide the latency.
const PEAK_STEPS: usize = 1 << 17;
const CHAINS: usize = 12;
const LANES: usize = 8;

/// Multiply-adds (which count as two) of [`run_chains`].
fn chain_flops() -> f64 {
    (2 * PEAK_STEPS * CHAINS * LANES * rayon::current_num_threads()) as f64
}

fn run_chains() {
    (0..rayon::current_num_threads()).into_par_iter().for_each(|_| {
        std::hint::black_box(multiply_add_chains(std::hint::black_box(0.5)));
    });
}

fn multiply_add_chains(factor: f32) -> f32 {
    #[inline(always)]
    fn body(factor: f32, multiply_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
        let mut sums = [[1.0f32; LANES]; CHAINS];
        for _ in 0..PEAK_STEPS {
            for sum in sums.as_flattened_mut() {
                *sum = multiply_add(*sum, factor, factor);
            }
        }
        sums.as_flattened().iter().sum()
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2(factor: f32) -> f32 {
            body(factor, f32::mul_add)
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has AVX2 and FMA, as just detected.
            return unsafe { avx2(factor) };
        }
    }
    body(factor, |sum, a, b| sum * a + b)
}
