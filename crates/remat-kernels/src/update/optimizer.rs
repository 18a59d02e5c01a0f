//! Optimizer updates: stochastic gradient descent with momentum, Adam and AdamW, with PyTorch's formulas.
//!
//! In: a parameter, its gradient, the optimizer's state. Out: the new parameter and state, normally in the storage of
//! the old ones. Hyperparameters are `f64` and combined in `f64` before they meet the `f32` data, as PyTorch does.
//! Time O(n), no workspace.
//!
//! Where gradients are zero, as in the rows of tokens that do not occur, moments shrink from step to step and would end as
//! subnormal numbers, which never reach zero because they round to themselves, and on many processors take ten times as long
//! to compute with: there they become zero.

use std::ops::Range;

use crate::base::math::zero_below;
use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::simd::wide;
use crate::loops::map::{BLOCK, map, read_block};

pub use crate::settings::optimizer::{Adam, Sgd};

/// An `eps` of Adam beside which the root of the least normal number (1e-19) is nothing.
const LARGE_EPS: f32 = 1e-12;

/// A tensor that an update replaces; `new` may be the storage of `old`.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    /// The value before the step.
    pub old: Src<'a>,
    /// The value after the step.
    pub new: Dst<'a>,
}

impl Update<'_> {
    /// Leaves the tensor as it is: nothing to do in place, else a copy. For steps that only collect gradients.
    pub fn keep(&self) {
        if !std::ptr::eq(self.old.address(), self.new.address()) {
            map([self.old], self.new, |[old]: [f32; 1]| old);
        }
    }
}

/// One step of gradient descent without momentum: `p' = p - lr (g + weight_decay p)`.
pub fn sgd(config: &Sgd, grad: Src<'_>, param: Update<'_>) {
    let (lr, weight_decay, scale) = (config.lr as f32, config.weight_decay as f32, config.gradient_scale);
    update(grad, [param], move |g, [p]| [p - lr * (scale * g + weight_decay * p)]);
}

/// One step with momentum: `v' = momentum v + g`, `p' = p - lr v'`, or `p - lr (g + momentum v')` with Nesterov.
///
/// The velocity starts at zero, so the first one is the gradient.
pub fn sgd_momentum(config: &Sgd, grad: Src<'_>, param: Update<'_>, velocity: Update<'_>) {
    let Sgd { lr, momentum, weight_decay, nesterov, gradient_scale } = *config;
    let (lr, momentum, weight_decay) = (lr as f32, momentum as f32, weight_decay as f32);
    update(grad, [param, velocity], move |g, [p, v]| {
        let g = gradient_scale * g + weight_decay * p;
        let v = zero_below(f32::MIN_POSITIVE, momentum * v + g);
        let direction = if nesterov { g + momentum * v } else { v };
        [p - lr * direction, v]
    });
}

/// One step of Adam or AdamW; `step` counts from 1.
pub fn adam(
    config: &Adam,
    step: u64,
    grad: Src<'_>,
    param: Update<'_>,
    first: Update<'_>,
    second: Update<'_>,
) {
    let Adam { lr, beta1, beta2, eps, weight_decay, decoupled, gradient_scale } = *config;
    let correction1 = 1.0 - libm::pow(beta1, step as f64);
    let correction2 = 1.0 - libm::pow(beta2, step as f64);
    let step_size = (lr / correction1) as f32;
    let correction2_sqrt = correction2.sqrt() as f32;
    let shrink = if decoupled { (1.0 - lr * weight_decay) as f32 } else { 1.0 };
    let coupled = if decoupled { 0.0 } else { weight_decay as f32 };
    let (gain1, beta2, gain2, eps) = ((1.0 - beta1) as f32, beta2 as f32, (1.0 - beta2) as f32, eps as f32);
    // The least second moment, and the least gradient that adds as much to one. Where `eps` is so small that the root of a
    // subnormal moment counts beside it, moments stay as they are.
    let (least, least_gradient) =
        if eps > LARGE_EPS { (f32::MIN_POSITIVE, (f32::MIN_POSITIVE / gain2).sqrt()) } else { (0.0, 0.0) };
    update(grad, [param, first, second], move |g, [p, m, v]| {
        let g = gradient_scale * g + coupled * p;
        let m = zero_below(f32::MIN_POSITIVE, m + gain1 * (g - m));
        let g = zero_below(least_gradient, g);
        let v = zero_below(least, beta2 * v + gain2 * (g * g));
        let denominator = v.sqrt() / correction2_sqrt + eps;
        [p * shrink - step_size * (m / denominator), m, v]
    });
}

