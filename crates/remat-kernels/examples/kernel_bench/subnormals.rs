//! What subnormal numbers cost: kernels on ordinary numbers beside the same kernels on numbers so far apart, or so small,
//! that subnormal ones would appear.

use crate::Bench;
use crate::measure::best_times;
use crate::memory::Memory;
use crate::products::causal;
use crate::streams::{ADAM, own};
use remat_kernels::attention::{
    AttentionSaved, AttentionShape, Rows, RowsMut, attention, attention_grad, attention_grad_workspace,
};
use remat_kernels::linear::LinearShape;
use remat_kernels::linear_cross_entropy::{
    Classifier, ClassifierGrad, linear_cross_entropy_with_grad, linear_cross_entropy_workspace,
};
use remat_kernels::optimizer::adam;
use remat_kernels::raw::Src;
use remat_kernels::rng::{Key, normal_f32};

/// Scores of deviation 1 and of deviation 60, most of whose exponentials are below the least normal number.
const ORDINARY: f32 = 1.0;
const EXTREME: f32 = 60.0;

impl Bench {
    pub(crate) fn subnormals(&self) {
        self.classifier();
        self.extreme_attention();
        self.decaying_moments();
    }

    /// The time of a kernel on ordinary numbers beside that on extreme ones.
    fn beside_ordinary(&self, name: &str, mut ordinary: impl FnMut(), mut extreme: impl FnMut()) {
        let (extreme, ordinary) = best_times(&mut extreme, &mut ordinary, || ());
        let ratio = extreme / ordinary;
        println!("{name:<46} {:>7.2} ms      {ratio:>5.2} of {:.2} ms", 1e3 * extreme, 1e3 * ordinary);
    }

    fn classifier(&self) {
        let name = "extreme logits, classifier 256x256->8192";
        if !self.is_wanted(name) {
            return;
        }
        let shape = LinearShape { rows: 256, inputs: 256, outputs: 8192 };
        let (input, weights) = (shape.rows * shape.inputs, shape.outputs * shape.inputs);
        let lens = [input, weights, input, weights, shape.rows, linear_cross_entropy_workspace(shape)];
        let labels: Vec<i32> = (0..shape.rows as i32).collect();
        let mut memories = [ORDINARY, EXTREME].map(|size| (size, Memory::of(&lens)));
        let [mut ordinary, mut extreme] = memories.each_mut().map(|(size, memory)| {
            let [x, weight, dx, dweight, lse, space] = memory.tensors(lens);
            fill_normal(x, 1.0);
            fill_normal(weight, *size / (shape.inputs as f32).sqrt());
            let labels = &labels;
            move || {
                let classifier = Classifier { shape, weight, bias: None };
                let grad = ClassifierGrad { dx, dweight, dbias: None };
                let loss = linear_cross_entropy_with_grad(&classifier, x, labels, lse, 1.0, grad, space);
                std::hint::black_box(loss);
            }
        });
        self.beside_ordinary(name, &mut ordinary, &mut extreme);
    }

    fn extreme_attention(&self) {
        let name = "extreme scores, attention 512x4x64";
        if !self.is_wanted(name) {
            return;
        }
        let (tokens, heads, head_dim) = (512, 4, 64);
        let shape = causal(tokens, heads, head_dim);
        let width = heads * head_dim;
        let single = tokens * width;
        let lens = [3 * single, single, heads * tokens, single, 3 * single, attention_grad_workspace(&shape)];
        let mut memories = [ORDINARY, EXTREME].map(|size| (size, Memory::of(&lens)));
        let [mut ordinary, mut extreme] = memories.each_mut().map(|(size, memory)| {
            let [packed, out, lse, dout, grads, space] = memory.tensors(lens);
            fill_normal(packed, 1.0);
            let shape = AttentionShape { scale: *size * shape.scale, ..shape };
            move || {
                let [q, k, v] = [0, 1, 2].map(|part| Rows::new(packed, 3 * width, part * width));
                attention(&shape, q, k, v, RowsMut::new(out, width), lse);
                let saved = AttentionSaved { q, k, v, out: Rows::new(out, width, 0), lse };
                let [dq, dk, dv] = RowsMut::packed(grads, width);
                attention_grad(&shape, &saved, Rows::new(dout, width, 0), dq, dk, dv, space);
            }
        });
        self.beside_ordinary(name, &mut ordinary, &mut extreme);
    }

    /// Moments of parameters that have had no gradient for long.
    fn decaying_moments(&self) {
        let lens = [1 << 22; 4];
        // Gradients and moments: the last moments are the least numbers, which round to themselves; the squares of the
        // last gradients are subnormal.
        for (name, gradient, moment) in [
            ("moments at the least number, adam", 0.0, f32::from_bits(1)),
            ("squares of gradients subnormal, adam", 1e-20, 0.0),
        ] {
            if !self.is_wanted(name) {
                continue;
            }
            let mut memories = [(1.0, 1.0), (gradient, moment)].map(|sizes| (sizes, Memory::of(&lens)));
            let [mut ordinary, mut extreme] = memories.each_mut().map(|((gradient, moment), memory)| {
                let [grad, param, first, second] = memory.tensors(lens);
                grad.iter_mut().for_each(|grad| *grad *= *gradient);
                first.fill(*moment);
                second.fill(*moment);
                move || adam(&ADAM, 1000, Src::from(&*grad), own(param), own(first), own(second))
            });
            self.beside_ordinary(name, &mut ordinary, &mut extreme);
        }
    }
}

fn fill_normal(tensor: &mut [f32], deviation: f32) {
    let key = Key::new(1, tensor.len() as u64, 0);
    for (index, value) in (0..).zip(tensor) {
        *value = deviation * normal_f32(key, index);
    }
}
