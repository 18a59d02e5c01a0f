//! A model of a disk that loses its power: from the operations that a run has made, the folders that can be found afterwards.
//!
//! Only what was synced is certain: the contents of a file by syncing the file, its name by syncing its folder. Of the rest
//! a file system may have kept nothing, or names without contents, or a part.

use std::collections::{BTreeMap, HashMap};

/// One operation, as the library wrote it down.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: u8,
    numbers: [i64; 3],
    pub(crate) path: String,
    pub(crate) target: String,
    bytes: Vec<u8>,
}

const CREATES: i64 = 0o100;
const TRUNCATES: i64 = 0o1000;

impl Operation {
    /// Reads a journal.
    pub(crate) fn read(journal: &[u8]) -> Vec<Operation> {
        let (mut rest, mut operations) = (journal, Vec::new());
        let take = |rest: &mut &[u8], n: usize| -> Vec<u8> {
            let (part, after) = rest.split_at(n);
            *rest = after;
            part.to_vec()
        };
        let number = |rest: &mut &[u8]| i64::from_le_bytes(take(rest, 8).try_into().expect("eight bytes"));
        while !rest.is_empty() {
            let kind = take(&mut rest, 1)[0];
            let numbers = [number(&mut rest), number(&mut rest), number(&mut rest)];
            let n = number(&mut rest) as usize;
            let bytes = take(&mut rest, n);
            let n = number(&mut rest) as usize;
            let target = normal(&take(&mut rest, n));
            operations.push(Operation { kind, numbers, path: normal(&bytes), target, bytes });
        }
        operations
    }

    /// Whether the library counts it among those that can be made to fail.
    pub(crate) fn is_counted(&self) -> bool {
        self.kind != b'O' || self.numbers[1] & (CREATES | TRUNCATES) != 0
    }
}

/// A path without `./`; the folder of the run itself is empty.
fn normal(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    let path = path.strip_prefix("./").unwrap_or(&path);
    if path == "." { String::new() } else { path.to_owned() }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kept {
    /// Nothing that was not synced.
    Synced,
    /// All names, and of contents only what was synced.
    Names,
    /// All names, and half of the contents that were not synced.
    Torn,
    /// Everything: the process was killed, but the machine runs on.
    All,
}

impl Kept {
    pub(crate) const EACH: [Kept; 4] = [Kept::Synced, Kept::Names, Kept::Torn, Kept::All];
}

/// What is in a folder by path: the contents of a file, or nothing for a folder.
pub(crate) type Found = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Entry {
    File(usize),
    Folder,
}

#[derive(Default)]
struct Folder {
    now: BTreeMap<String, Entry>,
    synced: BTreeMap<String, Entry>,
}

/// A disk that starts empty.
pub(crate) struct Disk {
    files: Vec<File>,
    folders: BTreeMap<String, Folder>,
    opened: HashMap<i64, Opened>,
}

enum Opened {
    File(usize),
    Folder(String),
}

impl Disk {
    pub(crate) fn new() -> Disk {
        let folders = BTreeMap::from([(String::new(), Folder::default())]);
        Disk { files: Vec::new(), folders, opened: HashMap::new() }
    }

    fn entries(&mut self, path: &str) -> (&mut BTreeMap<String, Entry>, String) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        (&mut self.folders.get_mut(folder).expect("a known folder").now, name.to_owned())
    }

    /// Does what the run has done.
    pub(crate) fn apply(&mut self, operation: &Operation) {
        let [fd, second, _] = operation.numbers;
        match operation.kind {
            b'M' => {
                let (entries, name) = self.entries(&operation.path);
                entries.insert(name, Entry::Folder);
                self.folders.insert(operation.path.clone(), Folder::default());
            }
            b'O' if self.folders.contains_key(&operation.path) => {
                self.opened.insert(fd, Opened::Folder(operation.path.clone()));
            }
            b'O' => {
                let fresh = self.files.len();
                let (entries, name) = self.entries(&operation.path);
                let file = match entries.get(&name) {
                    Some(Entry::File(file)) => *file,
                    _ => {
                        entries.insert(name, Entry::File(fresh));
                        self.files.push(File::default());
                        fresh
                    }
                };
                if second & TRUNCATES != 0 {
                    self.files[file].now.clear();
                }
                self.opened.insert(fd, Opened::File(file));
            }
            b'R' => {
                let (entries, name) = self.entries(&operation.path);
                let entry = entries.remove(&name).expect("a known file");
                let (entries, name) = self.entries(&operation.target);
                entries.insert(name, entry);
            }
            b'U' => {
                let (entries, name) = self.entries(&operation.path);
                entries.remove(&name);
            }
            kind => match (kind, &self.opened[&fd]) {
                (b'S', Opened::Folder(path)) => {
                    let folder = self.folders.get_mut(path).expect("a known folder");
                    folder.synced = folder.now.clone();
                }
                (b'S', Opened::File(file)) => self.files[*file].synced = self.files[*file].now.clone(),
                (b'T', Opened::File(file)) => self.files[*file].now.resize(second as usize, 0),
                (b'W', Opened::File(file)) => {
                    let (now, at) = (&mut self.files[*file].now, second as usize);
                    now.resize(now.len().max(at + operation.bytes.len()), 0);
                    now[at..at + operation.bytes.len()].copy_from_slice(&operation.bytes);
                }
                (kind, _) => panic!("a journal has no {}", char::from(kind)),
            },
        }
    }

    /// Whether a file and its name are certain to be found.
    pub(crate) fn is_safe(&self, path: &str) -> bool {
        let found = self.after_loss(Kept::Synced);
        let now = self.after_loss(Kept::All);
        found.contains_key(path) && found.get(path) == now.get(path)
    }

    /// What can be found after a loss of power at this moment.
    pub(crate) fn after_loss(&self, kept: Kept) -> Found {
        let mut found = Found::new();
        self.find("", kept, &mut found);
        found
    }

    fn find(&self, folder: &str, kept: Kept, found: &mut Found) {
        let Some(here) = self.folders.get(folder) else { return };
        let entries = if kept == Kept::Synced { &here.synced } else { &here.now };
        for (name, entry) in entries {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            match *entry {
                Entry::Folder => {
                    found.insert(path.clone(), None);
                    self.find(&path, kept, found);
                }
                Entry::File(file) => drop(found.insert(path, Some(self.files[file].after_loss(kept)))),
            }
        }
    }
}

impl File {
    fn after_loss(&self, kept: Kept) -> Vec<u8> {
        let added = self.now.len().saturating_sub(self.synced.len());
        match kept {
            Kept::Synced | Kept::Names => self.synced.clone(),
            Kept::Torn => self.now[..self.now.len() - added / 2].to_vec(),
            Kept::All => self.now.clone(),
        }
    }
}
