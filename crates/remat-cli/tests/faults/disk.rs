//! A library that is loaded before the C library (`LD_PRELOAD`) and sits between a program and its disk and memory. The
//! tests compile it with `rustc`; it uses nothing but the C library.
//!
//! Operations on files with relative paths are counted from 1: creating, writing, cutting, syncing, renaming, removing.
//! `REMAT_DISK=fail:N` makes the Nth one fail with an input/output error, `full:N` writes half and then finds the disk full,
//! `kill:N` ends the process in its place. `REMAT_MEMORY=N:SIZE` refuses the Nth allocation of at least SIZE bytes.
//! `REMAT_JOURNAL=FILE` writes down every operation, for a model of what survives a loss of power.
#![no_std]
#![allow(clippy::missing_safety_doc)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ending the process is always possible.
    unsafe { _exit(99) }
}

/// Named by parts of `core` that would unwind; nothing here does.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[link(name = "c")]
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn getpid() -> c_int;
    fn _exit(code: c_int) -> !;
    fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn __errno_location() -> *mut c_int;
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

const NEXT: *mut c_void = -1isize as *mut c_void;
const IO_ERROR: c_int = 5;
const NO_MEMORY: c_int = 12;
const NO_SPACE: c_int = 28;
const SIGKILL: c_int = 9;
const CREATES: c_int = 0o100;
const TRUNCATES: c_int = 0o1000;

/// The function of this name that would be called without this library.
///
/// # Safety
/// `F` is the type of that function.
unsafe fn next<F: Copy>(name: &CStr) -> F {
    // SAFETY: the C library has the function, and a pointer to a function is as large as any other.
    unsafe { core::mem::transmute_copy(&dlsym(NEXT, name.as_ptr())) }
}

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type OnFile = unsafe extern "C" fn(c_int) -> c_int;
type OnPath = unsafe extern "C" fn(*const c_char) -> c_int;
type OnPaths = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
type Cut = unsafe extern "C" fn(c_int, i64) -> c_int;
type MakeFolder = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

const MAX_FILES: usize = 1024;
static IS_OURS: [AtomicBool; MAX_FILES] = [const { AtomicBool::new(false) }; MAX_FILES];
static N_DONE: AtomicU64 = AtomicU64::new(0);
static N_ALLOCATED: AtomicU64 = AtomicU64::new(0);
static JOURNAL: AtomicI32 = AtomicI32::new(-2);

fn is_ours(fd: c_int) -> bool {
    usize::try_from(fd).ok().and_then(|fd| IS_OURS.get(fd)).is_some_and(|ours| ours.load(Relaxed))
}

/// Files of the run have relative paths; those of the system do not.
unsafe fn is_relative(path: *const c_char) -> bool {
    // SAFETY: the caller has a path.
    !path.is_null() && unsafe { *path } as u8 != b'/'
}

