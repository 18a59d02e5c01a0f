//! Sizes and settings of kernels, which their slow twins share.

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod optimizer;
pub(crate) mod pool;
