//! Checkpoints: everything a run needs to continue with the same bits, in one safetensors file.
//!
//! In and out: a [`Session`]. A file holds all state (parameters, statistics, optimizer state, sums over micro-batches) and
//! as notes the step and the [`Identity`] of the run. Data and random numbers are functions of seed and step, so nothing
//! else needs to be kept. State is streamed from and to the arena, or the store where it rests: no second copy is made.
//!
//! **Crashes.** A file appears complete or not at all ([`files`]); older files are deleted only then. At every moment the
//! newest file under its final name is whole. Hashes of the file's tensors and notes ([`weights`](crate::weights)) and of the
//! state in memory guard against disks that lie and against edits, whether the file is to be continued or only used. A
//! damaged file is skipped with a warning; when the operating system fails to read one, resuming
//! stops, because the next attempt may succeed. A lock on the folder keeps two runs from mixing their checkpoints; it
//! ends with the process, however that ends.
//!
//! **Divergence.** The newest checkpoint whose state is finite is never removed.

use super::{Identity, Schedule, Session};
use crate::error::{Error, Result};
use crate::exec::Engine as _;
use crate::files;
use crate::graph::Source;
use crate::weights::{Contents, WeightFile, row_elements, save_with};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Adds `notes`, the hash of all other notes, and `finite` to the first version; later files have `tensors` and `graph` too.
const FORMAT: &str = "remat.checkpoint/2";
const FIRST_FORMAT: &str = "remat.checkpoint/1";
const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";
const LOCK: &str = ".lock";
/// The note of the arithmetic that trained a state; files without it have the first version.
const NUMERICS: &str = "numerics";

/// A checkpoint whose weights can be used.
#[derive(Debug)]
pub struct Newest {
    /// The file.
    pub path: PathBuf,
    /// The file, open and verified.
    pub weights: WeightFile,
    /// The model that wrote it, with its options.
    pub model: String,
    /// Newer files that are damaged, each with what is wrong.
    pub damaged: Vec<String>,
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
    /// The folder of a run that begins. It is made if it is missing, and refused if it holds checkpoints already.
    pub fn create(folder: &Path, identity: Identity, keep: usize) -> Result<Checkpoints> {
        let checkpoints = Checkpoints::open(folder, identity, keep)?;
        match list(folder)?.first() {
            None => Ok(checkpoints),
            Some((step, _)) => Err(Error::Checkpoint {
                place: folder.display().to_string(),
                message: format!(
                    "already holds the checkpoints of a run, up to step {step}; continue that run with --resume {}, \
                     or give another folder",
                    folder.display()
                ),
            }),
        }
    }

