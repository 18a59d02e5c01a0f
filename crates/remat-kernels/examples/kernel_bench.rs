//! Speed of the kernels against what the machine can do, measured in the same run.
//!
//! In: optionally `--threads N` (default 1) and words that select lines by name. Out: one line per kernel and shape.
//! Products are given in GFLOP/s and as a share of the fused-multiply-add peak of the threads; kernels that only
//! stream memory in GB/s and as a share of the bandwidth of a copy. Every figure is the best of many short runs: the
//! kernels do the same work each time, so a slower run tells about the rest of the machine. With one thread on Linux
//! the clock counts only the time that the thread had the processor, so that other programs disturb little.

use std::time::{Duration, Instant};

use rayon::prelude::*;
use remat_kernels::activation::{gelu, gelu_grad, relu, relu_grad};
use remat_kernels::conv::{
    ConvShape, conv, conv_grad_input, conv_grad_input_workspace, conv_grad_weight,
    conv_grad_weight_workspace, conv_workspace,
};
use remat_kernels::dropout::dropout;
use remat_kernels::elementwise::add;
use remat_kernels::linear::{LinearShape, linear, linear_grad_input, linear_grad_weight};
use remat_kernels::optimizer::{Adam, Update, adam};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::rng::Key;
use remat_kernels::{batch_norm, layer_norm, softmax};

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

struct Bench {
    words: Vec<String>,
    /// Multiply-adds count as two.
    peak_gflops: f64,
    /// Bytes read plus bytes written.
    copy_gbytes: f64,
}

impl Bench {
    fn new(words: Vec<String>) -> Bench {
        let (peak_gflops, copy_gbytes) = (fma_peak(), copy_bandwidth());
        println!(
            "{} threads: peak {peak_gflops:.1} GFLOP/s, copy {copy_gbytes:.1} GB/s",
            rayon::current_num_threads()
        );
        Bench { words, peak_gflops, copy_gbytes }
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
        for (rows, inputs, outputs) in [(1024, 1024, 1024), (2048, 512, 2048), (2048, 2048, 512)] {
            self.linear(LinearShape { rows, inputs, outputs });
        }
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

        let (mut y, mut space) = (values(dy.len()), values(conv_workspace(&shape)));
        self.product(&format!("{name} forward"), flops, || {
            conv(&shape, &x, &weight, None, &mut y, &mut space);
        });
        let (mut dx, mut space) = (values(x.len()), values(conv_grad_input_workspace(&shape)));
        self.product(&format!("{name} backward-data"), flops, || {
            conv_grad_input(&shape, &dy, &weight, &mut dx, &mut space);
        });
        let (mut dweight, mut space) = (values(weight.len()), values(conv_grad_weight_workspace(&shape)));
        self.product(&format!("{name} backward-weights"), flops, || {
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
        self.stream("dropout", 2, || {
            dropout(Src::from(&x[..]), 0.1, Key::new(1, 2, 3), Dst::from(&mut y[..]));
        });
        self.stream("softmax", 2, || softmax::forward(Src::from(&x[..]), COLUMNS, Dst::from(&mut y[..])));
        self.stream("softmax_grad", 3, || {
            softmax::grad(Src::from(&x[..]), Src::from(&dy[..]), COLUMNS, Dst::from(&mut y[..]));
        });

        let (mut mean, mut rstd) = (values(rows), values(rows));
        self.stream("layer_norm", 2, || {
            let y = Dst::from(&mut y[..]);
            layer_norm::forward(Src::from(&x[..]), &weight, &bias, 1e-5, y, &mut mean, &mut rstd);
        });
        let mut space = values(layer_norm::grad_workspace(rows, COLUMNS));
        self.stream("layer_norm grad (two passes)", 5, || {
            let (x, dy, dx) = (Src::from(&x[..]), Src::from(&dy[..]), Dst::from(&mut y[..]));
            layer_norm::grad(x, dy, &weight, &mean, &rstd, dx, &mut dweight, &mut dbias, &mut space);
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
        let config =
            Adam { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        self.stream("adam", 7, || {
            adam(&config, 1, Src::from(&dy[..]), own(&mut param), own(&mut first), own(&mut second));
        });
    }

    fn product(&self, name: &str, flops: f64, mut task: impl FnMut()) {
        if self.is_wanted(name) {
            let speed = flops / best_time(&mut task) / 1e9;
            println!("{name:<46} {speed:>7.1} GFLOP/s {:>5.0} % of peak", 100.0 * speed / self.peak_gflops);
        }
    }

    fn stream(&self, name: &str, tensors: usize, mut task: impl FnMut()) {
        if self.is_wanted(name) {
            let speed = (4 * STREAM * tensors) as f64 / best_time(&mut task) / 1e9;
            println!("{name:<46} {speed:>7.1} GB/s    {:>5.0} % of copy", 100.0 * speed / self.copy_gbytes);
        }
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

/// Seconds of the fastest run.
fn best_time(task: &mut impl FnMut()) -> f64 {
    let (start, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    let processor_time = (rayon::current_num_threads() == 1).then(thread_time).flatten().is_some();
    while runs < MIN_RUNS || start.elapsed() < TIME_PER_LINE {
        let (wall, thread) = (Instant::now(), if processor_time { thread_time() } else { None });
        task();
        let time = match thread.zip(thread_time()) {
            Some((before, after)) => after - before,
            None => wall.elapsed().as_secs_f64(),
        };
        best = best.min(time);
        runs += 1;
    }
    best
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

fn copy_bandwidth() -> f64 {
    let x = values(STREAM);
    let mut y = values(STREAM);
    let time = best_time(&mut || {
        let chunk = STREAM / rayon::current_num_threads();
        y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| y.copy_from_slice(x));
    });
    (8 * STREAM) as f64 / time / 1e9
}

/// Multiply-adds per measurement of the peak and thread; independent chains that hide the latency.
const PEAK_STEPS: usize = 1 << 20;
const CHAINS: usize = 12;
const LANES: usize = 8;

fn fma_peak() -> f64 {
    let threads = rayon::current_num_threads();
    let time = best_time(&mut || {
        (0..threads).into_par_iter().for_each(|_| {
            std::hint::black_box(multiply_add_chains(std::hint::black_box(0.5)));
        });
    });
    (2 * PEAK_STEPS * CHAINS * LANES * threads) as f64 / time / 1e9
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
