//! A small aligned buffer between memory that direct I/O cannot take and the file.

/// Direct I/O wants addresses, offsets and lengths that are multiples of this.
pub const PAGE: u64 = 4096;

/// Buffers of at least this many bytes are given aligned places in memory, so that they are copied without a detour.
/// Smaller ones would waste more by alignment than the detour costs.
pub const DIRECT_BYTES: u64 = 64 << 10;

/// Aligned memory of a fixed size: each direction of a store has one, and it does not grow with the step.
#[derive(Debug)]
pub(super) struct Bounce {
    memory: Vec<u8>,
    /// Where the aligned part begins.
    first: usize,
}

impl Bounce {
    /// As large as a buffer that is not aligned.
    pub(super) fn small() -> Bounce {
        Bounce::of(DIRECT_BYTES)
    }

    /// For many bytes, one after the other.
    pub(super) fn large() -> Bounce {
        Bounce::of(1 << 20)
    }

    fn of(bytes: u64) -> Bounce {
        let memory = vec![0; (bytes + PAGE) as usize];
        let first = memory.as_ptr().align_offset(PAGE as usize);
        Bounce { memory, first }
    }

    /// The aligned part.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        let end = self.memory.len() - PAGE as usize + self.first;
        &mut self.memory[self.first..end]
    }
}
