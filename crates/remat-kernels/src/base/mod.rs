//! What every kernel is built on: tasks, memory, caches, instruction sets, functions of numbers, random numbers.

pub(crate) mod cache;
pub mod isa;
pub mod math;
pub mod par;
pub mod raw;
pub mod rng;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod vector;
