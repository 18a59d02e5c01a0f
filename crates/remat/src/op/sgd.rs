//! Stochastic gradient descent as an update of the graph's state, with PyTorch's formulas.

use super::clip_factor::{expect_update_inputs, gradient_scale};
use super::{Calibration, Case, Cost, Effect, Example, Io, NaiveIo, OpDef, expect_same};
use crate::graph::Type;
use remat_kernels::naive;
use remat_kernels::optimizer::{self as kernels, Update};

/// `p' = p - lr d`, where `d` is the gradient, or with momentum the velocity `v' = momentum v + g`.
///
/// Inputs: parameter, gradient, with momentum the velocity, and, where gradients are clipped, the factor of the
/// gradient. Outputs: the new parameter and velocity. All but the last micro-batch of a step leave them as they are.
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

    fn config(&self, lr: f64, gradient_scale: f32) -> kernels::Sgd {
        let Sgd { momentum, weight_decay, nesterov } = *self;
        kernels::Sgd { lr, momentum, weight_decay, nesterov, gradient_scale }
    }
}

impl OpDef for Sgd {
    fn name() -> &'static str {
        "sgd"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_update_inputs(x, self.n_states() + 1)?;
        for t in &x[1..=self.n_states()] {
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

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| {
            let sgd = Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: false };
            Case::floats(sgd, &[&[rows, columns], &[rows, columns], &[rows, columns]])
        }))
    }

    fn run(&self, io: &mut Io<'_>) {
        let config = self.config(io.run().learning_rate, gradient_scale(io, self.n_states() + 1));
        let is_last = io.run().micro.is_last();
        let parameter = Update { old: io.src(0), new: io.dst(0) };
        let velocity = (self.momentum != 0.0).then(|| Update { old: io.src(2), new: io.dst(1) });
        match velocity {
            None if is_last => kernels::sgd(&config, io.src(1), parameter),
            Some(velocity) if is_last => kernels::sgd_momentum(&config, io.src(1), parameter, velocity),
            _ => [parameter].iter().chain(&velocity).for_each(Update::keep),
        }
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let velocity = if self.momentum == 0.0 { vec![0.0; io.x[0].len()] } else { io.x[2].to_vec() };
        let mut state = [io.x[0].to_vec(), velocity, Vec::new()];
        let scale = io.x.get(self.n_states() + 1).map_or(1.0, |factor| factor[0] as f32);
        naive::optimizer::sgd(&self.config(io.run.learning_rate, scale), io.x[1], &mut state);
        state.into_iter().take(self.n_states()).collect()
    }

    fn examples() -> Vec<Example> {
        let shape: &[usize] = &[5, 7];
        let with = |momentum, weight_decay, nesterov| Sgd { momentum, weight_decay, nesterov };
        vec![
            Example::normal(with(0.0, 0.01, false), &[shape; 2]),
            Example::normal(with(0.9, 0.0, false), &[shape; 3]),
            Example::normal(with(0.9, 0.01, true), &[shape; 3]),
            Example::normal(with(0.0, 0.01, false), &[shape, shape, &[]]),
            Example::normal(with(0.9, 0.01, false), &[shape, shape, shape, &[]]),
        ]
    }
}
