//! Speeds that are measured once per machine and kept in the user's cache folder.
//!
//! Measuring takes seconds and is never twice the same, so two plans for one model would differ for no reason. The
//! file is named after everything that the speeds depend on: the processor, the number of threads, the version of
//! this program, the ops that are measured and the file's form. It is written under another name first and then renamed, so that a reader
//! never sees half of it. A file that cannot be read or written costs time, not correctness.

use super::{Machine, calibrate};
use crate::error::Result;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Changes when the meaning of the file does.
const FORM: u32 = 1;

/// Where speeds came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From this file.
    Kept(PathBuf),
    /// Measured now and written to this file.
    Measured(PathBuf),
    /// Measured now; the next run measures again, for this reason.
    NotKept(String),
}

impl Machine {
    /// The speeds of this machine with `n_threads` threads: kept from an earlier run, or measured and then kept.
    pub fn load(n_threads: usize) -> Result<(Machine, Origin)> {
        match folder() {
            Some(folder) => Machine::load_from(&folder, n_threads),
            None => {
                let reason = "there is no cache folder; set XDG_CACHE_HOME or HOME".to_owned();
                Ok((Machine::measure(n_threads)?, Origin::NotKept(reason)))
            }
        }
    }

    /// Measures again and replaces what was kept.
    pub fn remeasure(n_threads: usize) -> Result<(Machine, Origin)> {
        let machine = Machine::measure(n_threads)?;
        let origin = match folder() {
            Some(folder) => keep(&machine, &folder),
            None => Origin::NotKept("there is no cache folder; set XDG_CACHE_HOME or HOME".to_owned()),
        };
        Ok((machine, origin))
    }

    fn load_from(folder: &Path, n_threads: usize) -> Result<(Machine, Origin)> {
        let path = folder.join(file_name(n_threads));
        let kept = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Machine>(&bytes).ok());
        if let Some(machine) = kept.filter(|machine| machine.n_threads == n_threads && machine.is_sane()) {
            return Ok((machine, Origin::Kept(path)));
        }
        let machine = Machine::measure(n_threads)?;
        let origin = keep(&machine, folder);
        Ok((machine, origin))
    }

    /// False for speeds that no measurement gives, such as those of a damaged file.
    fn is_sane(&self) -> bool {
        [self.flops, self.bandwidth, self.overhead].iter().all(|&x| x.is_finite() && x > 0.0)
    }
}

/// The folder for files that can be made again.
fn folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("LOCALAPPDATA"));
    cache.or_else(|| variable("HOME").map(|home| home.join(".cache"))).map(|cache| cache.join("remat"))
}

fn file_name(n_threads: usize) -> String {
    let mut hasher = DefaultHasher::new();
    (processor(), std::thread::available_parallelism().ok(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    cfg!(debug_assertions).hash(&mut hasher);
    calibrate::ops().hash(&mut hasher);
    format!("machine-{FORM}-{n_threads}-{:016x}.json", hasher.finish())
}

/// What the operating system calls the processor.
fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = |line: &&str| line.starts_with("model name") || line.starts_with("flags");
    let mut lines: Vec<&str> = known.lines().filter(names).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.join("\n") + std::env::consts::ARCH
}

fn keep(machine: &Machine, folder: &Path) -> Origin {
    let path = folder.join(file_name(machine.n_threads));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile_in(folder)?;
        file.1.write_all(&serde_json::to_vec_pretty(machine)?)?;
        file.1.sync_all()?;
        std::fs::rename(&file.0, &path)
    };
    match write() {
        Ok(()) => Origin::Measured(path),
        Err(error) => Origin::NotKept(format!("{}: {error}", path.display())),
    }
}

/// A new file that no other process has.
fn tempfile_in(folder: &Path) -> std::io::Result<(PathBuf, std::fs::File)> {
    let path = folder.join(format!(".machine-{}-{:?}", std::process::id(), std::thread::current().id()));
    Ok((path.clone(), std::fs::File::create(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_kept_and_a_damaged_file_is_measured_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let known = Machine { flops: 123.0, ..Machine::nominal(1) };
        let Origin::Measured(path) = keep(&known, folder.path()) else { panic!("the folder is writable") };
        let (again, origin) = Machine::load_from(folder.path(), 1).expect("a small pool starts");
        assert_eq!((again, origin), (known, Origin::Kept(path.clone())));
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");

        for damaged in ["", "{}", "{\"n_threads\":1"] {
            std::fs::write(&path, damaged).expect("writable");
            let kept = std::fs::read(&path).expect("readable");
            assert!(serde_json::from_slice::<Machine>(&kept).is_err(), "{damaged}");
        }
        let impossible = Machine { flops: 0.0, ..Machine::nominal(1) };
        assert!(!impossible.is_sane());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_and_does_no_harm() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("not a folder");
        std::fs::write(&file, "").expect("writable");
        assert!(
            matches!(keep(&Machine::nominal(1), &file), Origin::NotKept(reason) if reason.contains("not a folder"))
        );
    }
}
