//! Loops that many kernels share: over elements ([`map`]), and sums over rows and columns ([`rows`], and
//! [`row_sums`] for kernels written with vectors).

pub(crate) mod map;
pub(crate) mod row_sums;
pub(crate) mod rows;
