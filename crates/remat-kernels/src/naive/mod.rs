//! Slow `f64` twins of the kernels: plain loops over the definition, used only as test oracles.

pub mod attention;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod gradient;
pub mod linear;
pub mod loss;
pub mod norm;
pub mod optimizer;
pub mod pool;
pub mod shape;
