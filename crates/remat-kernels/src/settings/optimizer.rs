//! Hyperparameters of the optimizers.

/// Hyperparameters of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Factor of the velocity; 0 needs no velocity.
    pub momentum: f64,
    /// Added to the gradient, times the parameter.
    pub weight_decay: f64,
    /// Look ahead by one step of the velocity.
    pub nesterov: bool,
    /// The gradient is multiplied with this before anything else: 1, or what clipping says.
    pub gradient_scale: f32,
}

/// Hyperparameters of Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Strength of the weight decay.
    pub weight_decay: f64,
    /// Decay the parameter itself (AdamW) instead of adding to its gradient (Adam).
    pub decoupled: bool,
    /// The gradient is multiplied with this before anything else: 1, or what clipping says.
    pub gradient_scale: f32,
}
