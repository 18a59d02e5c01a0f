//! What a weight file holds, in which shapes and order, and the hashes that it notes of itself.

use crate::graph::{FileLayout, Graph, Kind, Source, Type};
use crate::hash;
use std::collections::BTreeMap;

/// The note of the hash of all tensors, as they lie in the file.
pub(super) const TENSORS: &str = "tensors";
/// The note of the hash of all other notes.
pub(super) const NOTES: &str = "notes";

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Parameters and buffers. When it is read, the rest of a checkpoint may be beside them.
    Weights,
    /// All state, including the optimizer state: a checkpoint.
    State,
}

/// The tensors of a file.
pub(super) fn stored<'g>(
    graph: &'g Graph,
    contents: Contents,
) -> impl Iterator<Item = (&'g Source, &'g Type)> {
    let with_type = |s: &'g Source| (s, &graph.values[s.value]);
    let kept = move |kind: Kind| match contents {
        Contents::Weights => matches!(kind, Kind::Parameter | Kind::Buffer),
        Contents::State => kind.is_state(),
    };
    graph.sources.iter().map(with_type).filter(move |(_, v)| kept(v.kind)).map(|(s, v)| (s, &v.ty))
}

/// A tensor's shape in the file.
pub(super) fn file_shape(source: &Source, ty: &Type) -> Vec<usize> {
    match (source.file_layout, ty.shape()) {
        (FileLayout::ConvWeight, &[o, h, w, i]) => vec![o, i, h, w],
        (_, shape) => shape.to_vec(),
    }
}

/// Elements that are read or written together.
pub(super) const CHUNK: usize = 4096;

/// Pixels and channels that trade places in a file. Other layouts are the case of one pixel in one channel.
fn pixels_and_channels(source: &Source, ty: &Type) -> (usize, usize) {
    match (source.file_layout, ty.shape()) {
        (FileLayout::ConvWeight, &[_, h, w, channels]) => (h * w, channels),
        _ => (1, 1),
    }
}

/// Elements whose order differs between a file and a program stay within rows of this length.
pub fn row_elements(source: &Source, ty: &Type) -> usize {
    let (pixels, channels) = pixels_and_channels(source, ty);
    (pixels * channels).max(1)
}

/// For each of `n` positions in the file's order, the position in ours. Both count from the beginning of a row.
pub(super) fn our_positions(source: &Source, ty: &Type, n: usize) -> impl Iterator<Item = usize> + use<> {
    let (pixels, channels) = pixels_and_channels(source, ty);
    (0..n).map(move |at| {
        let (outer, inner) = (at / (pixels * channels), at % (pixels * channels));
        outer * pixels * channels + inner % pixels * channels + inner / pixels
    })
}

/// A hash of all notes but its own, in the order of their names.
pub(super) fn notes_hash(notes: &BTreeMap<&str, &str>) -> String {
    let others = notes.iter().filter(|note| *note.0 != NOTES);
    let text: String = others.map(|(name, value)| format!("{name}\0{value}\0")).collect();
    shown(hash::bytes(text.as_bytes()))
}

pub(super) fn shown(hash: u64) -> String {
    format!("{hash:016x}")
}
