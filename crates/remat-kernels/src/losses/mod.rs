//! What a training step reports: losses with their gradients, and accuracy.

pub mod accuracy;
pub mod linear_cross_entropy;
pub mod loss;
