//! One block of memory for the whole step.

use crate::error::{Error, Result};
use crate::memory::available;
use memmap2::{MmapMut, MmapRaw};
use remat_plan::Bytes;

/// Where the arena begins and ends, to a multiple of this: buffers are aligned to it.
const ALIGNMENT: usize = 64;

/// Zeroed memory straight from the operating system, resident from the start: the first step takes as long as the others,
/// and a machine without that much memory is known before it.
///
/// On Unix, memory that nobody may touch lies before and directly behind it. A kernel that leaves the arena ends the
/// program there, instead of changing something else unnoticed.
#[derive(Debug)]
pub struct Arena {
    map: MmapRaw,
    /// Bytes of the mapping before the arena.
    first: usize,
    len: usize,
}

impl Arena {
    /// Reserves `size` bytes.
    pub fn new(size: Bytes) -> Result<Arena> {
        Arena::aligned(size, ALIGNMENT)
    }

    /// Reserves `size` bytes that begin at a multiple of `alignment`, which is at most a page.
    pub(super) fn aligned(size: Bytes, alignment: usize) -> Result<Arena> {
        let too_large = || Error::TooLarge { shape: vec![] };
        let len = usize::try_from(size.0).map_err(|_| too_large())?;
        let guard = guard_bytes();
        // An empty mapping is refused by the operating system.
        let body = len.max(1).checked_next_multiple_of(guard.max(alignment)).ok_or_else(too_large)?;
        let action = || format!("reserving an arena of {size}");
        let total = body.checked_add(2 * guard).ok_or_else(too_large)?;
        // The kernel would grant it and end the process, or another one, when it is made resident.
        if let Some(available) = available().filter(|&available| Bytes(total as u64) > available) {
            let cause = std::io::Error::new(
                std::io::ErrorKind::OutOfMemory,
                format!("only {available} of memory are available"),
            );
            return Err(Error::io(action())(cause));
        }
        let map = MmapRaw::from(MmapMut::map_anon(total).map_err(Error::io(action()))?);
        protect(&map, 0, guard).map_err(Error::io(action()))?;
        protect(&map, guard + body, guard).map_err(Error::io(action()))?;
        make_resident(&map, guard, body);
        let first = guard + body - len.next_multiple_of(alignment);
        Ok(Arena { map, first, len })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for an arena without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Part of the arena. Nothing is said about the rest of it, which a copy from a store may be writing to.
    pub fn slice(&self, offset: u64, bytes: u64) -> &[u8] {
        let (address, bytes) = self.part(offset, bytes);
        // SAFETY: so many bytes of the mapping may be read, they are initialised, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(address, bytes) }
    }

    /// Part of the arena. Nothing is said about the rest of it, which a copy to or from a store may be using.
    pub fn slice_mut(&mut self, offset: u64, bytes: u64) -> &mut [u8] {
        let (address, bytes) = self.part(offset, bytes);
        // SAFETY: as above; they may be written, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(address, bytes) }
    }

    /// Address and bytes of a part that lies inside.
    fn part(&self, offset: u64, bytes: u64) -> (*mut u8, usize) {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.len as u64);
        let end =
            end.unwrap_or_else(|| panic!("{bytes} bytes at {offset} of an arena of {} bytes", self.len));
        (self.address().wrapping_add((end - bytes) as usize), bytes as usize)
    }

    /// Several parts at once, in the order asked for. They must not overlap.
    pub(crate) fn slices_mut(&mut self, ranges: &[(u64, u64)]) -> Vec<&mut [u8]> {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&i| ranges[i]);
        let mut parts: Vec<(usize, &mut [u8])> = Vec::with_capacity(ranges.len());
        let (mut rest, mut at): (&mut [u8], u64) = (self.all_mut(), 0);
        for i in order {
            let (offset, bytes) = ranges[i];
            assert!(offset >= at, "parts of the arena that are filled together do not overlap");
            let (part, after) =
                std::mem::take(&mut rest)[(offset - at) as usize..].split_at_mut(bytes as usize);
            parts.push((i, part));
            (rest, at) = (after, offset + bytes);
        }
        parts.sort_by_key(|part| part.0);
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// All of it.
    pub(super) fn all(&self) -> &[u8] {
        // SAFETY: so many bytes of the mapping may be read, they are initialised, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; they may be written, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len) }
    }

