//! The one hash of this crate's files and runs: it tells states, notes and data sets apart, by whole words, because
//! gigabytes pass through it. Checkpoints store it, so it may not change. It is no protection against an attacker.

use std::io::{Error, ErrorKind, Read};

/// Bytes that are read together.
const BLOCK: usize = 1 << 16;

const START: u64 = 0xCBF2_9CE4_8422_2325;

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A hash of bytes.
pub(crate) fn bytes(bytes: &[u8]) -> u64 {
    continued(bytes.len() as u64, bytes)
}

/// The same hash of bytes that come in pieces of any length.
pub(crate) struct Pieces {
    hash: u64,
    n_seen: u64,
    /// The last bytes, which are no whole word yet.
    rest: [u8; 8],
}

impl Pieces {
    /// Of so many bytes altogether.
    pub(crate) fn of(len: u64) -> Pieces {
        Pieces { hash: len, n_seen: 0, rest: [0; 8] }
    }

    pub(crate) fn see(&mut self, mut bytes: &[u8]) {
        let begun = (self.n_seen % 8) as usize;
        self.n_seen += bytes.len() as u64;
        if begun > 0 {
            let taken = bytes.len().min(8 - begun);
            self.rest[begun..begun + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if begun + taken < 8 {
                return;
            }
            self.hash = mix(self.hash, u64::from_le_bytes(self.rest));
        }
        let (whole, rest) = bytes.split_at(bytes.len() / 8 * 8);
        self.hash = continued(self.hash, whole);
        self.rest = [0; 8];
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    pub(crate) fn end(self) -> u64 {
        if self.n_seen.is_multiple_of(8) { self.hash } else { mix(self.hash, u64::from_le_bytes(self.rest)) }
    }
}

/// The same hash of the `len` bytes that a reader gives.
pub(crate) fn reader(len: u64, mut reader: impl Read) -> std::io::Result<u64> {
    let (mut hash, mut block) = (Pieces::of(len), Vec::with_capacity(BLOCK));
    loop {
        block.clear();
        reader.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        hash.see(&block);
        if block.len() < BLOCK {
            break;
        }
    }
    if hash.n_seen == len {
        Ok(hash.end())
    } else {
        Err(Error::new(ErrorKind::UnexpectedEof, "it changes while it is read"))
    }
}

/// The hash of bytes of which a part is known: `hash` is that of all whole words before, or the number of all bytes.
pub(crate) fn continued(hash: u64, bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).fold(hash, mix)
}

/// A hash of bytes that never goes into a file: four sums side by side, so that it keeps up with memory. Bytes that differ
/// in one word have different hashes.
pub(crate) fn lanes(bytes: &[u8]) -> u64 {
    let word =
        |chunk: &[u8], lane: usize| u64::from_le_bytes(std::array::from_fn(|byte| chunk[8 * lane + byte]));
    let chunks = bytes.chunks_exact(32);
    let rest = self::bytes(chunks.remainder());
    let lanes = chunks
        .fold([START; 4], |lanes, chunk| std::array::from_fn(|lane| mix(lanes[lane], word(chunk, lane))));
    lanes.into_iter().fold(mix(rest, bytes.len() as u64), mix)
}

/// A hash of floats, by their bits; `before` is the hash of those that come before.
pub(crate) fn floats(before: Option<u64>, floats: &[f32]) -> u64 {
    floats.iter().fold(before.unwrap_or(START), |hash, x| mix(hash, u64::from(x.to_bits())))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_of_bytes_is_the_one_in_files() {
        // Identities of data sets in checkpoints are made of it.
        assert_eq!(super::bytes(b""), 0);
        assert_eq!(super::bytes(b"remat"), super::bytes(b"remat"));
        assert_ne!(super::bytes(b"remat\0"), super::bytes(b"remat"));
        let long: Vec<u8> = (0..3 * super::BLOCK + 5).map(|i| (i * i) as u8).collect();
        assert_eq!(super::reader(long.len() as u64, &long[..]).unwrap(), super::bytes(&long));
        for len in [0, 1, 7, 8, 9, 15, 16, 17, 100] {
            for piece in [1, 3, 4, 8, 12, 20, 100] {
                let mut pieces = super::Pieces::of(len as u64);
                long[..len].chunks(piece).for_each(|piece| pieces.see(piece));
                assert_eq!(pieces.end(), super::bytes(&long[..len]), "{len} bytes in pieces of {piece}");
            }
        }
        assert!(super::reader(7, &long[..6]).is_err() && super::reader(5, &long[..6]).is_err());
    }

    #[test]
    fn every_changed_bit_changes_the_hash_of_lanes() {
        let bytes: Vec<u8> = (0..77).collect();
        let right = super::lanes(&bytes);
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(super::lanes(&other), right, "bit {bit}");
        }
        assert_ne!(super::lanes(&bytes[..76]), right);
        assert_ne!(super::lanes(&[0; 32]), super::lanes(&[0; 64]));
    }
}
