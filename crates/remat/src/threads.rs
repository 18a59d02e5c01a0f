//! The threads that kernels split their work over.

use crate::error::{Error, Result};
use remat_kernels::isa::Isa;

/// A pool of `n_threads` threads. Whoever runs kernels asks for one, so a wrong choice of instructions is found here.
pub(crate) fn thread_pool(n_threads: usize) -> Result<rayon::ThreadPool> {
    Isa::from_environment().map_err(|message| Error::Environment { message })?;
    let action = || format!("starting {n_threads} threads");
    let build = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    build.map_err(|e| Error::Io { action: action(), cause: std::io::Error::other(e) })
}