    /// The folder of a run that is resumed: locks it and removes what a killed run left half written.
    pub fn open(folder: &Path, identity: Identity, keep: usize) -> Result<Checkpoints> {
        let action = |what: &str| format!("{what} the checkpoint folder {}", folder.display());
        files::create_folder(folder).map_err(Error::io(action("make")))?;
        let lock = files::open_lock(&folder.join(LOCK)).map_err(Error::io(action("lock")))?;
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
            if name.trim_start_matches('.').starts_with(PREFIX) && name.ends_with(files::PARTIAL) {
                std::fs::remove_file(entry.path()).map_err(Error::io(action("tidy up")))?;
            }
        }
        Ok(Checkpoints { folder: folder.to_owned(), identity, keep: keep.max(1), _lock: lock })
    }

    /// The newest whole checkpoint of a folder, for using its weights.
    pub fn newest(folder: &Path) -> Result<Newest> {
        let missing = |message: &str| Error::Checkpoint {
            place: folder.display().to_string(),
            message: message.to_owned(),
        };
        if !folder.is_dir() {
            return Err(missing("is not a folder of a run; `remat train --checkpoint` writes one"));
        }
        let mut damaged = Vec::new();
        for (step, path) in list(folder)? {
            match open_whole(&path, step) {
                Ok(weights) => {
                    let model = weights.notes().get("model").copied().unwrap_or_default().to_owned();
                    return Ok(Newest { path, weights, model, damaged });
                }
                // A file that was cut off or changed; an older one may be whole.
                Err(error @ Error::Weights { .. }) => damaged.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Err(missing(match damaged.first() {
            Some(_) => "holds checkpoints, but all of them are damaged",
            None => "holds no checkpoint; `remat train --checkpoint` writes some",
        }))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the state after the last step and returns where. Older files are removed once the new one is safe. Fails
    /// where a step has ended in its middle: that state belongs to no step.
    pub fn write(&self, session: &Session) -> Result<PathBuf> {
        session.check_state()?;
        let step = session.steps_done();
        let path = self.folder.join(format!("{PREFIX}{step:08}{SUFFIX}"));
        let (hash, is_finite) = session.state_facts()?;
        let mut notes = self.identity.notes()?;
        notes.insert("format", FORMAT.to_owned());
        notes.insert("step", step.to_string());
        notes.insert("state", format!("{hash:016x}"));
        notes.insert(NUMERICS, remat_kernels::NUMERICS.to_string());
        notes.insert("finite", (if is_finite { "yes" } else { "no" }).to_owned());
        let executor = session.executor();
        let read =
            |source: &Source, first: usize, out: &mut [f32]| executor.read_floats(source.value, first, out);
        save_with(executor.graph(), &path, Contents::State, &notes, read)?;
        self.remove_old(step, is_finite)?;
        Ok(path)
    }

    /// Removes what comes before the newest files, but never the newest finite one.
    fn remove_old(&self, step: u64, is_finite: bool) -> Result<()> {
        // A later step can only be a broken file that was skipped; it does not count and will be replaced.
        let earlier = list(&self.folder)?.into_iter().filter(|(other, _)| *other < step);
        let mut has_finite = is_finite;
        for (position, (step, old)) in earlier.enumerate() {
            let is_needed = !has_finite && holds_finite_state(&old, step)?;
            has_finite |= is_needed;
            if position + 1 >= self.keep && !is_needed {
                std::fs::remove_file(&old).map_err(Error::io(format!("remove {}", old.display())))?;
            }
        }
        Ok(())
    }

    /// Fills the session from the newest whole checkpoint of `folder` and returns its step; `None` when the folder has
    /// none at all. `warn` is told about every file that is skipped because it is damaged, and about a state that was
    /// trained with other arithmetic. A file of another run is
    /// refused, and so is one that the operating system cannot read now.
    pub fn resume(
        folder: &Path,
        identity: &Identity,
        schedule: Schedule,
        session: &mut Session,
        mut warn: impl FnMut(String),
    ) -> Result<Option<u64>> {
        let found = list(folder)?;
        for (step, path) in &found {
            match read(path, *step, identity, schedule, session) {
                Ok(arithmetic) => {
                    arithmetic.into_iter().for_each(warn);
                    return Ok(Some(*step));
                }
                Err(error @ Error::Weights { .. }) => warn(format!("skipping a damaged checkpoint: {error}")),
                Err(error) => return Err(error),
            }
        }
        match found.len() {
            0 => Ok(None),
            n => Err(Error::Checkpoint {
                place: folder.display().to_string(),
                message: format!("holds {n} checkpoints, and all of them are damaged"),
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

/// Opens the file of a step and reads all of it once: only a damaged file is [`Error::Weights`].
fn open_whole(path: &Path, step: u64) -> Result<WeightFile> {
    let damaged =
        |message: &str| Error::Weights { place: path.display().to_string(), message: message.to_owned() };
    let mut file = WeightFile::open_any(path)?;
    file.verify()?;
    let notes = file.notes();
    let is_ours = match notes.get("format").copied() {
        // The first version did not guard its notes.
        Some(FIRST_FORMAT) => true,
        Some(FORMAT) => notes.contains_key("notes"),
        _ => false,
    };
    if !is_ours {
        return Err(damaged("is no checkpoint of this program"));
    }
    // The name says the step too.
    if notes.get("step").copied() != Some(step.to_string().as_str()) {
        return Err(damaged("is damaged: it is not that of the step that its name says"));
    }
    Ok(file)
}

/// Reads the file of a step into the session, and says if its bits may not be those of a run that never stopped. Only a
/// damaged file is [`Error::Weights`].
fn read(
    path: &Path,
    step: u64,
    identity: &Identity,
    schedule: Schedule,
    session: &mut Session,
) -> Result<Option<String>> {
    let place = || path.display().to_string();
    let mut file = open_whole(path, step)?;
    let notes = file.notes();
    if let Some(message) = identity.refuses(&notes, schedule)? {
        return Err(Error::Checkpoint { place: place(), message });
    }
    let state = notes.get("state").map(|&hash| hash.to_owned());
    let (then, now) = (notes.get(NUMERICS).map_or("1", |v| v), remat_kernels::NUMERICS.to_string());
    let arithmetic = (then != now).then(|| {
        format!(
            "{} was trained with other arithmetic (version {then}, now {now}): the run continues, but not with the bits \
             of one that never stopped",
            place()
        )
    });
    file.check(session.executor().graph(), Contents::State)?;
    session.lose_state(format!("{} was not read to its end", place()));
    let executor = session.executor_mut();
    for source in executor.graph().sources.clone() {
        let value = executor.graph().values[source.value].clone();
        if value.kind.is_state() {
            let row = row_elements(&source, &value.ty);
            let mut read = |first: usize, out: &mut [f32]| file.read(&source, &value.ty, first, out);
            executor.fill_floats(source.value, row, &mut read)?;
        }
    }
    if state != Some(format!("{:016x}", session.state_hash()?)) {
        let message = "is damaged: what was read of it is not what was written".to_owned();
        return Err(Error::Weights { place: place(), message });
    }
    session.continue_after(step);
    Ok(arithmetic)
}

/// Whether a file is there to go back to after training has diverged. The first version did not note it.
fn holds_finite_state(path: &Path, step: u64) -> Result<bool> {
    match open_whole(path, step) {
        Ok(file) => Ok(file.notes().get("finite") != Some(&"no")),
        Err(Error::Weights { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
