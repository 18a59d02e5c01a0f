//! The threads that kernels split their work over.

use crate::error::{Error, Result};

/// A pool of `n_threads` threads.
pub(crate) fn thread_pool(n_threads: usize) -> Result<rayon::ThreadPool> {
    let action = || format!("starting {n_threads} threads");
    let build = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    build.map_err(|e| Error::Io { action: action(), cause: std::io::Error::other(e) })
}