/// The setting of this name as words between colons.
fn setting(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the environment is not changed while the program runs.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: what is there ends with a zero.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

fn number(text: &[u8]) -> u64 {
    text.iter().take_while(|c| c.is_ascii_digit()).fold(0, |n, c| 10 * n + u64::from(c - b'0'))
}

fn fail(error: c_int) -> c_int {
    // SAFETY: every thread has its number of the last error.
    unsafe { *__errno_location() = error };
    -1
}

/// Counts an operation. `Some(error)` when it has to fail.
fn next_operation() -> Option<c_int> {
    let n = N_DONE.fetch_add(1, Relaxed) + 1;
    let wish = setting(c"REMAT_DISK")?;
    let at = wish.iter().position(|&c| c == b':')?;
    if number(&wish[at + 1..]) != n {
        return None;
    }
    match &wish[..at] {
        b"kill" => {
            // SAFETY: a process may end itself.
            unsafe { kill(getpid(), SIGKILL) };
            None
        }
        b"full" => Some(NO_SPACE),
        _ => Some(IO_ERROR),
    }
}

fn journal(kind: u8, numbers: [i64; 3], bytes: &[u8], more: &[u8]) {
    let mut fd = JOURNAL.load(Relaxed);
    if fd == -2 {
        let Some(path) = setting(c"REMAT_JOURNAL") else {
            JOURNAL.store(-1, Relaxed);
            return;
        };
        // SAFETY: the path came from a string that ends with a zero.
        fd = unsafe { next::<Open>(c"open64")(path.as_ptr().cast(), 0o2101, 0o600) };
        JOURNAL.store(fd, Relaxed);
    }
    if fd < 0 {
        return;
    }
    let write = |part: &[u8]| {
        // SAFETY: the bytes are there.
        unsafe { next::<Write>(c"write")(fd, part.as_ptr().cast(), part.len()) };
    };
    write(&[kind]);
    numbers.iter().for_each(|n| write(&n.to_le_bytes()));
    for part in [bytes, more] {
        write(&(part.len() as i64).to_le_bytes());
        write(part);
    }
}

unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    // SAFETY: the caller has a path.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

unsafe fn opened(path: *const c_char, flags: c_int, mode: c_int, open: Open) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe {
        let is_ours = is_relative(path);
        let changes = flags & (CREATES | TRUNCATES) != 0;
        if is_ours
            && changes
            && let Some(error) = next_operation()
        {
            return fail(error);
        }
        let fd = open(path, flags, mode);
        if let Some(place) = usize::try_from(fd).ok().and_then(|fd| IS_OURS.get(fd)) {
            place.store(is_ours, Relaxed);
        }
        if is_ours && fd >= 0 {
            journal(b'O', [fd.into(), flags.into(), 0], bytes(path), b"");
        }
        fd
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { opened(path, flags, mode, next::<Open>(c"open64")) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { opened(path, flags, mode, next::<Open>(c"open")) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, n: usize) -> isize {
    // SAFETY: as for the function of this name.
    unsafe {
        let write = next::<Write>(c"write");
        if !is_ours(fd) {
            return write(fd, from, n);
        }
        let (error, n) = match next_operation() {
            None => (None, n),
            Some(NO_SPACE) => (Some(NO_SPACE), n / 2),
            error => (error, 0),
        };
        let written = if n > 0 { write(fd, from, n) } else { 0 };
        if written > 0 {
            let end = lseek64(fd, 0, 1);
            let part = core::slice::from_raw_parts(from.cast::<u8>(), written as usize);
            journal(b'W', [fd.into(), end - written as i64, 0], part, b"");
        }
        // A disk that becomes full has taken what it could.
        if let Some(error) = error { fail(error) as isize } else { written }
    }
}

unsafe fn on_file(fd: c_int, kind: u8, length: i64, run: impl FnOnce() -> c_int) -> c_int {
    if !is_ours(fd) {
        return run();
    }
    if let Some(error) = next_operation() {
        return fail(error);
    }
    let result = run();
    if result == 0 {
        journal(kind, [fd.into(), length, 0], b"", b"");
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_file(fd, b'S', 0, || next::<OnFile>(c"fsync")(fd)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_file(fd, b'S', 0, || next::<OnFile>(c"fdatasync")(fd)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, length: i64) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_file(fd, b'T', length, || next::<Cut>(c"ftruncate64")(fd, length)) }
}

unsafe fn on_path(kind: u8, from: *const c_char, to: *const c_char, run: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller has paths.
    unsafe {
        if !is_relative(from) {
            return run();
        }
        if let Some(error) = next_operation() {
            return fail(error);
        }
        let result = run();
        if result == 0 {
            journal(kind, [0; 3], bytes(from), if to.is_null() { b"" } else { bytes(to) });
        }
        result
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_path(b'R', from, to, || next::<OnPaths>(c"rename")(from, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_path(b'U', path, core::ptr::null(), || next::<OnPath>(c"unlink")(path)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as for the function of this name.
    unsafe { on_path(b'M', path, core::ptr::null(), || next::<MakeFolder>(c"mkdir")(path, mode)) }
}

/// Whether this allocation is the one to refuse.
fn is_refused(size: usize) -> bool {
    let Some(wish) = setting(c"REMAT_MEMORY") else { return false };
    let at = wish.iter().position(|&c| c == b':').unwrap_or(0);
    let is_counted = size as u64 >= number(&wish[at + 1..]);
    let is_refused = is_counted && N_ALLOCATED.fetch_add(1, Relaxed) + 1 == number(wish);
    if is_refused {
        fail(NO_MEMORY);
    }
    is_refused
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: as for the function of this name.
    if is_refused(size) { core::ptr::null_mut() } else { unsafe { __libc_malloc(size) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    // SAFETY: as for the function of this name.
    if is_refused(n.saturating_mul(size)) { core::ptr::null_mut() } else { unsafe { __libc_calloc(n, size) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as for the function of this name.
    if is_refused(size) { core::ptr::null_mut() } else { unsafe { __libc_realloc(old, size) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if is_refused(size) {
        return NO_MEMORY;
    }
    // SAFETY: as for the function of this name.
    unsafe {
        *out = __libc_memalign(alignment, size);
        if (*out).is_null() { NO_MEMORY } else { 0 }
    }
}
