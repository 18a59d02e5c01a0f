//! Loops that many kernels share: over elements ([`map`]), and sums over rows and columns ([`rows`]).

pub(crate) mod map;
pub(crate) mod rows;
