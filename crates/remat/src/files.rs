//! How files are read and replaced, by this crate and by those around it: see [`remat_plan::files`].

pub use remat_plan::files::*;
