//! Bytes come back as they went, in order and in time; whatever goes wrong is told and nobody hangs.

use super::*;
use std::path::Path;
use std::time::Duration;

const PAGES: usize = 40;

fn pattern(n: usize, salt: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 251 + salt) as u8).collect()
}

/// Stores in this directory and in memory, direct and not, without and with delays.
fn setups(directory: &Path) -> Vec<Setup> {
    let trouble = |delay, no_direct_io| Trouble { delay, seed: 7, failing: None, no_direct_io };
    let mut setups = Vec::new();
    for kind in [Kind::File(directory.to_owned()), Kind::Host] {
        for millis in [0, 5] {
            for no_direct_io in [false, true] {
                let trouble = trouble(Duration::from_millis(millis), no_direct_io);
                setups.push(Setup { kind: kind.clone(), trouble });
            }
        }
    }
    setups
}

fn open(setup: &Setup) -> Store {
    Store::open(setup, Bytes(PAGES as u64 * PAGE)).expect("space")
}

#[test]
fn what_is_copied_out_comes_back_however_it_is_aligned() {
    let directory = tempfile::tempdir().expect("a directory");
    for setup in setups(directory.path()) {
        let mut store = open(&setup);
        let page = PAGE as usize;
        for bytes in [1, 64, page - 64, page, page + 64, 17 * page + 320, 20 * page] {
            for shift in [0, 64] {
                let memory = pattern(PAGES * page, bytes);
                let first = memory.as_ptr().align_offset(page) + shift;
                let mut back = vec![0; PAGES * page];
                let begin = back.as_ptr().align_offset(page) + shift;
                let (from, to) = (memory[first..].as_ptr(), back[begin..].as_mut_ptr());
                // SAFETY: both buffers stay until the copies have been waited for.
                unsafe {
                    let out = store.copy_out((from, bytes as u64), 3 * PAGE, None, 1).expect("begun");
                    let back = store.copy_in(3 * PAGE, (to, bytes as u64), Some(&out), 2).expect("begun");
                    back.wait().expect("copied");
                }
                store.finish().expect("copied");
                assert_eq!(
                    back[begin..begin + bytes],
                    memory[first..first + bytes],
                    "{setup:?}, {bytes} bytes"
                );
                assert!(back[..begin].iter().chain(&back[begin + bytes..]).all(|&b| b == 0));
                let copied = store.copied();
                assert_eq!(
                    copied.iter().map(|c| (c.tag, c.way)).collect::<Vec<_>>(),
                    [(1, Way::Out), (2, Way::In)]
                );
                assert!(copied[0].end <= copied[1].start, "the way back begins when the way out has ended");
            }
        }
        let text = pattern(5000, 3);
        store.write(PAGE, &text).expect("written");
        let mut read = vec![0; 5000];
        store.read(PAGE, &mut read).expect("read");
        assert_eq!(read, text);
        // Parts at any offset change nothing else.
        for (first, n) in [(1, 1), (4090, 13), (0, 4096), (17, 4983)] {
            store.write(PAGE + first as u64, &pattern(n, 9)).expect("written");
            store.read(PAGE, &mut read).expect("read");
            let mut expected = text.clone();
            expected[first..first + n].copy_from_slice(&pattern(n, 9));
            assert_eq!(read, expected);
            let mut part = vec![0; n];
            store.read(PAGE + first as u64, &mut part).expect("read");
            assert_eq!(part, pattern(n, 9));
            store.write(PAGE, &text).expect("written");
        }
        store.fill(PAGE, 4096, 0xFF).expect("begun");
        store.finish().expect("filled");
        store.read(PAGE, &mut read).expect("read");
        assert!(read[..4096].iter().all(|&b| b == 0xFF) && read[4096..] == text[4096..]);
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("readable").collect();
    assert!(left.is_empty(), "{left:?} was left behind");
}

#[test]
fn a_failure_reaches_everybody_who_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    for kind in [Kind::File(directory.path().to_owned()), Kind::Host] {
        let trouble = Trouble { failing: Some(2), ..Trouble::default() };
        let mut store = open(&Setup { kind, trouble });
        let (memory, mut back) = (pattern(8192, 0), vec![0; 8192]);
        // SAFETY: the memory outlives the store, whose threads end before.
        let tickets: Vec<Ticket> = (0..3)
            .map(|i| unsafe { store.copy_out((memory.as_ptr(), 8192), i * 2 * PAGE, None, 0) })
            .collect::<Result<_>>()
            .expect("begun");
        // SAFETY: as above.
        let dependent = unsafe { store.copy_in(0, (back.as_mut_ptr(), 8192), Some(&tickets[2]), 0) };
        let message =
            dependent.expect("begun").wait().expect_err("it waits for a copy that failed").to_string();
        assert!(
            message.contains("injected failure") && message.starts_with("read from the store"),
            "{message}"
        );
        let message = tickets[1].wait().expect_err("it failed").to_string();
        assert!(message.starts_with("write to the store") && message.contains("injected"), "{message}");
        assert!(store.finish().is_err());
        drop(store);
    }
}

#[test]
fn a_directory_that_is_none_and_a_disk_that_is_full_are_told_before_anything_is_copied() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = Setup::new(Kind::File(directory.path().join("missing")));
    let message = Store::open(&missing, Bytes(PAGE)).expect_err("there is no such directory").to_string();
    assert!(message.contains("missing") && message.contains("directory"), "{message}");
    let setup = Setup::new(Kind::File(directory.path().to_owned()));
    let message = Store::open(&setup, Bytes(1 << 60)).expect_err("no disk is that large").to_string();
    assert!(message.contains("reserve") && message.contains("space"), "{message}");
}

#[test]
fn a_read_outside_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    for setup in setups(directory.path()) {
        let store = open(&setup);
        let mut out = vec![0; 2 * PAGE as usize];
        assert!(store.read((PAGES as u64 - 1) * PAGE, &mut out).is_err(), "{setup:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_that_is_memory_or_not_direct_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let kind = Kind::File(directory.path().to_owned());
    let trouble = Trouble { no_direct_io: true, ..Trouble::default() };
    let warning = open(&Setup { kind, trouble }).warning().expect("it is not direct");
    assert!(warning.contains("direct I/O") || warning.contains("in memory"), "{warning}");
    if let Ok(directory) = tempfile::tempdir_in("/dev/shm") {
        let store = open(&Setup::new(Kind::File(directory.path().to_owned())));
        assert!(store.warning().expect("it is memory").contains("in memory"));
    }
}
