//! A text file that is read from beginning to end, in parts, however long it is.

use super::bad_data;
use super::byte_pairs::whole_pieces;
use crate::error::{Error, Result};
use crate::files;
use crate::hash;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes that are read together.
const BLOCK: usize = 1 << 20;

/// A file as it was when it was opened.
#[derive(Debug)]
pub(super) struct Corpus {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// A hash of its contents.
    pub(super) fingerprint: u64,
}

impl Corpus {
    /// Reads a file through once.
    pub(super) fn open(path: &Path) -> Result<Corpus> {
        let (file, len) = open(path)?;
        let fingerprint = hash::reader(len, file).map_err(Error::io(format!("read {}", path.display())))?;
        Ok(Corpus { path: path.to_owned(), len, fingerprint })
    }

    /// Calls `each` with the text of the first `n_bytes`, and of the rest of a character that they cut, in parts that
    /// cut no piece of a tokenizer.
    pub(super) fn each_part(
        &self,
        n_bytes: u64,
        mut each: impl FnMut(&str) -> std::io::Result<()>,
    ) -> Result<()> {
        let action = || format!("read {}", self.path.display());
        let mut file = open(&self.path)?.0;
        let (mut bytes, mut n_done, mut n_left) = (Vec::new(), 0, n_bytes);
        loop {
            // A piece that is longer than what was read is met with blocks that grow, so it is not looked at too often.
            let n_wanted = n_left.min(BLOCK.max(bytes.len()) as u64);
            let part = file.by_ref().take(n_wanted).read_to_end(&mut bytes);
            let n_read = part.map_err(Error::io(action()))? as u64;
            if n_read < n_wanted {
                return Err(bad_data(self.path.display(), "became shorter while it was being read"));
            }
            n_left -= n_read;
            let n_valid = match std::str::from_utf8(&bytes) {
                Ok(_) => bytes.len(),
                Err(e) if e.error_len().is_none() && n_done + (bytes.len() as u64) < self.len => {
                    // The rest of the last character comes next.
                    n_left = n_left.max(1);
                    e.valid_up_to()
                }
                Err(e) => {
                    let at = n_done + e.valid_up_to() as u64;
                    let message = format!("is not UTF-8 at byte {at}; byte tokens read any file");
                    return Err(bad_data(self.path.display(), message));
                }
            };
            let text = std::str::from_utf8(&bytes[..n_valid]).unwrap_or_default();
            let end = if n_left == 0 { n_valid } else { whole_pieces(text) };
            each(&text[..end]).map_err(Error::io(action()))?;
            n_done += end as u64;
            bytes.drain(..end);
            if n_left == 0 {
                return Ok(());
            }
        }
    }
}

/// Opens a file that must not be empty, and says how long it is.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let action = || format!("read {}", path.display());
    // What it is comes next; a pipe would be waited for here.
    let file = files::open_at_once(path).map_err(Error::io(action()))?;
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
    Ok((file, found.len()))
}

#[cfg(test)]
mod tests {
    use super::super::byte_pairs::pieces;
    use super::*;

    #[test]
    fn parts_are_the_text_and_cut_no_piece() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let words: String = (0..200_000).map(|i| format!("wört{i}  is, {} ", i * 7)).collect();
        // One piece that is longer than several blocks.
        let text = words + &"ü".repeat(3 * BLOCK) + "  the end";
        std::fs::write(&path, &text).unwrap();
        let corpus = Corpus::open(&path).unwrap();
        assert_eq!(corpus.fingerprint, hash::bytes(text.as_bytes()));
        let mut found = Vec::new();
        corpus
            .each_part(corpus.len, |part| {
                found.extend(pieces(part).map(str::to_owned));
                Ok(())
            })
            .unwrap();
        assert!(found.iter().map(String::as_str).eq(pieces(&text)), "a piece was cut");
        // A share that ends inside a character has all of it.
        let mut share = String::new();
        let inside = text.find("üü").unwrap() as u64 + 1;
        corpus
            .each_part(inside, |part| {
                share.push_str(part);
                Ok(())
            })
            .unwrap();
        assert_eq!(share, text[..inside as usize + 1]);
        // What is cut off while it is being read is an error and nothing else.
        let cut = File::options().write(true).open(&path).unwrap();
        cut.set_len(corpus.len / 2).unwrap();
        let message = corpus.each_part(corpus.len, |_| Ok(())).unwrap_err().to_string();
        assert!(message.contains("became shorter"), "{message}");
    }
}
