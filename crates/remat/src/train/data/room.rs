//! Memory on the word of a file: where there is none, that is an error and not the end of the process.

use crate::error::Error;
use remat_plan::Bytes;
use std::io;

/// So many bytes could not be had.
#[derive(Debug)]
pub(super) struct NoRoom(pub(super) Bytes);

impl NoRoom {
    /// The error with what was being done, which names the file. It says nothing about the data, so no image is skipped for it.
    pub(super) fn during(self, action: impl Into<String>) -> Error {
        let message = format!("there is no memory for {}; end other programs or use smaller data", self.0);
        Error::io(action)(io::Error::new(io::ErrorKind::OutOfMemory, message))
    }
}

/// An empty vector with room for exactly `n` elements.
pub(super) fn reserve<T>(n: usize) -> Result<Vec<T>, NoRoom> {
    let mut room = Vec::new();
    match room.try_reserve_exact(n) {
        Ok(()) => Ok(room),
        Err(_) => Err(NoRoom(Bytes(n as u64 * size_of::<T>() as u64))),
    }
}

/// So many zeros.
pub(super) fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>, NoRoom> {
    let mut room = reserve(n)?;
    room.resize(n, T::default());
    Ok(room)
}

/// Fails where so many bytes cannot be had. Decoders of other crates take what they need without asking, and end the process
/// where they do not get it; nothing else allocates much between this question and theirs.
pub(super) fn probe(n_bytes: u64) -> Result<(), NoRoom> {
    let n = usize::try_from(n_bytes).map_err(|_| NoRoom(Bytes(n_bytes)))?;
    // Without the box the compiler may take a reservation that nobody uses for granted.
    reserve::<u8>(n).map(|room| drop(std::hint::black_box(room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error_that_names_the_file() {
        assert!(probe(0).is_ok() && probe(1 << 20).is_ok());
        // More than any processor can address.
        for none in [probe(1 << 61), reserve::<u64>(1 << 58).map(drop), zeros::<f32>(1 << 59).map(drop)] {
            let error = none.unwrap_err().during("decode a.png");
            let message = error.to_string();
            assert!(message.starts_with("decode a.png: there is no memory for 2.00 EiB;"), "{message}");
            assert!(matches!(error, Error::Io { cause, .. } if cause.kind() == io::ErrorKind::OutOfMemory));
        }
    }
}
