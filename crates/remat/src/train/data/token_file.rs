//! Tokens of a corpus in a file that is mapped into memory, so that they take no memory of the process's own.
//!
//! A corpus of bytes is its own token file. Byte pairs are trained and encoded once and written beside the corpus: a
//! header of [`HEADER`] bytes (name and version, fingerprint of the corpus, size of the vocabulary, number of tokens)
//! and two bytes per token. The file appears complete or not at all. One that belongs to another state of the corpus is
//! made again.

use super::bad_data;
use super::byte_pairs::{BytePairs, MAX_VOCABULARY};
use crate::error::{Error, Result};
use crate::files;
use crate::train::hash;
use memmap2::Mmap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

const MAGIC: &[u8; 16] = b"remat.tokens/1\n\0";
const HEADER: usize = 40;

/// Tokens of a corpus.
#[derive(Debug)]
pub(super) enum Tokens {
    /// Each byte is a token.
    Bytes(Mmap),
    /// Two bytes per token after the header.
    Pairs(Mmap),
}

impl Tokens {
    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        match self {
            Tokens::Bytes(map) => map.len(),
            Tokens::Pairs(map) => (map.len() - HEADER) / 2,
        }
    }

    /// One token.
    pub(super) fn at(&self, i: usize) -> i32 {
        match self {
            Tokens::Bytes(map) => i32::from(map[i]),
            Tokens::Pairs(map) => {
                i32::from(u16::from_le_bytes([map[HEADER + 2 * i], map[HEADER + 2 * i + 1]]))
            }
        }
    }
}

/// Maps a file that must not be empty.
pub(super) fn map(path: &Path) -> Result<Mmap> {
    let action = || format!("read {}", path.display());
    let file = File::open(path).map_err(Error::io(action()))?;
    let found = file.metadata().map_err(Error::io(action()))?;
    if found.is_dir() {
        return Err(bad_data(path.display(), "is a folder; a language model needs a text file"));
    }
    if !found.is_file() {
        return Err(bad_data(path.display(), "is not a regular file; a language model needs a text file"));
    }
    if found.len() == 0 {
        return Err(bad_data(path.display(), "is empty"));
    }
    // SAFETY: the mapping is only read. Whoever changes the file during the run changes the data of the run, which is
    // wrong but harmless to memory: every index is checked.
    unsafe { Mmap::map(&file) }.map_err(Error::io(action()))
}

/// The tokens of a corpus by byte pairs, with the pairs; trained on `trained_share` of the corpus from
/// its beginning. Files go to `cache`.
pub(super) fn byte_pairs(
    corpus: &Path,
    vocabulary: usize,
    cache: &Path,
    trained_bytes: impl FnOnce(usize) -> usize,
) -> Result<(Tokens, BytePairs)> {
    if !(257..=MAX_VOCABULARY).contains(&vocabulary) {
        let message = format!("a byte-pair vocabulary has 257 to {MAX_VOCABULARY} tokens, got {vocabulary}");
        return Err(bad_data("tokenizer", message));
    }
    let text = map(corpus)?;
    let of_corpus = hash::bytes(&text);
    let name = corpus.file_name().unwrap_or_default().to_string_lossy();
    let path = cache.join(format!("{name}.bpe-{vocabulary}.tokens"));
    let json = path.with_extension("json");
    if let (Some((tokens, size)), Some(pairs)) = (cached(&path, of_corpus, vocabulary)?, cached_pairs(&json)?)
        && pairs.vocabulary() == size
    {
        return Ok((tokens, pairs));
    }
    let text = std::str::from_utf8(&text).map_err(|e| {
        let message = format!("is not UTF-8 at byte {}; byte tokens read any file", e.valid_up_to());
        bad_data(corpus.display(), message)
    })?;
    let mut end = trained_bytes(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    let tokenizer = BytePairs::train(&text[..end], vocabulary);
    replace(&json, |file| serde_json::to_writer(file, &tokenizer.to_json()).map_err(Into::into))?;
    replace(&path, |file| {
        let mut n_tokens = 0u64;
        tokenizer.encode(text, |_| n_tokens += 1);
        file.write_all(MAGIC)?;
        for number in [of_corpus, tokenizer.vocabulary() as u64, n_tokens] {
            file.write_all(&number.to_le_bytes())?;
        }
        let mut written = Ok(());
        tokenizer.encode(text, |token| {
            if written.is_ok() {
                written = file.write_all(&(token as u16).to_le_bytes());
            }
        });
        written
    })?;
    let found = cached(&path, of_corpus, vocabulary)?;
    let found = found.map(|(tokens, _)| (tokens, tokenizer));
    found.ok_or_else(|| bad_data(path.display(), "cannot be read back; is another run writing it?"))
}

/// The tokenizer beside a token file; `None` when it is missing or no tokenizer of ours, and then it is made again.
fn cached_pairs(path: &Path) -> Result<Option<BytePairs>> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("read {}", path.display()))(error)),
    }
}

/// The token file if it is there and belongs to the corpus.
fn cached(path: &Path, of_corpus: u64, vocabulary: usize) -> Result<Option<(Tokens, usize)>> {
    if !path.exists() {
        return Ok(None);
    }
    let map = map(path)?;
    let number = |i: usize| -> Option<u64> {
        Some(u64::from_le_bytes(map.get(16 + 8 * i..24 + 8 * i)?.try_into().ok()?))
    };
    let is_whole = map.get(..16) == Some(MAGIC)
        && number(0) == Some(of_corpus)
        && number(1).is_some_and(|found| found <= vocabulary as u64)
        && number(2).and_then(|n| n.checked_mul(2)) == map.len().checked_sub(HEADER).map(|n| n as u64);
    let found = number(1).filter(|_| is_whole).map(|found| found as usize);
    Ok(found.map(|found| (Tokens::Pairs(map), found)))
}

/// Writes a file, whole or not at all.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let action = format!("write {}; another --cache folder may do", path.display());
    files::replace(path, write).map_err(Error::io(action))
}
