//! The one hash of this crate's files and runs: it tells states, notes and data sets apart, by whole words, because
//! gigabytes pass through it. Checkpoints store it, so it may not change. It is no protection against an attacker.

use std::io::{Error, ErrorKind, Read};

/// Whole words, so that a long file has the hash of its bytes together.
const BLOCK: usize = 1 << 16;

const START: u64 = 0xCBF2_9CE4_8422_2325;

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A hash of bytes.
pub(crate) fn bytes(bytes: &[u8]) -> u64 {
    continued(bytes.len() as u64, bytes)
}

/// The same hash of the `len` bytes that a reader gives.
pub(crate) fn reader(len: u64, mut reader: impl Read) -> std::io::Result<u64> {
    let (mut hash, mut n_read, mut block) = (len, 0, Vec::with_capacity(BLOCK));
    loop {
        block.clear();
        reader.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        n_read += block.len() as u64;
        hash = continued(hash, &block);
        if block.len() < BLOCK {
            break;
        }
    }
    if n_read == len {
        Ok(hash)
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
