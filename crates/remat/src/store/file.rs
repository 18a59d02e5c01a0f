//! A scratch file: reserved before the first step, without a name, written past the page cache.
//!
//! The file has no name in its directory (or loses it at once), so nothing is left behind however the process ends. Its
//! space is reserved when it is made: a full disk is known before the first step. Direct I/O keeps the page cache, which is
//! memory that no budget counts, out of it. A file system without direct I/O is used all the same: every write is flushed,
//! its pages are given back, and [`ScratchFile::warning`] says so.

use super::bounce::{Bounce, PAGE};
use super::setup::Trouble;
use crate::error::{Error, Result};
use remat_plan::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;

#[derive(Debug)]
pub(super) struct ScratchFile {
    file: File,
    is_direct: bool,
    warning: Option<&'static str>,
}

impl ScratchFile {
    /// Makes the file and reserves its space.
    pub(super) fn create(directory: &Path, size: Bytes, trouble: Trouble) -> Result<ScratchFile> {
        let place = directory.display();
        let opened = match trouble.no_direct_io {
            true => system::open(directory, false).map(|file| (file, false)),
            false => match system::open(directory, true) {
                Ok(file) => Ok((file, true)),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    system::open(directory, false).map(|file| (file, false))
                }
                Err(error) => Err(error),
            },
        };
        let (file, is_direct) = opened.map_err(|cause| {
            let action = format!("make a scratch file in {place} (a store is a directory, or `host`)");
            Error::Io { action, cause }
        })?;
        system::reserve(&file, size.0).map_err(|cause| {
            let advice = "use a directory with more space, or a larger budget, which moves less";
            Error::Io { action: format!("reserve {size} for the store in {place}; {advice}"), cause }
        })?;
        let warning = match (system::is_memory(&file), is_direct) {
            (true, _) => Some("its file system keeps files in memory, which the budget does not count"),
            (false, false) => Some(
                "its file system has no direct I/O; every write is flushed and its pages are given back, which is slower, \
                 and pages on their way are memory that the budget does not count",
            ),
            (false, true) => None,
        };
        Ok(ScratchFile { file, is_direct, warning })
    }

    pub(super) fn warning(&self) -> Option<&'static str> {
        self.warning
    }

    /// Writes at an offset that is a multiple of a page. The rest of the last page is the writer's, too.
    pub(super) fn write(&self, offset: u64, from: &[u8], bounce: &mut Bounce) -> io::Result<()> {
        check_offset(offset)?;
        if !self.is_direct {
            system::write_all(&self.file, from, offset)?;
            return system::flush(&self.file, offset, from.len() as u64);
        }
        let (whole, rest) = from.split_at(direct_bytes(from.as_ptr(), from.len()));
        system::write_all(&self.file, whole, offset)?;
        let mut at = offset + whole.len() as u64;
        let buffer = bounce.bytes();
        for piece in rest.chunks(buffer.len()) {
            buffer[..piece.len()].copy_from_slice(piece);
            let pages = piece.len().next_multiple_of(PAGE as usize);
            system::write_all(&self.file, &buffer[..pages], at)?;
            at += pages as u64;
        }
        Ok(())
    }

    /// Reads at an offset that is a multiple of a page.
    pub(super) fn read(&self, offset: u64, to: &mut [u8], bounce: &mut Bounce) -> io::Result<()> {
        check_offset(offset)?;
        if !self.is_direct {
            let bytes = to.len() as u64;
            system::read_all(&self.file, to, offset)?;
            return system::give_back(&self.file, offset, bytes);
        }
        let n_direct = direct_bytes(to.as_ptr(), to.len());
        let (whole, rest) = to.split_at_mut(n_direct);
        system::read_all(&self.file, whole, offset)?;
        let mut at = offset + n_direct as u64;
        let buffer = bounce.bytes();
        for piece in rest.chunks_mut(buffer.len()) {
            let pages = piece.len().next_multiple_of(PAGE as usize);
            system::read_all(&self.file, &mut buffer[..pages], at)?;
            piece.copy_from_slice(&buffer[..piece.len()]);
            at += pages as u64;
        }
        Ok(())
    }
}

impl ScratchFile {
    /// Reads bytes at any offset.
    pub(super) fn read_part(&self, offset: u64, to: &mut [u8], bounce: &mut Bounce) -> io::Result<()> {
        let buffer = bounce.bytes();
        for window in Window::all(offset, to.len(), buffer.len()) {
            let pages = &mut buffer[..window.pages];
            system::read_all(&self.file, pages, window.start)?;
            to[window.first..][..window.bytes].copy_from_slice(&pages[window.skipped..][..window.bytes]);
            if !self.is_direct {
                system::give_back(&self.file, window.start, window.pages as u64)?;
            }
        }
        Ok(())
    }

