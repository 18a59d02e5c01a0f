//! Stores: memory outside of the budget, where a step keeps values that it will need later.
//!
//! In: a [`Setup`] (a directory for a scratch file, or memory of the host) and how many bytes are needed. Out: a [`Store`],
//! which copies between memory and itself in two threads of its own, one for each direction, each in the order in which
//! copies were begun. Whoever begins a copy gets a [`Ticket`] and waits for it where the bytes are needed. What goes wrong
//! (a full disk, a failing one, a short read) comes back as an error from the wait: no copy hangs, none is lost silently.
//!
//! Layers: `setup` says what a store is to be, `file` and `host` keep bytes, `channel` copies one after the other.

mod bounce;
mod channel;
mod file;
mod host;
mod setup;

pub use bounce::{DIRECT_BYTES, PAGE};
pub use channel::{Copied, Ticket};
pub use setup::{Kind, Setup, Trouble};

use crate::error::{Error, Result};
use bounce::Bounce;
use channel::{Channel, Job, Task};
use file::ScratchFile;
use host::HostMemory;
use remat_plan::{Bytes, Way};
use std::sync::{Arc, Mutex};

/// What keeps the bytes.
#[derive(Debug)]
enum Medium {
    File(ScratchFile),
    Host(HostMemory),
}

impl Medium {
    fn write(&self, offset: u64, from: &[u8], bounce: &mut Bounce) -> std::io::Result<()> {
        match self {
            Medium::File(file) => file.write(offset, from, bounce),
            Medium::Host(memory) => memory.write(offset, from),
        }
    }

    fn read(&self, offset: u64, to: &mut [u8], bounce: &mut Bounce) -> std::io::Result<()> {
        match self {
            Medium::File(file) => file.read(offset, to, bounce),
            Medium::Host(memory) => memory.read(offset, to),
        }
    }
}

/// An open store with its two copying threads. Dropping it waits for the copies that are under way.
#[derive(Debug)]
pub struct Store {
    name: String,
    // The channels are dropped first: their threads use the medium.
    out: Channel,
    back: Channel,
    medium: Arc<Medium>,
    /// For what is read and written between steps.
    bounce: Mutex<Bounce>,
}

impl Store {
    /// Reserves the space and starts the threads.
    pub fn open(setup: &Setup, size: Bytes) -> Result<Store> {
        let medium = Arc::new(match &setup.kind {
            Kind::File(directory) => Medium::File(ScratchFile::create(directory, size, setup.trouble)?),
            Kind::Host => Medium::Host(HostMemory::new(size)?),
        });
        let name = setup.kind.to_string();
        let channel =
            |way: Way| Channel::start(way, &name, Arc::clone(&medium), setup.trouble.of_channel(way));
        let (out, back) = (channel(Way::Out)?, channel(Way::In)?);
        Ok(Store { name, out, back, medium, bounce: Mutex::new(Bounce::large()) })
    }

    /// What the user should know about how bytes are kept, where it is not what a store promises.
    pub fn warning(&self) -> Option<String> {
        match &*self.medium {
            Medium::File(file) => file.warning().map(|warning| format!("the store {}: {warning}", self.name)),
            Medium::Host(_) => None,
        }
    }

    /// Begins to copy memory to an offset of the store, once `after` has ended.
    ///
    /// # Safety
    ///
    /// Until the ticket has been waited for, with or without an error, the memory stays where it is, and nothing writes to it.
    pub unsafe fn copy_out(
        &mut self,
        from: (*const u8, u64),
        offset: u64,
        after: Option<&Ticket>,
        tag: u32,
    ) -> Result<Ticket> {
        let task = Task::Out { from: from.0, bytes: from.1 as usize };
        self.out.begin(Job { task, offset, after: after.cloned(), tag })
    }

    /// Begins to copy from an offset of the store into memory, once `after` has ended.
    ///
    /// # Safety
    ///
    /// Until the ticket has been waited for, with or without an error, the memory stays where it is, and nothing else reads
    /// or writes it.
    pub unsafe fn copy_in(
        &mut self,
        offset: u64,
        to: (*mut u8, u64),
        after: Option<&Ticket>,
        tag: u32,
    ) -> Result<Ticket> {
        let task = Task::In { to: to.0, bytes: to.1 as usize };
        self.back.begin(Job { task, offset, after: after.cloned(), tag })
    }

    /// Fills a part of the store with one byte, in turn with the copies out.
    pub fn fill(&mut self, offset: u64, bytes: u64, byte: u8) -> Result<()> {
        let task = Task::Fill { bytes: bytes as usize, byte };
        self.out.begin(Job { task, offset, after: None, tag: u32::MAX }).map(|_| ())
    }

    /// Waits until nothing is under way and says what failed, if anything did.
    pub fn finish(&self) -> Result<()> {
        // Both, even if the first has failed: afterwards no thread touches anybody's memory.
        let (out, back) = (self.out.finish(), self.back.finish());
        out.and(back)
    }

    /// The copies since this was last asked, in the order of their ends per direction.
    pub fn copied(&self) -> Vec<Copied> {
        let mut copied = self.out.copied();
        copied.extend(self.back.copied());
        copied
    }

    /// Reads bytes at any offset, now. Nothing may be under way.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let read = |medium: &Medium, bounce: &mut Bounce| match medium {
            Medium::File(file) => file.read_part(offset, to, bounce),
            Medium::Host(memory) => memory.read(offset, to),
        };
        self.now(read, "read")
    }

    /// Writes these bytes and no others at any offset, now. Nothing may be under way.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let write = |medium: &Medium, bounce: &mut Bounce| match medium {
            Medium::File(file) => file.write_part(offset, from, bounce),
            Medium::Host(memory) => memory.write(offset, from),
        };
        self.now(write, "write")
    }

    fn now(&self, act: impl FnOnce(&Medium, &mut Bounce) -> std::io::Result<()>, what: &str) -> Result<()> {
        let mut bounce = self.bounce.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(&self.medium, &mut bounce).map_err(Error::io(format!("{what} the store {}", self.name)))
    }
}

#[cfg(test)]
mod tests;
