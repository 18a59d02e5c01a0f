//! Runs the real binary in a folder of its own.
#![allow(dead_code)] // Each test program uses its part.

pub(crate) mod training;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// An `mlp` that is small but whose activations are most of its memory, so that a budget means something.
pub(crate) const SMALL: &[&str] = &["--batch", "512", "--features", "16", "--width", "32", "--layers", "8"];

/// The same, planned with little effort: the tests are about what is printed, not about how good a plan is.
pub(crate) const QUICK: &[&str] =
    &["--batch", "512", "--features", "16", "--width", "32", "--layers", "8", "--effort", "0.001"];

/// A problem of three nodes: x -> a -> b -> c, where c also needs a.
pub(crate) const PROBLEM: &str = r#"{"schema": "remat.problem/1", "name": "three", "cost_unit": "s", "fixed_bytes": 1000,
  "values": [{"name": "x", "bytes": 10}, {"name": "a", "bytes": 100}, {"name": "b", "bytes": 20},
             {"name": "c", "bytes": 5}],
  "inputs": [0],
  "nodes": [
    {"name": "na", "op": "f", "phase": "forward", "cost": 1.0, "workspace_bytes": 0, "inputs": [0], "outputs": [1],
     "recompute": true},
    {"name": "nb", "op": "f", "phase": "forward", "cost": 2.0, "workspace_bytes": 0, "inputs": [1], "outputs": [2],
     "recompute": true},
    {"name": "nc", "op": "f", "phase": "backward", "cost": 3.0, "workspace_bytes": 7, "inputs": [1, 2],
     "outputs": [3], "recompute": true}],
  "outputs": [3]}"#;

/// A folder that vanishes after the test.
pub(crate) struct Folder {
    folder: TempDir,
}

/// What a run of the binary gave.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; a process that was killed by a signal fails the test.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it said beside.
    pub(crate) stderr: String,
}

impl Folder {
    /// An empty folder.
    pub(crate) fn new() -> Folder {
        Folder { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect(name);
    }

    /// Reads a file of the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect(name)
    }

    /// Names of everything in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names_in(".")
    }

    /// The names of what is in a subfolder, sorted.
    pub(crate) fn names_in(&self, subfolder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(subfolder)).expect("the folder is there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("the folder can be listed").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// The binary, to be run in the folder with a known environment.
    pub(crate) fn command(&self) -> Command {
        command_in(self.folder.path())
    }

    /// Runs the binary with words separated by spaces, then `more`.
    pub(crate) fn run(&self, words: &str, more: &[&str]) -> Ran {
        let output =
            self.command().args(words.split_whitespace()).args(more).output().expect("the binary runs");
        Ran::of(output)
    }
}

fn command_in(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.current_dir(folder);
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    command
}

/// Other tests run at the same time, and whichever command measures the machine first may say so.
fn is_about_load(line: &str) -> bool {
    line.starts_with("warning: other programs ran while")
}

impl Ran {
    /// What a finished process gave.
    pub(crate) fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the binary prints UTF-8");
        let ran = Ran {
            code: output.status.code().expect("the binary was not killed"),
            stdout: text(output.stdout),
            stderr: text(output.stderr).split_inclusive('\n').filter(|line| !is_about_load(line)).collect(),
        };
        assert!(!ran.stderr.contains("panicked") && !ran.stderr.contains("internal error"), "{ran:?}");
        ran
    }

    /// Fails unless the exit code is this.
    pub(crate) fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The first line of what was printed.
    pub(crate) fn first_line(&self) -> &str {
        self.stdout.lines().next().unwrap_or_default()
    }

    /// The JSON document that was printed: exactly one, with this schema.
    pub(crate) fn json(&self, schema: &str) -> serde_json::Value {
        let document: serde_json::Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        assert_eq!(document["schema"], schema);
        document
    }

    /// Fails unless stdout has all these words.
    pub(crate) fn prints(self, words: &[&str]) -> Ran {
        for word in words {
            assert!(self.stdout.contains(word), "`{word}` is missing: {self:#?}");
        }
        self
    }

    /// Fails unless this is exit code 2 with nothing on stdout and all these words in an error on stderr.
    pub(crate) fn complains(self, words: &[&str]) -> Ran {
        let ran = self.exits(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("error:"), "{ran:#?}");
        for word in words {
            assert!(ran.stderr.contains(word), "`{word}` is missing: {ran:#?}");
        }
        ran
    }
}
