//! How fast the kernels are, against what the machine can do.
//!
//! In: optionally `--threads N` (default 1), `--cold`, and words that select lines by name. Out: one line per kernel and shape.
//! Products are given in GFLOP/s and as a share of the fused-multiply-add peak of the threads; kernels that only
//! stream memory in GB/s and as a share of the bandwidth of a copy. Bytes are counted for one perfect pass: what must be
//! read and written at least once (twice for batch norm's gradient, which needs its sums before its first output). The last
//! lines compare kernels on extreme numbers with the same kernels on ordinary ones.
//!
//! `REMAT_ISA` chooses the instruction set, and the peak is that of its vectors; the first lines give the peaks of all sets.
//! Kernel and limit run alternately, and every figure is the best of many short runs: the kernels do the same work each
//! time, so a slower run tells about the rest of the machine. With one thread on Linux the clock counts only the time
//! that the thread had the processor, so that other programs disturb little. Tensors lie in large pages. With `--cold` other
//! memory is read before each run of a product, so that no cache has its operands, as in a training step.

mod measure;
mod memory;
mod products;
mod streams;
mod subnormals;

use measure::{best_times, chain_flops, copy, read, run_chains};
use remat_kernels::isa::{self, Isa};

/// Elements (256 MiB) that no cache has room for.
const MORE_THAN_CACHES: usize = 1 << 26;

fn main() {
    let mut threads = 1;
    let mut others = Vec::new();
    let mut words = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--threads" {
            threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| {
                eprintln!("--threads needs a number");
                std::process::exit(2);
            });
        } else if argument == "--cold" {
            others = vec![1.0; MORE_THAN_CACHES];
        } else {
            words.push(argument);
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    match pool {
        Ok(pool) => pool.install(|| {
            println!("{threads} threads, {}; kernel and limit measured alternately", isa::current().name());
            for isa in Isa::available().filter(|isa| [Isa::Avx2, Isa::Avx512].contains(isa)) {
                let (time, _) = best_times(&mut || run_chains(isa), &mut || (), || ());
                println!("peak of {}: {:.1} GFLOP/s", isa.name(), chain_flops(isa) / time / 1e9);
            }
            let bench = Bench { words, others };
            bench.products();
            bench.streams();
            bench.subnormals();
        }),
        Err(error) => {
            eprintln!("no pool of {threads} threads: {error}");
            std::process::exit(2);
        }
    }
}

struct Bench {
    /// Lines are wanted whose name has all of them.
    words: Vec<String>,
    /// What is read before each run of a product, if anything.
    others: Vec<f32>,
}

impl Bench {
    /// Measures a product next to the peak.
    fn product(&self, name: &str, flops: f64, onednn: Option<f64>, mut task: impl FnMut()) {
        if !self.is_wanted(name) {
            return;
        }
        let isa = isa::current();
        let (time, peak_time) = best_times(&mut task, &mut || run_chains(isa), || read(&self.others));
        let (speed, peak) = (flops / time / 1e9, chain_flops(isa) / peak_time / 1e9);
        let onednn = onednn.map_or(String::new(), |speed| format!("   oneDNN {speed:.0} GFLOP/s"));
        println!("{name:<46} {speed:>7.1} GFLOP/s {:>5.0} % of peak {peak:.1}{onednn}", 100.0 * speed / peak);
    }

    /// Measures a kernel that reads and writes so many tensors of `elements`, next to a copy of one such tensor.
    fn stream(&self, name: &str, elements: usize, tensors: usize, mut task: impl FnMut()) {
        if !self.is_wanted(name) {
            return;
        }
        let mut memory = memory::Memory::of(&[elements; 2]);
        let [from, to] = memory.tensors([elements; 2]);
        let (time, copy_time) = best_times(&mut task, &mut || copy(from, to), || ());
        let speed = |tensors: usize, time: f64| (4 * elements * tensors) as f64 / time / 1e9;
        let (speed, limit) = (speed(tensors, time), speed(2, copy_time));
        println!("{name:<46} {speed:>7.1} GB/s    {:>5.0} % of copy {limit:.1}", 100.0 * speed / limit);
    }

    /// Whether any line of a shape is wanted; filling the tensors of the others takes longer than measuring.
    fn wants_any(&self, name: &str, directions: &[&str]) -> bool {
        directions.iter().any(|direction| self.is_wanted(&format!("{name} {direction}")))
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.words.iter().all(|word| name.contains(word.as_str()))
    }
}
