//! Speeds that are measured once per machine and kept in the user's cache folder.
//!
//! Measuring takes seconds and is never twice the same, so two plans for one model would differ for no reason. The
//! file is named after everything that the speeds depend on: the processor, the instruction set, the number of
//! threads, the version of this program, the ops that are measured and the file's form. A file that cannot be read or
//! written costs time, not correctness.

use super::{Machine, calibrate};
use crate::error::Result;
use crate::files;
use etcetera::BaseStrategy as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::{DefaultHasher, Hash, Hasher as _};
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
    /// `progress` is told how many of how many ops are measured, if they are.
    pub fn load(n_threads: usize, progress: impl FnMut(usize, usize) + Send) -> Result<(Machine, Origin)> {
        match folder().and_then(|folder| kept(&folder, n_threads)) {
            Some((machine, path)) => Ok((machine, Origin::Kept(path))),
            None => Machine::remeasure(n_threads, progress),
        }
    }

    /// Measures again and replaces what was kept.
    pub fn remeasure(
        n_threads: usize,
        progress: impl FnMut(usize, usize) + Send,
    ) -> Result<(Machine, Origin)> {
        let machine = Machine::measure(n_threads, progress)?;
        let origin = keep_as(&file_name(n_threads), &machine);
        Ok((machine, origin))
    }
}

/// The folder for files that can be made again.
fn folder() -> Option<PathBuf> {
    etcetera::choose_base_strategy().ok().map(|strategy| strategy.cache_dir().join("remat"))
}

/// What an earlier run kept, and where, unless it is damaged.
fn kept(folder: &Path, n_threads: usize) -> Option<(Machine, PathBuf)> {
    let is_sane = |machine: &Machine| machine.n_threads == n_threads && machine.is_plausible();
    kept_in(folder, &file_name(n_threads), is_sane)
}

fn kept_in<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    is_sane: impl Fn(&T) -> bool,
) -> Option<(T, PathBuf)> {
    let path = folder.join(name);
    let kept: T = serde_json::from_slice(&files::read_regular(&path, files::DESCRIPTION_LIMIT).ok()?).ok()?;
    is_sane(&kept).then_some((kept, path))
}

/// What an earlier run kept under a name, and where, unless it is damaged.
pub(super) fn kept_as<T: DeserializeOwned>(name: &str, is_sane: impl Fn(&T) -> bool) -> Option<(T, PathBuf)> {
    kept_in(&folder()?, name, is_sane)
}

/// Keeps something under a name.
pub(super) fn keep_as<T: Serialize>(name: &str, what: &T) -> Origin {
    match folder() {
        Some(folder) => keep_in(&folder, name, what),
        None => Origin::NotKept("there is no cache folder; set XDG_CACHE_HOME or HOME".to_owned()),
    }
}

/// The name of a file with speeds that depend on this machine, this program and something else.
pub(super) fn name_of(what: &str, n_threads: usize, beside: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (processor(), std::thread::available_parallelism().ok(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    (cfg!(debug_assertions), remat_kernels::isa::current().name()).hash(&mut hasher);
    beside.hash(&mut hasher);
    format!("{what}-{FORM}-{n_threads}-{:016x}.json", hasher.finish())
}

fn file_name(n_threads: usize) -> String {
    name_of("machine", n_threads, &calibrate::ops())
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

fn keep_in<T: Serialize>(folder: &Path, name: &str, what: &T) -> Origin {
    let path = folder.join(name);
    let write = || -> std::io::Result<()> {
        files::create_folder(folder)?;
        files::replace_bytes(&path, serde_json::to_vec_pretty(what)?)
    };
    match write() {
        Ok(()) => Origin::Measured(path),
        Err(error) => Origin::NotKept(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Speed;

    fn keep(machine: &Machine, folder: &Path) -> Origin {
        keep_in(folder, &file_name(machine.n_threads), machine)
    }

    #[test]
    fn speeds_are_kept_and_a_damaged_file_is_measured_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let known = Machine { flops: 123e9, ..Machine::nominal(1) };
        let Origin::Measured(path) = keep(&known, folder.path()) else { panic!("the folder is writable") };
        assert_eq!(kept(folder.path(), 1), Some((known.clone(), path.clone())));
        assert_eq!(kept(folder.path(), 2), None, "speeds of another number of threads");
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");

        for damaged in ["", "{}", "{\"n_threads\":1"] {
            std::fs::write(&path, damaged).expect("writable");
            assert_eq!(kept(folder.path(), 1), None, "{damaged}");
        }
        let slow = |speed| Machine { speeds: [("relu".to_owned(), speed)].into(), ..known.clone() };
        let impossible = [
            Machine { flops: 0.0, ..known.clone() },
            slow(Speed::Flops(-1.0)),
            slow(Speed::Bytes { near: 1e10, far: 0.0 }),
            Machine { overhead: 1e308, ..known.clone() },
            Machine { bandwidth: 1e-300, ..known.clone() },
        ];
        for machine in impossible {
            keep(&machine, folder.path());
            assert_eq!(kept(folder.path(), 1), None, "{machine:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(file_name(1));
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        assert_eq!(kept(folder.path(), 1), None);
        std::fs::remove_file(&path).expect("removable");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        assert_eq!(kept(folder.path(), 1), None);
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
