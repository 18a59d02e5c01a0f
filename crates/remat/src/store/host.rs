//! Memory of the host as a store.

use crate::error::{Error, Result};
use memmap2::{MmapMut, MmapRaw};
use remat_plan::Bytes;
use std::io;

/// Memory that the budget does not count.
#[derive(Debug)]
pub(super) struct HostMemory {
    map: MmapRaw,
    len: usize,
}

impl HostMemory {
    pub(super) fn new(size: Bytes) -> Result<HostMemory> {
        let len = usize::try_from(size.0).map_err(|_| Error::TooLarge { shape: vec![] })?;
        let map = MmapMut::map_anon(len.max(1));
        let map = map.map_err(Error::io(format!("reserving {size} of memory for the store host")))?;
        make_resident(&map);
        Ok(HostMemory { map: MmapRaw::from(map), len })
    }

    /// Where a part begins.
    fn range(&self, offset: u64, bytes: usize) -> io::Result<*mut u8> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(bytes));
        match end {
            Some(end) if end <= self.len => Ok(self.map.as_mut_ptr().wrapping_add(end - bytes)),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "outside of the store")),
        }
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let to = self.range(offset, from.len())?;
        // SAFETY: the range lies inside the mapping, which is nobody else's memory. Different slots do not overlap, and
        // the program waits for a copy of a slot before it begins the next of the same slot.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let from = self.range(offset, to.len())?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}

/// Asks for all pages at once, so that the first copy is as fast as the others. It is advice, which an older system refuses.
#[cfg(all(target_os = "linux", not(miri)))]
fn make_resident(map: &MmapMut) {
    let _ = map.advise(memmap2::Advice::PopulateWrite);
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn make_resident(_map: &MmapMut) {}
