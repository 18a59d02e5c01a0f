//! The product engine: matrix products and convolutions are the same loops over different operands.
//!
//! Each file reads only those above it:
//!
//! 1. `prefetch`: asking for memory before it is needed;
//! 2. `micro`: the innermost loop, a tile of sums in registers;
//! 3. `panel`: packing operands into what `micro` reads;
//! 4. `operands`: what a product is made of, the trait that a new kind of product implements;
//! 5. `group`: some rows of the output in one visit of their sums;
//! 6. `tiles`: cutting the output into tasks, by shape;
//! 7. `task`: the loops around all of these;
//! 8. `gemm`: the product of two strided matrices;
//! 9. `small`: products of matrices that lie in the caches and are packed once for several of them.
//!
//! **Why by hand.** The `gemm` and `matrixmultiply` crates take two matrices. A convolution would have to copy its
//! receptive fields into one first; here it reads the image where it lies. When the `gemm` crate divides work among
//! threads it allocates packed operands of step size, which a memory budget cannot have, and called on our tiles it was
//! no faster. And the order of every sum is ours: results have the same bits for any number of threads.

pub mod gemm;
pub(crate) mod group;
pub(crate) mod micro;
pub(crate) mod operands;
pub(crate) mod panel;
pub(crate) mod prefetch;
pub(crate) mod small;
pub(crate) mod task;
pub(crate) mod tiles;
