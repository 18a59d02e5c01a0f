//! Adam and AdamW as updates of the graph's state, with PyTorch's formulas.

use super::clip_factor::{expect_update_inputs, gradient_scale};
use super::{Calibration, Case, Cost, Effect, Example, Fill, Io, NaiveIo, OpDef, expect_same};
use crate::graph::Type;
use remat_kernels::naive;
use remat_kernels::optimizer::{self as kernels, Update};

/// Adam. Inputs: parameter, gradient, first and second moment, and, where gradients are clipped, the factor of the
/// gradient. Outputs: the new parameter and moments. All but the last micro-batch of a step leave them as they are.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Adam {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// L2 penalty, or decay per unit of learning rate when decoupled.
    pub weight_decay: f64,
    /// AdamW: the decay does not pass through the moments.
    pub decoupled: bool,
}

impl Adam {
    fn config(&self, lr: f64, gradient_scale: f32) -> kernels::Adam {
        let Adam { beta1, beta2, eps, weight_decay, decoupled } = *self;
        kernels::Adam { lr, beta1, beta2, eps, weight_decay, decoupled, gradient_scale }
    }
}

impl OpDef for Adam {
    fn name() -> &'static str {
        "adam"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_update_inputs(x, 4)?;
        for t in &x[1..4] {
            expect_same("parameter, gradient and moments", x[0], t)?;
        }
        Ok(vec![x[0].clone(); 3])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 16)
    }

    fn effect(&self) -> Effect {
        Effect::Update
    }

    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        vec![(0, 0), (2, 1), (3, 2)]
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
            Case::floats(adam, &[&[rows, columns], &[rows, columns], &[rows, columns], &[rows, columns]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let config = self.config(io.run().learning_rate, gradient_scale(io, 4));
        let parameter = Update { old: io.src(0), new: io.dst(0) };
        let first = Update { old: io.src(2), new: io.dst(1) };
        let second = Update { old: io.src(3), new: io.dst(2) };
        if io.run().micro.is_last() {
            kernels::adam(&config, io.run().step, io.src(1), parameter, first, second);
        } else {
            [parameter, first, second].iter().for_each(Update::keep);
        }
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let mut state = [io.x[0].to_vec(), io.x[2].to_vec(), io.x[3].to_vec()];
        let scale = io.x.get(4).map_or(1.0, |factor| factor[0] as f32);
        naive::optimizer::adam(&self.config(io.run.learning_rate, scale), io.run.step, io.x[1], &mut state);
        state.into()
    }

    fn examples() -> Vec<Example> {
        let shape: &[usize] = &[5, 7];
        let with =
            |weight_decay, decoupled| Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, decoupled };
        let example = |op| Example::normal(op, &[shape; 4]).fill(3, Fill::Uniform(0.0, 1.0));
        let clipped: [&[usize]; 5] = [shape, shape, shape, shape, &[]];
        let clipped = Example::normal(with(0.01, true), &clipped).fill(3, Fill::Uniform(0.0, 1.0));
        vec![example(with(0.0, false)), example(with(0.01, false)), example(with(0.01, true)), clipped]
    }
}
