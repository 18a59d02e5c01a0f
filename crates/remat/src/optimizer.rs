//! Optimizers as data: which update op they put into the graph and which state it carries.

use crate::op::Op;
use crate::op::adam::Adam;
use crate::op::sgd::Sgd;

/// How gradients become updates.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Optimizer {
    /// Learning rate.
    pub learning_rate: f64,
    /// The update rule.
    pub rule: Rule,
    /// Gradients whose common norm is larger are scaled down to this norm.
    pub clip_norm: Option<f64>,
    /// Batches whose mean gradient makes one update; 1 for an update per batch.
    pub micro_batches: u64,
}

/// An update rule with PyTorch's meaning of every field.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum; 0 keeps no state.
        momentum: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Nesterov momentum.
        nesterov: bool,
    },
    /// Adam with an L2 penalty.
    Adam {
        /// L2 penalty.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay per unit of learning rate.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// SGD with momentum 0.9.
    pub const fn sgd(learning_rate: f64) -> Optimizer {
        Optimizer::plain(learning_rate, Rule::Sgd { momentum: 0.9, weight_decay: 0.0, nesterov: false })
    }

    /// Adam with PyTorch's defaults.
    pub const fn adam(learning_rate: f64) -> Optimizer {
        Optimizer::plain(learning_rate, Rule::Adam { weight_decay: 0.0 })
    }

    /// AdamW with PyTorch's defaults.
    pub const fn adamw(learning_rate: f64) -> Optimizer {
        Optimizer::plain(learning_rate, Rule::AdamW { weight_decay: 0.01 })
    }

    const fn plain(learning_rate: f64, rule: Rule) -> Optimizer {
        Optimizer { learning_rate, rule, clip_norm: None, micro_batches: 1 }
    }

    /// As on the command line.
    pub fn name(&self) -> &'static str {
        match self.rule {
            Rule::Sgd { .. } => "sgd",
            Rule::Adam { .. } => "adam",
            Rule::AdamW { .. } => "adamw",
        }
    }

    /// The state kept per parameter, in the order of the update op's inputs.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => &[],
            Rule::Sgd { .. } => &["momentum_buffer"],
            Rule::Adam { .. } | Rule::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// The update op.
    pub fn op(&self) -> Op {
        let adam =
            |weight_decay, decoupled| Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, decoupled };
        match self.rule {
            Rule::Sgd { momentum, weight_decay, nesterov } => Sgd { momentum, weight_decay, nesterov }.into(),
            Rule::Adam { weight_decay } => adam(weight_decay, false).into(),
            Rule::AdamW { weight_decay } => adam(weight_decay, true).into(),
        }
    }
}

/// SGD with momentum 0.9.
pub const fn sgd(learning_rate: f64) -> Optimizer {
    Optimizer::sgd(learning_rate)
}

/// Adam with PyTorch's defaults.
pub const fn adam(learning_rate: f64) -> Optimizer {
    Optimizer::adam(learning_rate)
}

/// AdamW with PyTorch's defaults.
pub const fn adamw(learning_rate: f64) -> Optimizer {
    Optimizer::adamw(learning_rate)
}
