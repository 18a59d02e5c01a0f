//! Adam and AdamW as updates of the graph's state, with PyTorch's formulas.

use super::{Cost, Effect, Example, Fill, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::Type;
use remat_kernels::naive;
use remat_kernels::optimizer::{self as kernels, Update};

/// Adam. Inputs: parameter, gradient, first and second moment. Outputs: the new parameter and moments.
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
    fn config(&self, lr: f64) -> kernels::Adam {
        let Adam { beta1, beta2, eps, weight_decay, decoupled } = *self;
        kernels::Adam { lr, beta1, beta2, eps, weight_decay, decoupled }
    }
}

impl OpDef for Adam {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 4)?;
        expect_float("the parameter", x[0])?;
        for t in &x[1..] {
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

    fn run(&self, io: &mut Io<'_>) {
        let config = self.config(io.run().learning_rate);
        let parameter = Update { old: io.src(0), new: io.dst(0) };
        let first = Update { old: io.src(2), new: io.dst(1) };
        let second = Update { old: io.src(3), new: io.dst(2) };
        kernels::adam(&config, io.run().step, io.src(1), parameter, first, second);
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let mut state = [io.x[0].to_vec(), io.x[2].to_vec(), io.x[3].to_vec()];
        naive::optimizer::adam(&self.config(io.run.learning_rate), io.run.step, io.x[1], &mut state);
        state.into()
    }

    fn examples() -> Vec<Example> {
        let shape: &[usize] = &[5, 7];
        let with =
            |weight_decay, decoupled| Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, decoupled };
        let example = |op| Example::normal(op, &[shape; 4]).fill(3, Fill::Uniform(0.0, 1.0));
        vec![example(with(0.0, false)), example(with(0.01, false)), example(with(0.01, true))]
    }
}
