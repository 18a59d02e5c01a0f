//! The checks that every op and every step pass, for ops from anywhere.
//!
//! [`random`] makes whole training steps of all ops and holds every way to run them against the [`Oracle`]. An op is
//! tested on its own [`examples`](OpDef::examples), by checks that know no particular op:
//!
//! * The type rule accepts the examples and answers every misuse with a message.
//! * The kernel agrees with the slow `f64` twin, gives the same bits in any pool, and gives the same bits when an output
//!   lies on the storage of an input.
//! * The gradient, evaluated with the slow twins in `f64`, is the slope of the slow forward.
//! * In a training step that drops what the op makes and computes it again, loss, gradients and parameters have the bits of
//!   a step that keeps everything, at the peak that was predicted.

mod gradient;
mod kernel;
pub mod mutation;
mod oracle;
pub mod random;
mod recompute;
mod type_rule;

pub use oracle::Oracle;
pub use random::Choices;

use crate::graph::Type;
use crate::op::{Example, Fill, MicroBatch, OpDef, Run};

const RUN: Run = Run { seed: 11, step: 3, learning_rate: 0.05, micro: MicroBatch::ONLY };

/// Checks one kind of op on its own examples. A fault ends in a panic that says what is wrong, as a test should.
pub fn check_op<T: OpDef>() {
    check_examples(T::name(), &T::examples());
}

/// Checks examples of one kind of op.
pub fn check_examples(name: &str, examples: &[Example]) {
    assert!(!examples.is_empty(), "{name} has no example");
    for example in examples {
        assert_eq!(example.op.name(), name, "an example of another op");
        type_rule::check(example);
        kernel::check(example);
        gradient::check(example);
        recompute::check(example);
    }
}

/// A reproducible sequence of numbers in `0..1`.
struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Elements that `f32` holds exactly, so that the kernel and its slow twin read the same numbers.
    fn fill(&mut self, ty: &Type, fill: Fill) -> Vec<f64> {
        let mut element = || match fill {
            Fill::Normal => {
                let radius = (-2.0 * libm::log(self.uniform())).sqrt();
                radius * libm::cos(std::f64::consts::TAU * self.uniform())
            }
            Fill::Uniform(low, high) => low + (high - low) * self.uniform(),
            Fill::Below(limit) => (limit as f64 * self.uniform()).floor(),
        };
        (0..ty.numel()).map(|_| f64::from(element() as f32)).collect()
    }
}

fn fill_inputs(example: &Example) -> Vec<Vec<f64>> {
    let mut numbers = Numbers(42);
    example.inputs.iter().map(|(ty, fill)| numbers.fill(ty, *fill)).collect()
}
