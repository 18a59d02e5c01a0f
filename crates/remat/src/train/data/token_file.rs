//! Tokens of a corpus in a file from which windows are read when they are needed, so that they take no memory.
//!
//! A corpus of bytes is its own token file. Byte pairs are trained and encoded once and written beside the corpus: a
//! header of [`HEADER`] bytes (name and version, fingerprint of the corpus, size of the vocabulary, number of tokens)
//! and two bytes per token. The file appears complete or not at all. One that belongs to another state of the corpus is
//! made again.
//!
//! Files are read and never mapped into memory: a mapped file that another program makes shorter ends the process with a
//! signal, whereas a read that comes to the end of a file is an error like any other.

use super::bad_data;
use super::byte_pairs::{BytePairs, Encoder, MAX_VOCABULARY, PieceCounts};
use super::corpus::{Corpus, open};
use crate::error::{Error, Result};
use crate::files;
use remat_plan::Shown;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const MAGIC: &[u8; 16] = b"remat.tokens/1\n\0";
const HEADER: usize = 40;

/// Tokens of a corpus.
#[derive(Debug)]
pub(super) struct Tokens {
    path: PathBuf,
    form: Form,
    len: usize,
    window: Mutex<Window>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Each byte is a token.
    Bytes,
    /// Two bytes per token after the header.
    Pairs,
}

/// The file, with room for the bytes of a window.
#[derive(Debug)]
struct Window {
    file: File,
    bytes: Vec<u8>,
}

impl Tokens {
    /// Each byte of a corpus as a token.
    pub(super) fn of_bytes(corpus: &Corpus) -> Result<Tokens> {
        let (file, len) = open(&corpus.path)?;
        if len != corpus.len {
            return Err(bad_data(corpus.path.display(), "changes while it is being read"));
        }
        Tokens::new(&corpus.path, file, Form::Bytes, len)
    }

    fn new(path: &Path, file: File, form: Form, len: u64) -> Result<Tokens> {
        let len = usize::try_from(len).map_err(|_| bad_data(path.display(), "has too many tokens"))?;
        let window = Mutex::new(Window { file, bytes: Vec::new() });
        Ok(Tokens { path: path.to_owned(), form, len, window })
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Fills `out` with the tokens from `start` on.
    pub(super) fn read(&self, start: usize, out: &mut [i32]) -> Result<()> {
        let (width, begin) = match self.form {
            Form::Bytes => (1, 0),
            Form::Pairs => (2, HEADER as u64),
        };
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let Window { file, bytes } = &mut *window;
        bytes.resize(width * out.len(), 0);
        file.seek(SeekFrom::Start(begin + (width * start) as u64))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|error| self.failure(error))?;
        for (token, bytes) in out.iter_mut().zip(bytes.chunks_exact(width)) {
            *token = bytes.iter().rev().fold(0, |token, &byte| token << 8 | i32::from(byte));
        }
        Ok(())
    }

    fn failure(&self, error: std::io::Error) -> Error {
        if error.kind() != ErrorKind::UnexpectedEof {
            return Error::io(format!("read {}", self.path.display()))(error);
        }
        let message = format!(
            "is shorter than when the run began, when it held {} tokens; bring the file back and resume",
            self.len
        );
        bad_data(self.path.display(), message)
    }
}

/// The tokens of a corpus by byte pairs, with the pairs; trained on `trained_bytes` of the corpus from its beginning.
/// Files go to `cache`.
pub(super) fn byte_pairs(
    corpus: &Corpus,
    vocabulary: usize,
    cache: &Path,
    trained_bytes: u64,
) -> Result<(Tokens, BytePairs)> {
    if !(257..=MAX_VOCABULARY).contains(&vocabulary) {
        let message = format!("a byte-pair vocabulary has 257 to {MAX_VOCABULARY} tokens, got {vocabulary}");
        return Err(bad_data("tokenizer", message));
    }
    let name = corpus.path.file_name().unwrap_or_default().to_string_lossy();
    let path = cache.join(format!("{}.bpe-{vocabulary}.tokens", Shown(&name)));
    let json = path.with_extension("json");
    if let (Some((tokens, size)), Some(pairs)) =
        (cached(&path, corpus.fingerprint, vocabulary)?, cached_pairs(&json)?)
        && pairs.vocabulary() == size
    {
        return Ok((tokens, pairs));
    }
    let mut counts = PieceCounts::default();
    corpus.each_part(trained_bytes, |text| {
        counts.add(text);
        Ok(())
    })?;
    let tokenizer = BytePairs::train_on(&counts, vocabulary);
    drop(counts);
    let mut encoder = Encoder::new(&tokenizer);
    let mut n_tokens = 0u64;
    corpus.each_part(corpus.len, |text| {
        encoder.encode(text, |_| n_tokens += 1);
        Ok(())
    })?;
    replace(&json, |file| serde_json::to_writer(file, &tokenizer.to_json()).map_err(Into::into))?;
    replace(&path, |file| {
        file.write_all(MAGIC)?;
        for number in [corpus.fingerprint, tokenizer.vocabulary() as u64, n_tokens] {
            file.write_all(&number.to_le_bytes())?;
        }
        let encoded = corpus.each_part(corpus.len, |text| {
            let mut written = Ok(());
            encoder.encode(text, |token| {
                if written.is_ok() {
                    written = file.write_all(&(token as u16).to_le_bytes());
                }
            });
            written
        });
        encoded.map_err(std::io::Error::other)
    })?;
    drop(encoder);
    let found = cached(&path, corpus.fingerprint, vocabulary)?;
    let found = found.map(|(tokens, _)| (tokens, tokenizer));
    found.ok_or_else(|| bad_data(path.display(), "cannot be read back; is another run writing it?"))
}

/// The tokenizer beside a token file; `None` when it is missing or no tokenizer of ours, and then it is made again.
fn cached_pairs(path: &Path) -> Result<Option<BytePairs>> {
    match files::read_regular(path, files::DESCRIPTION_LIMIT) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("read {}", path.display()))(error)),
    }
}

/// The token file if it is there and belongs to the corpus.
fn cached(path: &Path, of_corpus: u64, vocabulary: usize) -> Result<Option<(Tokens, usize)>> {
    if !path.exists() {
        return Ok(None);
    }
    let (mut file, len) = open(path)?;
    let mut header = [0; HEADER];
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(Error::io(format!("read {}", path.display()))(error)),
    }
    let (magic, numbers) = header.split_at(MAGIC.len());
    let mut numbers = numbers.chunks_exact(8).map(|n| n.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
    let mut number = || numbers.next().unwrap_or_default();
    let (fingerprint, size, n_tokens) = (number(), number(), number());
    let is_whole = magic == MAGIC
        && fingerprint == of_corpus
        && size <= vocabulary as u64
        && n_tokens.checked_mul(2).and_then(|n_bytes| n_bytes.checked_add(HEADER as u64)) == Some(len);
    if !is_whole {
        return Ok(None);
    }
    Ok(Some((Tokens::new(path, file, Form::Pairs, n_tokens)?, size as usize)))
}

/// Writes a file, whole or not at all.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let action = format!("write {}; another --cache folder may do", path.display());
    files::replace(path, write).map_err(Error::io(action))
}
