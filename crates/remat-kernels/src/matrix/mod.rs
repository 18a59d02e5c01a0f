//! Layers that are matrix products on whole buffers, and the column sums that are the gradients of their biases.

pub mod linear;
pub mod matmul;
pub mod sum_rows;
