//! Numeric loops over slices: the forward, backward and optimizer arithmetic of the engine.
//!
//! In: slices, shapes and a workspace slice. Out: filled output slices. Nothing here knows the graph, and nothing
//! here decides where memory comes from. Two rules hold for every kernel:
//!
//! * **Work is split by shape, never by the number of threads**, and every output element is written by one task
//!   that adds in a fixed order. So results are bit-identical for any size of the rayon pool they run in.
//! * **Nothing of step size is allocated.** Large temporaries are the `workspace` argument; what a kernel keeps per
//!   thread is less than two megabytes, for heads of attention up to 512 wide.
//!
//! A kernel is reached by the name of its module, such as [`layer_norm`]; folders only group them. They are listed here in
//! the order in which they may use each other: a folder uses those above it, never one below.
//!
//! 1. `base`: tasks, memory, instruction sets, functions of numbers, random numbers;
//! 2. `settings`: sizes and settings that kernels share with their twins;
//! 3. `naive`: slow `f64` twins of every kernel, written after the definition and used as test oracles only;
//! 4. `loops`: the loops that many kernels share, over elements and over rows;
//! 5. `product`: the engine behind every matrix product and convolution;
//! 6. `pointwise`: element by element: arithmetic, activations, dropout, fused chains;
//! 7. `copy`: changes of shape, embeddings;
//! 8. `pool`: pooling of images;
//! 9. `norm`: batch norm, layer norm, RMS norm, softmax;
//! 10. `matrix`: linear layers, batched products, column sums;
//! 11. `conv`: convolutions;
//! 12. `attention`: attention without the matrix of scores;
//! 13. `losses`: losses and accuracy;
//! 14. `update`: gradients between backward and update, optimizers.

pub mod attention;
mod base;
pub mod conv;
mod copy;
mod loops;
mod losses;
mod matrix;
pub mod naive;
mod norm;
mod pointwise;
pub mod pool;
mod product;
mod settings;
#[cfg(test)]
mod testing;
mod update;

/// The version of the arithmetic, which changes whenever a kernel gives other bits than before. Instruction sets and
/// threads change none, so two programs with the same version train the same bits.
pub const NUMERICS: u32 = 5;

pub use base::{isa, math, par, raw, rng};
pub use copy::{embedding, shape};
pub use losses::{accuracy, linear_cross_entropy, loss};
pub use matrix::{linear, matmul, sum_rows};
pub use norm::{batch_norm, fused_batch_norm, layer_norm, rms_norm, softmax};
pub use pointwise::{activation, dropout, elementwise, fused};
pub use product::gemm;
pub use update::{gradient, optimizer};