    /// Writes bytes at any offset; the rest of the first and of the last page keeps what it holds.
    pub(super) fn write_part(&self, offset: u64, from: &[u8], bounce: &mut Bounce) -> io::Result<()> {
        let buffer = bounce.bytes();
        for window in Window::all(offset, from.len(), buffer.len()) {
            let pages = &mut buffer[..window.pages];
            if window.bytes < window.pages {
                system::read_all(&self.file, pages, window.start)?;
            }
            pages[window.skipped..][..window.bytes].copy_from_slice(&from[window.first..][..window.bytes]);
            system::write_all(&self.file, pages, window.start)?;
            if !self.is_direct {
                system::flush(&self.file, window.start, window.pages as u64)?;
            }
        }
        Ok(())
    }
}

/// Whole pages of the file that hold a part of what is read or written.
struct Window {
    /// Where the pages begin in the file, and their bytes.
    start: u64,
    pages: usize,
    /// Bytes of the pages before the part.
    skipped: usize,
    /// Where the part begins in what is read or written, and its bytes.
    first: usize,
    bytes: usize,
}

impl Window {
    /// Windows of at most `most` bytes of pages that cover `bytes` bytes at an offset.
    fn all(offset: u64, bytes: usize, most: usize) -> impl Iterator<Item = Window> {
        let mut first = 0;
        std::iter::from_fn(move || {
            if first == bytes {
                return None;
            }
            let at = offset + first as u64;
            let skipped = (at % PAGE) as usize;
            let part = (bytes - first).min(most - skipped);
            let pages = (skipped + part).next_multiple_of(PAGE as usize);
            let window = Window { start: at - skipped as u64, pages, skipped, first, bytes: part };
            first += part;
            Some(window)
        })
    }
}

/// How many of the bytes can be copied without a detour: the whole pages of an aligned buffer.
fn direct_bytes(address: *const u8, bytes: usize) -> usize {
    if address.addr().is_multiple_of(PAGE as usize) { bytes - bytes % PAGE as usize } else { 0 }
}

fn check_offset(offset: u64) -> io::Result<()> {
    match offset.is_multiple_of(PAGE) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "an offset that is no multiple of a page")),
    }
}

/// What all Unix systems do alike.
#[cfg(unix)]
mod transfer {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt as _;

    pub(super) fn write_all(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    pub(super) fn read_all(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }

    /// A file that loses its name at once.
    pub(super) fn open_and_unlink(
        directory: &std::path::Path,
        options: &std::fs::OpenOptions,
    ) -> io::Result<File> {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let number = RandomState::new().build_hasher().finish();
        let path = directory.join(format!(".remat-store-{}-{number:016x}", std::process::id()));
        let file = options.open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }
}

#[cfg(target_os = "linux")]
mod system {
    pub(super) use super::transfer::{read_all, write_all};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;

    pub(super) fn open(directory: &Path, is_direct: bool) -> io::Result<File> {
        let direct = if is_direct { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        match options.custom_flags(libc::O_TMPFILE | direct).open(directory) {
            // A file system that cannot make files without a name.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                let options = options.create_new(true).custom_flags(direct);
                super::transfer::open_and_unlink(directory, options)
            }
            opened => opened,
        }
    }

    pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
        let Ok(len) = libc::off64_t::try_from(bytes) else {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        };
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the descriptor is open.
        match unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, len) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // A file system that cannot reserve; then a full disk is found by the write that meets it.
                error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes),
                error => Err(error),
            },
        }
    }

    /// Whether the file system is memory.
    pub(super) fn is_memory(file: &File) -> bool {
        // SAFETY: the structure is plain data that the call fills.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and the structure is ours.
        let answer = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
        answer == 0 && matches!(found.f_type, libc::TMPFS_MAGIC | RAMFS_MAGIC)
    }

    const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

    /// Waits until what was written is on the disk, and gives its pages back.
    pub(super) fn flush(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: the descriptor is open.
        match unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, bytes as i64, how) } {
            0 => give_back(file, offset, bytes),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn give_back(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        let advice = libc::POSIX_FADV_DONTNEED;
        // SAFETY: the descriptor is open.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, bytes as i64, advice) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod system {
    pub(super) use super::transfer::{read_all, write_all};
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::path::Path;

    /// Direct I/O is asked for in another way on each of these systems; none is tried here.
    pub(super) fn open(directory: &Path, is_direct: bool) -> io::Result<File> {
        if is_direct {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        super::transfer::open_and_unlink(
            directory,
            OpenOptions::new().read(true).write(true).create_new(true),
        )
    }

    pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    pub(super) fn is_memory(_file: &File) -> bool {
        false
    }

    pub(super) fn flush(file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        file.sync_data()
    }

    pub(super) fn give_back(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn open(_directory: &Path, _is_direct: bool) -> io::Result<File> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a store in a file needs a Unix system; use `host`"))
    }

    pub(super) fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn is_memory(_file: &File) -> bool {
        false
    }

    pub(super) fn write_all(_file: &File, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(super) fn read_all(_file: &File, _bytes: &mut [u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(super) fn flush(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn give_back(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}
