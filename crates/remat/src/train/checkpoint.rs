//! Checkpoints: everything a run needs to go on with the same bits, in one safetensors file.
//!
//! In and out: a [`Session`]. A file holds all state (parameters, statistics, optimizer state, sums over micro-batches) and
//! as notes the step and the [`Identity`] of the run. Data and random numbers are functions of seed and step, so nothing
//! else needs to be kept. State is streamed from and to the arena: no second copy is made.
//!
//! **Crashes.** A file is written beside its place, flushed, renamed, and the folder is flushed; older files are deleted
//! only then. At every moment the newest file under its final name is whole. A hash of all state guards against disks
//! that lie. A lock on the folder keeps two runs from mixing their checkpoints; it ends with the process, however that ends.

use super::{LearningRate, Optimizer, Session};
use crate::error::{Error, Result};
use crate::exec::{Engine as _, as_floats_mut};
use crate::model::weights::{Contents, PARTIAL, WeightFile, save_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const FORMAT: &str = "remat.checkpoint/1";
const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";
const LOCK: &str = ".lock";

/// What must be the same for a run to go on where another stopped. Budget, planner and threads are not among it: they
/// do not change a bit.
#[derive(Clone, PartialEq, Debug)]
pub struct Identity {
    /// The model with all its options.
    pub model: String,
    /// How gradients become updates.
    pub optimizer: Optimizer,
    /// The rate of every step.
    pub learning_rate: LearningRate,
    /// Seed of weights, data and dropout.
    pub seed: u64,
    /// What the data is: its kind and a fingerprint.
    pub data: String,
}

impl Identity {
    /// Names and values as noted in a file.
    fn notes(&self) -> Result<[(&'static str, String); 5]> {
        let json = |text: serde_json::Result<String>| {
            text.map_err(|e| Error::Bug { stage: "checkpoint", faults: vec![e.to_string()] })
        };
        Ok([
            ("model", self.model.clone()),
            ("optimizer", json(serde_json::to_string(&self.optimizer))?),
            ("learning_rate", json(serde_json::to_string(&self.learning_rate))?),
            ("seed", self.seed.to_string()),
            ("data", self.data.clone()),
        ])
    }
}

/// The checkpoints of one run in a folder of their own.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    identity: Identity,
    /// Files that stay; the oldest go first.
    keep: usize,
    _lock: File,
}

impl Checkpoints {
    /// Makes the folder if it is not there, locks it, and removes what a killed run left half written.
    pub fn open(folder: &Path, identity: Identity, keep: usize) -> Result<Checkpoints> {
        let action = |what: &str| format!("{what} the checkpoint folder {}", folder.display());
        std::fs::create_dir_all(folder).map_err(Error::io(action("make")))?;
        let lock = File::create(folder.join(LOCK)).map_err(Error::io(action("write to")))?;
        lock.try_lock().map_err(|e| match e {
            std::fs::TryLockError::WouldBlock => Error::Checkpoint {
                place: folder.display().to_string(),
                message: "is in use by another run; give each run a folder of its own".to_owned(),
            },
            std::fs::TryLockError::Error(e) => Error::io(action("lock"))(e),
        })?;
        for entry in std::fs::read_dir(folder).map_err(Error::io(action("read")))? {
            let entry = entry.map_err(Error::io(action("read")))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && name.ends_with(PARTIAL) {
                std::fs::remove_file(entry.path()).map_err(Error::io(action("tidy up")))?;
            }
        }
        Ok(Checkpoints { folder: folder.to_owned(), identity, keep: keep.max(1), _lock: lock })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the state after the last step and returns where. Older files are removed once the new one is safe.
    pub fn write(&self, session: &Session) -> Result<PathBuf> {
        let step = session.steps_done();
        let path = self.folder.join(format!("{PREFIX}{step:08}{SUFFIX}"));
        let executor = session.executor();
        let mut notes: BTreeMap<&str, String> = self.identity.notes()?.into();
        notes.insert("format", FORMAT.to_owned());
        notes.insert("step", step.to_string());
        notes.insert("state", state_hash(session));
        save_with(executor.graph(), &path, Contents::State, &notes, |s| executor.floats(s.value))?;
        // A later step can only be a broken file that was skipped; it does not count and will be replaced.
        let earlier = list(&self.folder)?.into_iter().filter(|(other, _)| *other < step);
        for (_, old) in earlier.skip(self.keep - 1) {
            std::fs::remove_file(&old).map_err(Error::io(format!("remove {}", old.display())))?;
        }
        Ok(path)
    }

    /// Fills the session from the newest whole checkpoint of `folder` and returns its step; `None` when the folder has
    /// none at all. `warn` is told about every file that is skipped because it is broken. A file of another run is
    /// refused.
    pub fn resume(
        folder: &Path,
        identity: &Identity,
        session: &mut Session,
        mut warn: impl FnMut(String),
    ) -> Result<Option<u64>> {
        let found = list(folder)?;
        for (_, path) in &found {
            match read(path, identity, session) {
                Ok(step) => return Ok(Some(step)),
                Err(error @ Error::Checkpoint { .. }) => return Err(error),
                Err(error) => warn(format!("skipping a broken checkpoint: {error}")),
            }
        }
        match found.len() {
            0 => Ok(None),
            n => Err(Error::Checkpoint {
                place: folder.display().to_string(),
                message: format!("holds {n} checkpoints, and none of them is whole"),
            }),
        }
    }
}

/// Steps and paths of all checkpoints of a folder, newest first.
fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let action = || format!("read the checkpoint folder {}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(action()))? {
        let entry = entry.map_err(Error::io(action()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let step = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
        found.extend(step.and_then(|step| step.parse().ok()).map(|step: u64| (step, entry.path())));
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Reads one file into the session. An error that is [`Error::Checkpoint`] means a whole file of another run.
fn read(path: &Path, identity: &Identity, session: &mut Session) -> Result<u64> {
    let broken =
        |message: &str| Error::Weights { place: path.display().to_string(), message: message.to_owned() };
    let mut file = WeightFile::open_any(path)?;
    let step = file.note("step").and_then(|step| step.parse().ok());
    let (Some(FORMAT), Some(step)) = (file.note("format"), step) else {
        return Err(broken("is no checkpoint of this program"));
    };
    let mut differences = Vec::new();
    for (name, now) in identity.notes()? {
        let then = file.note(name).unwrap_or("nothing");
        if then != now {
            differences.push(format!("{name} was {then}, now it is {now}"));
        }
    }
    if !differences.is_empty() {
        let message = format!(
            "belongs to another run and cannot be continued by this one:\n  {}",
            differences.join("\n  ")
        );
        return Err(Error::Checkpoint { place: path.display().to_string(), message });
    }
    file.check(session.executor().graph(), Contents::State)?;
    let executor = session.executor_mut();
    for source in executor.graph().sources.clone() {
        let value = executor.graph().values[source.value].clone();
        if value.kind.is_state() {
            file.read(&source, &value.ty, as_floats_mut(executor.bytes_mut(source.value)))?;
        }
    }
    if file.note("state") != Some(state_hash(session).as_str()) {
        return Err(broken("is damaged: its contents are not what was written"));
    }
    session.continue_after(step);
    Ok(step)
}

/// A hash of all state, by whole words: gigabytes pass through it.
fn state_hash(session: &Session) -> String {
    let executor = session.executor();
    let graph = executor.graph();
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for source in graph.sources.iter().filter(|s| graph.values[s.value].kind.is_state()) {
        for &element in executor.floats(source.value) {
            hash = (hash.rotate_left(23) ^ u64::from(element.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
    format!("{hash:016x}")
}
