//! Files that are replaced whole or not at all: the one place that writes problems, plans, results, weights, checkpoints
//! and caches.
//!
//! A file is written beside its place under a random name, flushed to the disk and renamed, and then the folder is
//! flushed, so that it survives a loss of power. Readers see the old file or the new one. A symbolic link is followed:
//! the file it points to is replaced, and the link stays. Whoever may not read the old file may not read the new one, at
//! no moment. Anything that cannot be replaced (a folder, a pipe, a device) is refused.

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufWriter, Error, ErrorKind, Result, Write as _};
use std::path::{Path, PathBuf};

/// Ends the names of files that are being written. A process that is killed leaves one behind.
pub const PARTIAL: &str = ".partial";

/// Links that lead to links: more than this is a circle.
const MAX_LINKS: usize = 40;

/// Replaces a file by what `write` puts into it.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let target = target(path)?;
    let permissions = permissions(&target);
    let (file, partial) = Partial::beside(&target, permissions.as_ref())?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    let file = file.into_inner()?;
    if let Some(permissions) = permissions {
        // The file may have been made with fewer.
        file.set_permissions(permissions)?;
    }
    file.sync_all()?;
    partial.rename(&target)?;
    sync_folder(folder_of(&target))
}

/// Replaces a file by these bytes.
pub fn replace_bytes(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    replace(path, |file| file.write_all(bytes.as_ref()))
}

/// Fails now rather than after minutes of work when [`replace`] would fail later.
pub fn check_replaceable(path: &Path) -> Result<()> {
    Partial::beside(&target(path)?, None)?.1.remove()
}

/// Makes a folder and the folders above it, so that they survive a loss of power.
pub fn create_folder(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(path)?;
    missing
        .into_iter()
        .filter(|folder| !folder.as_os_str().is_empty())
        .try_for_each(|f| sync_folder(folder_of(f)))
}

/// The file that a path leads to through all links. It need not exist.
fn target(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => target = folder_of(&target).join(fs::read_link(&target)?),
            Ok(found) if found.is_file() => return Ok(target),
            Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(_) => {
                let message = "is not a regular file but a pipe, a socket or a device; give another name";
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(target),
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::InvalidInput, "is a link that leads to itself"))
}

/// Those of a file that is there.
fn permissions(target: &Path) -> Option<Permissions> {
    fs::metadata(target).ok().map(|found| found.permissions())
}

/// Makes a file with these permissions, or with those of any new file. It must not be there yet.
fn create_new(path: &Path, permissions: Option<&Permissions>) -> Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Some(permissions) = permissions {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        options.mode(permissions.mode() & 0o777);
    }
    #[cfg(not(unix))]
    let _ = permissions;
    options.open(path)
}

/// A file that is being written. It is removed when it is dropped before it has its name.
struct Partial {
    path: PathBuf,
    is_there: bool,
}

impl Partial {
    /// A new file in the same folder that no other process uses.
    fn beside(target: &Path, permissions: Option<&Permissions>) -> Result<(File, Partial)> {
        let name = target.file_name().ok_or(ErrorKind::IsADirectory)?.to_string_lossy();
        loop {
            // Hash maps begin with random numbers from the system.
            let random = RandomState::new().build_hasher().finish();
            let path = folder_of(target).join(format!(".{name}.{random:016x}{PARTIAL}"));
            match create_new(&path, permissions) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return Ok((created?, Partial { path, is_there: true })),
            }
        }
    }

    fn rename(mut self, target: &Path) -> Result<()> {
        fs::rename(&self.path, target)?;
        self.is_there = false;
        Ok(())
    }

    fn remove(mut self) -> Result<()> {
        self.is_there = false;
        fs::remove_file(&self.path)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.is_there {
            // What failed before is the error; whoever opens the folder next tidies up.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes renames in a folder durable, where folders can be opened.
fn sync_folder(folder: &Path) -> Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        check_replaceable(&path).unwrap();
        assert!(names(folder.path()).is_empty(), "a probe was left");
        replace_bytes(&path, "first").unwrap();
        replace_bytes(&path, "second").unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"third")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn left_overs_do_not_block_a_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for left_over in [format!(".file.{}.partial", std::process::id()), "file.partial".to_owned()] {
            fs::create_dir(folder.path().join(left_over)).unwrap();
        }
        replace_bytes(&path, "whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_what_is_being_written() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for mode in [0o600, 0o400, 0o664] {
            replace_bytes(&path, "first").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            replace(&path, |file| {
                let partial = file.get_ref().metadata()?.permissions().mode() & 0o777;
                assert_eq!(partial & !mode, 0, "{partial:o} while it is written, {mode:o} in the end");
                file.write_all(b"second")
            })
            .unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let (link, real) = (folder.path().join("link"), inside.join("real"));
        symlink("inside/real", &link).unwrap();
        // The link may come before its file.
        replace_bytes(&link, "first").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o600)).unwrap();
        replace_bytes(&link, "second").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "second");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
        symlink("circle", folder.path().join("circle")).unwrap();
        assert!(replace_bytes(&folder.path().join("circle"), "x").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_refused_and_stays() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&pipe, Path::new("/dev/null"), folder.path()] {
            assert!(check_replaceable(path).is_err(), "{}", path.display());
            assert!(replace_bytes(path, "x").is_err(), "{}", path.display());
        }
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(names(folder.path()), ["pipe"]);
    }
}