    /// Address of the first byte, for kernels.
    pub(super) fn base(&mut self) -> *mut u8 {
        self.address()
    }

    fn address(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.first)
    }
}

/// Bytes on either side that nobody may touch: a page, which may be larger than usual. Miri knows no protected pages.
#[cfg(all(unix, not(miri)))]
fn guard_bytes() -> usize {
    // SAFETY: the function only answers a question.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(0)
}

#[cfg(all(unix, not(miri)))]
fn protect(map: &MmapRaw, first: usize, bytes: usize) -> std::io::Result<()> {
    // SAFETY: these pages of the mapping are whole, and no reference to them exists, now or later.
    match unsafe { libc::mprotect(map.as_mut_ptr().wrapping_add(first).cast(), bytes, libc::PROT_NONE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(not(all(unix, not(miri))))]
fn guard_bytes() -> usize {
    0
}

#[cfg(not(all(unix, not(miri))))]
fn protect(_map: &MmapRaw, _first: usize, _bytes: usize) -> std::io::Result<()> {
    Ok(())
}

/// Asks for large pages, and for all of them at once. It is advice, which an older system refuses; then pages are small or come
/// when they are touched, and nothing else changes. Kernels do not notice large pages (ResNet-152, batch 8: 4.97 s and 4.95 s),
/// but a copy to or from a store does: the system looks every page of it up.
#[cfg(all(target_os = "linux", not(miri)))]
fn make_resident(map: &MmapRaw, first: usize, bytes: usize) {
    let _ = map.advise_range(memmap2::Advice::HugePage, first, bytes);
    let _ = map.advise_range(memmap2::Advice::PopulateWrite, first, bytes);
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn make_resident(_map: &MmapRaw, _first: usize, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zero_aligned_and_apart() {
        for size in [0, 1, 64, 100, 4096, 5000] {
            let mut arena = Arena::new(Bytes(size)).expect("memory");
            assert_eq!(arena.len(), size as usize);
            assert!(arena.all().iter().all(|&byte| byte == 0));
            assert!(arena.base().addr().is_multiple_of(ALIGNMENT));
        }
        let mut arena = Arena::new(Bytes(100)).expect("memory");
        let parts = arena.slices_mut(&[(64, 36), (0, 10)]);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [36, 10]);
        parts.into_iter().for_each(|part| part.fill(7));
        assert_eq!(arena.slice(8, 3), [7, 7, 0]);
        assert_eq!(arena.slice(62, 3), [0, 0, 7]);
    }

    #[test]
    fn more_than_there_is_is_refused_before_it_is_taken() {
        let refused = Arena::new(Bytes(1 << 46)).expect_err("nobody has so much").to_string();
        assert!(refused.starts_with("reserving an arena of 64.00 TiB"), "{refused}");
        assert_eq!(refused.ends_with("of memory are available"), available().is_some(), "{refused}");
    }

    /// Runs this test again in a process that touches a byte outside.
    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_touch_outside_ends_the_program() {
        use std::os::unix::process::ExitStatusExt as _;
        const TOUCH: &str = "REMAT_TEST_TOUCH";
        let size = 5 * ALIGNMENT;
        if let Ok(offset) = std::env::var(TOUCH) {
            let mut arena = Arena::new(Bytes(size as u64)).expect("memory");
            let offset: isize = offset.parse().expect("an offset");
            // SAFETY: none: inside it is allowed, and outside the system must step in.
            unsafe { arena.base().wrapping_offset(offset).write_volatile(1) };
            return;
        }
        let touch = |offset: isize| {
            let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
            command.args(["--exact", "exec::arena::tests::a_touch_outside_ends_the_program"]);
            command.env(TOUCH, offset.to_string()).output().expect("it runs").status.signal()
        };
        let page = guard_bytes() as isize;
        for inside in [0, size as isize - 1] {
            assert_eq!(touch(inside), None, "byte {inside}");
        }
        for outside in [-page, size as isize, size as isize + page - 1] {
            assert!(touch(outside).is_some(), "byte {outside} could be written");
        }
    }
}
