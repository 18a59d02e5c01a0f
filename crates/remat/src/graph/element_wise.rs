//! Element-wise ops: output element `i` depends on element `i` of each input and on nothing else.
//!
//! [`ElementWise`] is what fusion needs of such an op: it can compute any part of its output by itself, so that a
//! chain of them is one pass over memory (`crates/remat/src/op/fused.rs`).

use super::{Run, Type};
use remat_kernels::raw::{Dst, Src};

/// Most inputs that an element-wise op has, its table included.
pub const MAX_OPERANDS: usize = 6;

/// An op with one output that can compute any part of it. An input has the output's shape, or its last dimensions
/// and is repeated.
pub trait ElementWise: Sync {
    /// Elements of a table that is made before the first part is computed; it is repeated like an input.
    fn table_len(&self, _x: &[&Type]) -> usize {
        0
    }

    /// Makes the table from whole inputs.
    fn fill_table(&self, _x: &[Src<'_>], _table: &mut [f32]) {}

    /// Computes the elements of the output from `at` on. Each operand is the same part of an input, or for a repeated
    /// one the part of it that the elements cover, whole rows of it if it is short; the table comes last. The
    /// result is the same however the output is cut. `y` may be the storage of any operand.
    fn compute(&self, x: &[Src<'_>], y: Dst<'_>, at: usize, run: &Run);
}
