//! Twins of the optimizer updates. The state is a parameter followed by what the optimizer keeps for it.

use crate::settings::optimizer::{Adam, Sgd};

/// One step of gradient descent on `[param, velocity, unused]`.
pub fn sgd(config: &Sgd, grad: &[f64], [param, velocity, _]: &mut [Vec<f64>; 3]) {
    for i in 0..grad.len() {
        let g = f64::from(config.gradient_scale) * grad[i] + config.weight_decay * param[i];
        velocity[i] = config.momentum * velocity[i] + g;
        let direction = if config.nesterov { g + config.momentum * velocity[i] } else { velocity[i] };
        param[i] -= config.lr * direction;
    }
}

/// Step number `step` (from 1) of Adam or AdamW on `[param, first moment, second moment]`.
pub fn adam(config: &Adam, step: u64, grad: &[f64], [param, first, second]: &mut [Vec<f64>; 3]) {
    let Adam { lr, beta1, beta2, eps, weight_decay, decoupled, gradient_scale } = *config;
    for i in 0..grad.len() {
        let mut g = f64::from(gradient_scale) * grad[i];
        if decoupled {
            param[i] -= lr * weight_decay * param[i];
        } else {
            g += weight_decay * param[i];
        }
        first[i] = beta1 * first[i] + (1.0 - beta1) * g;
        second[i] = beta2 * second[i] + (1.0 - beta2) * g * g;
        let unbiased_first = first[i] / (1.0 - libm::pow(beta1, step as f64));
        let unbiased_second = second[i] / (1.0 - libm::pow(beta2, step as f64));
        param[i] -= lr * unbiased_first / (unbiased_second.sqrt() + eps);
    }
}
