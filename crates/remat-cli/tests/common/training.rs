//! What tests of training share: a corpus, and the parts of logs and checkpoints that must be equal to the bit.

use super::Folder;
use std::collections::BTreeMap;
use std::path::Path;

/// A text of some thirty thousand bytes as `corpus.txt`.
pub(crate) fn corpus(folder: &Folder) {
    let text: String = (0..800).map(|i| format!("{i} green bottles hanging on the wall, ")).collect();
    folder.write("corpus.txt", &text);
}

/// The columns of a log that depend on nothing but the run: step, loss, learning rate, norm and evaluation.
pub(crate) fn results(folder: &Folder, log: &str) -> Vec<String> {
    let columns = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), 9, "{line}");
        [&cells[..4], &cells[7..]].concat().join(",")
    };
    folder.read(log).lines().map(columns).collect()
}

/// Bytes of every tensor of a safetensors file, by name.
pub(crate) fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(path).expect("a weight file");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let (header, data) = bytes[8..].split_at(length);
    let header: serde_json::Value = serde_json::from_slice(header).expect("a header");
    let header = header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__");
    let tensor = |info: &serde_json::Value| {
        let at = |i: usize| info["data_offsets"][i].as_u64().expect("an offset") as usize;
        data[at(0)..at(1)].to_vec()
    };
    header.map(|(name, info)| (name.clone(), tensor(info))).collect()
}
