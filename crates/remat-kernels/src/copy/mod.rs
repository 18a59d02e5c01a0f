//! Kernels that move elements without computing: changes of shape, and rows picked from a table.

pub mod embedding;
pub mod shape;
