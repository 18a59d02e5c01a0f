//! Reading files that anyone may have written.
//!
//! Opening a pipe waits until somebody writes to it, a device may never end, and a file with a hole in it says that it is
//! longer than memory. So nothing is waited for, only regular files are read, and one that is too long is refused by its
//! length before anything is read. A symbolic link to a regular file is one. A pipe is read only where the user named it,
//! as in `remat check <(command) plan.json`, and not further than to the limit.

use crate::units::Bytes;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// The longest problem, plan or report: those of the largest graphs have some hundred megabytes.
pub const DOCUMENT_LIMIT: Bytes = Bytes(1 << 30);

/// The longest description: of a run, of measured speeds, of a sweep. They have some megabytes at most.
pub const DESCRIPTION_LIMIT: Bytes = Bytes(64 << 20);

/// Opens whatever a path leads to for reading, without waiting for anybody. Callers check what it is.
pub fn open_at_once(path: &Path) -> Result<File> {
    without_waiting(File::options().read(true)).open(path)
}

/// Opens a regular file for reading and refuses anything else.
pub fn open_regular(path: &Path) -> Result<File> {
    regular(open_at_once(path)?)
}

/// Opens a regular file that is there to be locked. It is made if it is missing, and what it holds is left alone.
pub fn open_lock(path: &Path) -> Result<File> {
    regular(without_waiting(File::options().write(true).create(true).truncate(false)).open(path)?)
}

/// All of a regular file that is no longer than `limit`.
pub fn read_regular(path: &Path, limit: Bytes) -> Result<Vec<u8>> {
    read_up_to(open_regular(path)?, limit)
}

/// All of a regular file that is text no longer than `limit`.
pub fn read_regular_text(path: &Path, limit: Bytes) -> Result<String> {
    text(read_regular(path, limit)?)
}

/// As [`read_regular_text`] for a file that the user named, which may be a pipe and is waited for.
pub fn read_text(path: &Path, limit: Bytes) -> Result<String> {
    // Opened without waiting, a pipe would seem to be empty until somebody writes.
    let file = if is_pipe(fs::metadata(path)?.file_type()) { File::open(path)? } else { open_at_once(path)? };
    let file = if is_pipe(file.metadata()?.file_type()) { file } else { regular(file)? };
    text(read_up_to(file, limit)?)
}

#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    // A terminal does not become that of this process, either.
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK | libc::O_NOCTTY)
}

#[cfg(not(unix))]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
fn is_pipe(_: FileType) -> bool {
    false
}

/// The kind is that of the open file: what a path leads to can change at any time.
fn regular(file: File) -> Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let what = if is_pipe(kind) { "a pipe" } else { "a device" };
    let message = format!("is {what}; only a regular file is read here, so copy it into one");
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// The length is not believed: a file may grow, and a pipe has none.
fn read_up_to(file: File, limit: Bytes) -> Result<Vec<u8>> {
    let too_long = || {
        let message = format!("is longer than {limit}, the most that is read of such a file");
        Error::new(ErrorKind::FileTooLarge, message)
    };
    let length = file.metadata()?.len();
    if length > limit.0 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).map_err(|_| too_long())?)?;
    // What comes in addition asks for its memory in a way that may be refused.
    file.take(limit.0.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit.0 { Err(too_long()) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let message = format!("is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to());
        Error::new(ErrorKind::InvalidData, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bytes = Bytes(1000);

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, 1000] {
            fs::write(&path, vec![b'x'; length]).unwrap();
            assert_eq!(read_regular(&path, LIMIT).unwrap().len(), length);
            assert_eq!(read_text(&path, LIMIT).unwrap().len(), length);
        }
        fs::write(&path, vec![b'x'; 1001]).unwrap();
        assert_eq!(read_regular(&path, LIMIT).unwrap_err().kind(), ErrorKind::FileTooLarge);
        // A hole of more bytes than any memory.
        File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        for limit in [DOCUMENT_LIMIT, DESCRIPTION_LIMIT] {
            let error = read_text(&path, limit).unwrap_err();
            assert!(error.to_string().contains(&limit.to_string()), "{error}");
        }
        fs::write(&path, b"abc\xFF").unwrap();
        assert!(read_text(&path, LIMIT).unwrap_err().to_string().contains("byte 3"));
        let error = read_regular(&folder.path().join("none"), LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, link, real] = ["pipe", "link", "real"].map(|name| folder.path().join(name));
        make_pipe(&pipe);
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [&pipe, &link, Path::new("/dev/null")] {
            let error = read_regular(path, LIMIT).unwrap_err();
            assert!(error.to_string().contains("only a regular file"), "{}: {error}", path.display());
            assert!(open_lock(path).is_err(), "{}", path.display());
        }
        assert!(read_text(&link, LIMIT).is_err());
        assert_eq!(read_text(folder.path(), LIMIT).unwrap_err().kind(), ErrorKind::IsADirectory);
        // A link to a file is a file, and a lock leaves what is in it.
        fs::write(&real, "whole").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        open_lock(&link).unwrap();
        assert_eq!(read_regular_text(&link, LIMIT).unwrap(), "whole");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_that_was_named_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        make_pipe(&pipe);
        for (length, is_read) in [(1000, true), (1001, false)] {
            let writer = std::thread::spawn({
                let pipe = pipe.clone();
                move || fs::write(pipe, vec![b'x'; length])
            });
            assert_eq!(read_text(&pipe, LIMIT).is_ok(), is_read, "{length}");
            writer.join().unwrap().unwrap();
        }
    }

    #[cfg(unix)]
    fn make_pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }
}
