//! Initial values of parameters and buffers.
//!
//! An element is a function of the seed, the source's name and the element's position, so values do not depend on the
//! order in which sources are filled, on the other parameters of the model, or on the number of threads.

use crate::graph::{Init, Source};
use rayon::prelude::*;
use remat_kernels::rng::{self, Key};

/// Elements per task; large enough to hide the cost of handing it out.
const CHUNK: usize = 1 << 14;

/// Fills a source's elements before the first step. Tensors of the batch are the host's to fill and are left alone.
pub fn fill(source: &Source, seed: u64, out: &mut [f32]) {
    fill_from(source, seed, 0, out);
}

/// As [`fill`], for the elements from number `first` on.
pub fn fill_from(source: &Source, seed: u64, first: usize, out: &mut [f32]) {
    // Steps count from 1, so step 0 keeps these streams apart from the streams of dropout.
    let key = Key::new(seed, 0, name_hash(&source.name));
    match source.init {
        Init::Constant(value) => out.fill(value),
        Init::Uniform(bound) => draw(first, out, |i| (2.0 * rng::uniform_f32(key, i) - 1.0) * bound),
        Init::Normal(deviation) => draw(first, out, |i| rng::normal_f32(key, i) * deviation),
        Init::Batch | Init::Indices(_) | Init::Labels(_) => {}
    }
}

fn draw(first: usize, out: &mut [f32], element: impl Fn(u64) -> f32 + Sync) {
    out.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, out)| {
        for (i, x) in out.iter_mut().enumerate() {
            *x = element((first + chunk * CHUNK + i) as u64);
        }
    });
}

/// The stream of a name: its 64-bit FNV-1a hash, stable across versions and platforms unlike the standard library's.
pub fn name_hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::FileLayout;
    use crate::ids::{Id, ValueId};

    fn filled(name: &str, init: Init, seed: u64, n: usize) -> Vec<f32> {
        let source =
            Source { value: ValueId::new(0), name: name.to_owned(), init, file_layout: FileLayout::Same };
        let mut out = vec![f32::NAN; n];
        fill(&source, seed, &mut out);
        out
    }

    fn mean(x: &[f32], f: impl Fn(f64) -> f64) -> f64 {
        x.iter().map(|&x| f(f64::from(x))).sum::<f64>() / x.len() as f64
    }

    #[test]
    fn distributions_have_the_stated_moments_and_bounds() {
        let n = 200_000;
        let normal = filled("w", Init::Normal(0.5), 1, n);
        assert!(mean(&normal, |x| x).abs() < 0.005 && (mean(&normal, |x| x * x) - 0.25).abs() < 0.005);
        let uniform = filled("w", Init::Uniform(0.5), 1, n);
        assert!(uniform.iter().all(|x| (-0.5..0.5).contains(x)));
        assert!(
            mean(&uniform, |x| x).abs() < 0.005 && (mean(&uniform, |x| x * x) - 0.25 / 3.0).abs() < 0.002
        );
        assert_eq!(filled("w", Init::Constant(2.0), 1, 3), [2.0; 3]);
    }

    #[test]
    fn values_depend_on_name_seed_and_position_only() {
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let w = bits(filled("w", Init::Normal(1.0), 7, 3 * CHUNK + 5));
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(w, bits(alone.install(|| filled("w", Init::Normal(1.0), 7, 3 * CHUNK + 5))));
        assert_eq!(w[..10], bits(filled("w", Init::Normal(1.0), 7, 10)));
        assert_ne!(w[..10], bits(filled("v", Init::Normal(1.0), 7, 10)));
        assert_ne!(w[..10], bits(filled("w", Init::Normal(1.0), 8, 10)));
    }
}
