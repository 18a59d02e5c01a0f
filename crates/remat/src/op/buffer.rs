//! Memory of its own for one value, aligned for any element type.

use crate::graph::Type;

/// Zeroed bytes whose address is a multiple of eight, which is more than any element type needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owned {
    words: Vec<u64>,
    len: usize,
}

impl Owned {
    /// So many bytes.
    pub(crate) fn zeroed(len: usize) -> Owned {
        Owned { words: vec![0; len.div_ceil(8)], len }
    }

    /// As many bytes as the type has.
    pub(crate) fn of(ty: &Type) -> Owned {
        Owned::zeroed(ty.bytes() as usize)
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// To be read.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a u64 is eight readable bytes, and `len` bytes are at most as many as there are words for.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    /// To be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are a u64.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }

    /// The address, for kernels.
    pub(crate) fn address(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}
