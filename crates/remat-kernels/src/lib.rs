//! Numeric loops over slices: the forward, backward and optimizer arithmetic of the engine.
//!
//! In: slices, shapes and a workspace slice. Out: filled output slices. Nothing here knows the graph, and nothing
//! here decides where memory comes from. Two rules hold for every kernel:
//!
//! * **Work is split by shape, never by the number of threads**, and every output element is written by one task
//!   that adds in a fixed order. So results are bit-identical for any size of the rayon pool they run in.
//! * **Nothing of step size is allocated.** Large temporaries are the `workspace` argument; what a kernel keeps per
//!   thread is less than a megabyte.
//!
//! [`naive`] holds slow `f64` twins of every kernel, used as test oracles only.

pub mod accuracy;
pub mod activation;
pub mod attention;
pub mod batch_norm;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod fused;
pub mod fused_batch_norm;
pub mod gemm;
pub mod gradient;
mod group;
pub mod layer_norm;
pub mod linear;
pub mod linear_cross_entropy;
pub mod loss;
pub mod math;
pub mod matmul;
mod micro;
pub mod naive;
mod norm_grad;
pub mod optimizer;
mod panel;
pub mod par;
pub mod pool;
mod prefetch;
mod product;
pub mod raw;
pub mod rms_norm;
pub mod rng;
mod rows;
mod scratch;
pub mod shape;
mod simd;
pub mod softmax;
pub mod sum_rows;
#[cfg(test)]
mod testing;
mod tiles;
