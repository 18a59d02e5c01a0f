//! Stochastic gradient descent as an update of the graph's state, with PyTorch's formulas.

use super::{Cost, Effect, Example, Io, NaiveIo, OpDef, expect_float, expect_inputs, expect_same};
use crate::graph::Type;
use remat_kernels::naive;
use remat_kernels::optimizer::{self as kernels, Update};

/// `p' = p - lr d`, where `d` is the gradient, or with momentum the velocity `v' = momentum v + g`.
///
/// Inputs: parameter, gradient and, with momentum, the velocity. Outputs: the new parameter and velocity.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sgd {
    /// Factor of the velocity; 0 keeps none.
    pub momentum: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Look ahead by one step of the velocity.
    pub nesterov: bool,
}

impl Sgd {
    fn n_states(&self) -> usize {
        if self.momentum == 0.0 { 1 } else { 2 }
    }

    fn config(&self, lr: f64) -> kernels::Sgd {
        let Sgd { momentum, weight_decay, nesterov } = *self;
        kernels::Sgd { lr, momentum, weight_decay, nesterov }
    }
}

impl OpDef for Sgd {
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, self.n_states() + 1)?;
        expect_float("the parameter", x[0])?;
        for t in &x[1..] {
            expect_same("parameter, gradient and velocity", x[0], t)?;
        }
        Ok(vec![x[0].clone(); self.n_states()])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 6)
    }

    fn effect(&self) -> Effect {
        Effect::Update
    }

    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        if self.momentum == 0.0 { vec![(0, 0)] } else { vec![(0, 0), (2, 1)] }
    }

    fn run(&self, io: &mut Io<'_>) {
        let config = self.config(io.run().learning_rate);
        let parameter = Update { old: io.src(0), new: io.dst(0) };
        if self.momentum == 0.0 {
            kernels::sgd(&config, io.src(1), parameter);
        } else {
            let velocity = Update { old: io.src(2), new: io.dst(1) };
            kernels::sgd_momentum(&config, io.src(1), parameter, velocity);
        }
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let velocity = if self.momentum == 0.0 { vec![0.0; io.x[0].len()] } else { io.x[2].to_vec() };
        let mut state = [io.x[0].to_vec(), velocity, Vec::new()];
        naive::optimizer::sgd(&self.config(io.run.learning_rate), io.x[1], &mut state);
        state.into_iter().take(self.n_states()).collect()
    }

    fn examples() -> Vec<Example> {
        let shape: &[usize] = &[5, 7];
        let with = |momentum, weight_decay, nesterov| Sgd { momentum, weight_decay, nesterov };
        vec![
            Example::normal(with(0.0, 0.01, false), &[shape; 2]),
            Example::normal(with(0.9, 0.0, false), &[shape; 3]),
            Example::normal(with(0.9, 0.01, true), &[shape; 3]),
        ]
    }
}
