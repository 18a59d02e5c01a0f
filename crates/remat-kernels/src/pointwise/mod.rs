//! Kernels that compute an element of the output from the same element of every input: arithmetic, activations, dropout,
//! and chains of them in one pass.

pub mod activation;
pub mod dropout;
pub mod elementwise;
pub mod fused;