/// Replaces the elements of `tensors` by `f(gradient, old elements)`.
fn update<const N: usize>(
    grad: Src<'_>,
    tensors: [Update<'_>; N],
    f: impl Fn(f32, [f32; N]) -> [f32; N] + Copy + Send + Sync,
) {
    for tensor in &tensors {
        assert_eq!(
            (tensor.old.len(), tensor.new.len()),
            (grad.len(), grad.len()),
            "all have the same length"
        );
    }
    par::for_each_range(grad.len(), par::ELEMENTS_PER_TASK, |range| update_range(grad, tensors, f, range));
}

wide! {
    fn update_range[const N: usize, F: Fn(f32, [f32; N]) -> [f32; N]](
        grad: Src<'_>,
        tensors: [Update<'_>; N],
        f: F,
        range: Range<usize>,
    ) {
        let mut g = [0.0; BLOCK];
        let mut blocks = [[0.0; BLOCK]; N];
        for at in range.clone().step_by(BLOCK) {
            let width = BLOCK.min(range.end - at);
            read_block(grad, at, &mut g, width);
            for (block, tensor) in blocks.iter_mut().zip(&tensors) {
                read_block(tensor.old, at, block, width);
            }
            // The last block may be short; the arithmetic on stale elements is never written.
            for i in 0..BLOCK {
                let mut old = [0.0; N];
                for (old, block) in old.iter_mut().zip(&blocks) {
                    *old = block[i];
                }
                for (block, new) in blocks.iter_mut().zip(f(g[i], old)) {
                    block[i] = new;
                }
            }
            for (block, tensor) in blocks.iter().zip(&tensors) {
                // SAFETY: tasks get disjoint ranges, and this task has read the block already.
                unsafe { tensor.new.write(at, &block[..width]) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::optimizer as naive;
    use crate::testing::{assert_close, random, same_bits_in_any_pool, wide};

    const N: usize = 20_011;
    const STEPS: u64 = 4;

    /// Three tensors: a parameter and its state; kernels use as many as they need.
    type State = [Vec<f32>; 3];

    fn start() -> State {
        [random(N, 1), vec![0.0; N], vec![0.0; N]]
    }

    fn gradient(step: u64) -> Vec<f32> {
        random(N, 10 + step)
    }

    /// Takes some steps out of place and in place, in several pools, and asserts that nothing changes a bit.
    fn run(kernel: impl Fn(u64, Src<'_>, [Update<'_>; 3]) + Sync) -> State {
        let out_of_place = same_bits_in_any_pool(|| {
            let mut state = start();
            for step in 1..=STEPS {
                let mut next = start();
                let mut new = next.iter_mut().map(|new| Dst::from(&mut new[..]));
                let updates = [0, 1, 2].map(|i| Update {
                    old: Src::from(&state[i][..]),
                    new: new.next().expect("there are three tensors"),
                });
                kernel(step, Src::from(&gradient(step)[..]), updates);
                state = next;
            }
            state.concat()
        });
        let mut state = start();
        for step in 1..=STEPS {
            let mut pointers = state.iter_mut().map(|tensor| tensor.as_mut_ptr());
            let updates = [0, 1, 2].map(|_| {
                let pointer = pointers.next().expect("there are three tensors");
                // SAFETY: the tensor outlives the call, and nothing else touches it during it.
                unsafe { Update { old: Src::from_raw(pointer, N), new: Dst::from_raw(pointer, N) } }
            });
            kernel(step, Src::from(&gradient(step)[..]), updates);
        }
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&out_of_place) == bits(&state.concat()), "working in place changed a bit");
        state
    }

    /// The same steps by the oracle.
    fn run_naive(step: impl Fn(u64, &[f64], &mut [Vec<f64>; 3])) -> [Vec<f64>; 3] {
        let mut state = start().map(|tensor| wide(&tensor));
        (1..=STEPS).for_each(|t| step(t, &wide(&gradient(t)), &mut state));
        state
    }

    #[test]
    fn sgd_agrees_with_the_definition() {
        for (momentum, nesterov, weight_decay) in [(0.0, false, 0.1), (0.9, false, 0.0), (0.9, true, 0.01)] {
            let config = Sgd { lr: 0.1, momentum, weight_decay, nesterov, gradient_scale: 0.5 };
            let got = run(|_, grad, [param, velocity, unused]| {
                unused.keep();
                if momentum == 0.0 {
                    velocity.keep();
                    sgd(&config, grad, param);
                } else {
                    sgd_momentum(&config, grad, param, velocity);
                }
            });
            let want = run_naive(|_, grad, state| naive::sgd(&config, grad, state));
            assert_close(&got[0], &want[0], 1e-6);
            if momentum != 0.0 {
                assert_close(&got[1], &want[1], 1e-6);
            }
        }
    }

    #[test]
    fn moments_without_gradients_end_at_zero() {
        let config = Sgd { lr: 0.1, momentum: 0.5, weight_decay: 0.0, nesterov: false, gradient_scale: 1.0 };
        let (gradient, mut param, mut velocity) = ([0.0; 3], [1.0; 3], [1.0, -1e-30, 1e-40]);
        for _ in 0..140 {
            sgd_momentum(&config, Src::from(&gradient[..]), own(&mut param), own(&mut velocity));
        }
        assert_eq!(velocity, [0.0; 3]);

        // With any usual `eps`; where the root of a subnormal moment counts, it stays.
        for (eps, is_kept) in [(1e-8, false), (1e-15, true)] {
            let config = Adam {
                lr: 0.1,
                beta1: 0.5,
                beta2: 0.5,
                eps,
                weight_decay: 0.0,
                decoupled: false,
                gradient_scale: 1.0,
            };
            let gradient = [0.0, 1e-20, -1e-20];
            let (mut param, mut first, mut second) = ([1.0; 3], [1.0, 0.0, 0.0], [1e-40, 0.0, 0.0]);
            for step in 1..=140 {
                let state = [&mut param, &mut first, &mut second].map(own);
                adam(&config, step, Src::from(&gradient[..]), state[0], state[1], state[2]);
            }
            assert_eq!(first[0], 0.0);
            assert!((first[1] - 1e-20).abs() < 1e-26, "{first:?}");
            assert_eq!(second[1] != 0.0, is_kept, "{second:?}");
            assert!(param.iter().all(|p| p.is_finite()));
        }
    }

    /// An update in the tensor's own storage.
    fn own(tensor: &mut [f32; 3]) -> Update<'_> {
        let pointer = tensor.as_mut_ptr();
        // SAFETY: the exclusive borrow lasts as long as the update, which alone touches the memory.
        unsafe { Update { old: Src::from_raw(pointer, 3), new: Dst::from_raw(pointer, 3) } }
    }

    #[test]
    fn adam_agrees_with_the_definition() {
        for (weight_decay, decoupled) in [(0.0, false), (0.1, false), (0.1, true)] {
            let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
            let config = Adam { lr: 1e-2, beta1, beta2, eps, weight_decay, decoupled, gradient_scale: 0.5 };
            let got =
                run(|step, grad, [param, first, second]| adam(&config, step, grad, param, first, second));
            let want = run_naive(|step, grad, state| naive::adam(&config, step, grad, state));
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, 2e-6);
            }
        }
    }
}
