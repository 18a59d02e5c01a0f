//! What every kernel is built on: tasks, memory, instruction sets, functions of numbers, random numbers.

pub mod isa;
pub mod math;
pub mod par;
pub mod raw;
pub mod rng;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod vector;
