//! One direction of a store: a thread that copies one thing after the other, in the order in which copies were begun.
//!
//! A copy may have to wait for another, begun earlier on either channel. Since everybody waits only for what was begun
//! before, no two channels can wait for each other. After the first failure nothing more is copied, and every wait says so.

use super::Medium;
use super::bounce::Bounce;
use super::setup::Trouble;
use crate::error::{Error, Result};
use remat_plan::Way;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// One copy as it took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What whoever began it calls it.
    pub tag: u32,
    /// The direction.
    pub way: Way,
    /// When the channel began with it.
    pub start: Instant,
    /// When it had ended.
    pub end: Instant,
}

/// A copy that was begun.
#[derive(Clone, Debug)]
pub struct Ticket {
    progress: Arc<Progress>,
    number: u64,
}

impl Ticket {
    /// Waits until the copy has ended, or says why it never will.
    pub fn wait(&self) -> Result<()> {
        self.progress.wait(self.number)
    }

    /// Whether the copy has ended, or never will.
    pub fn has_ended(&self) -> bool {
        let state = self.progress.lock();
        state.n_ended >= self.number || state.failure.is_some()
    }
}

#[derive(Debug)]
pub(super) enum Task {
    Out { from: *const u8, bytes: usize },
    In { to: *mut u8, bytes: usize },
    Fill { bytes: usize, byte: u8 },
}

// SAFETY: whoever begins a copy promises that the memory stays and is not touched until it has ended.
unsafe impl Send for Task {}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) offset: u64,
    pub(super) after: Option<Ticket>,
    pub(super) tag: u32,
}

#[derive(Debug, Default)]
struct State {
    n_ended: u64,
    failure: Option<Failure>,
    copied: Vec<Copied>,
}

/// What is kept of an error, so that everybody who waits can be told.
#[derive(Clone, Debug)]
struct Failure {
    action: String,
    kind: io::ErrorKind,
    message: String,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Io { action: failure.action, cause: io::Error::new(failure.kind, failure.message) }
    }
}

#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, number: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone().into());
            }
            if state.n_ended >= number {
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the thread has nothing left to do, failure or not.
    fn wait_for_all(&self, number: u64) {
        let mut state = self.lock();
        while state.n_ended < number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A copying thread, and how far it is.
#[derive(Debug)]
pub(super) struct Channel {
    /// Gone when the channel is closed.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    n_begun: u64,
    name: String,
}

impl Channel {
    pub(super) fn start(way: Way, store: &str, medium: Arc<Medium>, trouble: Trouble) -> Result<Channel> {
        let (jobs, received) = channel();
        let progress = Arc::new(Progress::default());
        let name = match way {
            Way::Out => format!("write to the store {store}"),
            Way::In => format!("read from the store {store}"),
        };
        let mut copier = Copier {
            way,
            action: name.clone(),
            medium,
            progress: Arc::clone(&progress),
            bounce: Bounce::small(),
            trouble,
            n_copies: 0,
        };
        let thread = std::thread::Builder::new().name(format!("copy {way}"));
        let thread =
            thread.spawn(move || copier.run(&received)).map_err(Error::io("start a copying thread"))?;
        Ok(Channel { jobs: Some(jobs), thread: Some(thread), progress, n_begun: 0, name })
    }

    /// Begins a copy.
    pub(super) fn begin(&mut self, job: Job) -> Result<Ticket> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if !matches!(sent, Some(Ok(()))) {
            self.progress.wait(u64::MAX)?;
        }
        self.n_begun += 1;
        Ok(Ticket { progress: Arc::clone(&self.progress), number: self.n_begun })
    }

    /// Waits until everything that was begun has ended or will never run.
    pub(super) fn finish(&self) -> Result<()> {
        self.progress.wait_for_all(self.n_begun);
        self.progress.wait(self.n_begun)
    }

    pub(super) fn copied(&self) -> Vec<Copied> {
        std::mem::take(&mut self.progress.lock().copied)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the thread that should {} ended early", self.name);
        }
    }
}

/// What the thread works with.
struct Copier {
    way: Way,
    action: String,
    medium: Arc<Medium>,
    progress: Arc<Progress>,
    bounce: Bounce,
    trouble: Trouble,
    n_copies: u64,
}

/// Tells everybody who waits if the thread ends by a panic.
struct Farewell(Arc<Progress>);

impl Drop for Farewell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            let (kind, message) = (io::ErrorKind::Other, "the copying thread has ended".to_owned());
            state.failure.get_or_insert(Failure {
                action: "copy to or from a store".to_owned(),
                kind,
                message,
            });
            state.n_ended = u64::MAX;
            self.0.changed.notify_all();
        }
    }
}

impl Copier {
    fn run(&mut self, jobs: &Receiver<Job>) {
        let _farewell = Farewell(Arc::clone(&self.progress));
        while let Ok(job) = jobs.recv() {
            let is_counted = !matches!(job.task, Task::Fill { .. });
            let failed = self.progress.lock().failure.is_some();
            let (tag, mut start) = (job.tag, Instant::now());
            let result = if failed { Ok(()) } else { self.copy(job, &mut start) };
            let mut state = self.progress.lock();
            match result {
                Ok(()) if is_counted && !failed => {
                    let copied = Copied { tag, way: self.way, start, end: Instant::now() };
                    state.copied.push(copied);
                }
                Ok(()) => {}
                Err(failure) => state.failure = Some(failure),
            }
            state.n_ended += 1;
            self.progress.changed.notify_all();
        }
    }

    fn copy(&mut self, job: Job, start: &mut Instant) -> std::result::Result<(), Failure> {
        if let Some(after) = &job.after {
            let told = |error: Error| Failure {
                action: self.action.clone(),
                kind: io::ErrorKind::Other,
                message: error.to_string(),
            };
            after.wait().map_err(told)?;
        }
        *start = Instant::now();
        let result = match job.task {
            Task::Fill { bytes, byte } => self.fill(job.offset, bytes, byte),
            Task::Out { .. } | Task::In { .. } => self.disturb().and_then(|()| match job.task {
                Task::Out { from, bytes } => {
                    // SAFETY: whoever began the copy keeps the memory as it is until the copy has ended.
                    let from = unsafe { std::slice::from_raw_parts(from, bytes) };
                    self.medium.write(job.offset, from, &mut self.bounce)
                }
                Task::In { to, bytes } => {
                    // SAFETY: whoever began the copy leaves the memory alone until the copy has ended.
                    let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
                    self.medium.read(job.offset, to, &mut self.bounce)
                }
                Task::Fill { .. } => Ok(()),
            }),
        };
        result.map_err(|cause| Failure {
            action: self.action.clone(),
            kind: cause.kind(),
            message: cause.to_string(),
        })
    }

    fn fill(&mut self, offset: u64, bytes: usize, byte: u8) -> io::Result<()> {
        const PIECE: usize = 64 << 10;
        let piece = vec![byte; PIECE.min(bytes)];
        for at in (0..bytes).step_by(PIECE) {
            let piece = &piece[..PIECE.min(bytes - at)];
            self.medium.write(offset + at as u64, piece, &mut self.bounce)?;
        }
        Ok(())
    }

    /// Trouble, where a test wants some.
    fn disturb(&mut self) -> io::Result<()> {
        self.n_copies += 1;
        if self.trouble.fails(self.n_copies) {
            return Err(io::Error::other("injected failure"));
        }
        if !self.trouble.delay.is_zero() {
            std::thread::sleep(self.trouble.delay_of(self.n_copies));
        }
        Ok(())
    }
}
