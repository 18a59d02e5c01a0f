//! Writing a weight file: it appears complete or not at all.

use super::form::{
    CHUNK, Contents, NOTES, TENSORS, file_shape, notes_hash, our_positions, row_elements, shown, stored,
};
use crate::error::{Error, Result};
use crate::files;
use crate::graph::{Graph, Source, Type};
use crate::hash::Pieces;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// Elements of a tensor that a program reads together where it is not in memory as a whole, at least.
const ROWS_TOGETHER: usize = 1 << 16;

/// Writes all parameters and buffers of `graph`; `read` gives a source's values in our element order, from an element on.
pub fn save(
    graph: &Graph,
    path: &Path,
    read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    save_with(graph, path, Contents::Weights, &BTreeMap::new(), read)
}

/// As [`save`], with more or other contents and with notes. `tensors` and `notes` are notes of ours: see
/// [`WeightFile::verify`](super::WeightFile::verify).
///
/// The file appears complete or not at all ([`files::replace`]).
pub fn save_with(
    graph: &Graph,
    path: &Path,
    contents: Contents,
    notes: &BTreeMap<&str, String>,
    read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    let written = files::replace(path, |file| write(graph, file, contents, notes, read));
    written.map_err(Error::io(format!("write {}", path.display())))
}

fn write(
    graph: &Graph,
    file: &mut BufWriter<File>,
    contents: Contents,
    notes: &BTreeMap<&str, String>,
    read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
) -> std::io::Result<()> {
    let mut end = 0;
    let mut info = |source: &Source, ty: &Type| {
        let start = end;
        end += ty.numel() * 4;
        let info =
            TensorInfo { dtype: Dtype::F32, shape: file_shape(source, ty), data_offsets: (start, end) };
        (source.name.clone(), info)
    };
    let tensors = stored(graph, contents).map(|(source, ty)| info(source, ty)).collect();
    let header = Metadata::new(None, tensors).map_err(std::io::Error::other)?;
    let data_len = header.data_len() as u64;
    let tensors = serde_json::to_vec(&header)?;

    // The header comes first and has the hash of what follows: zeros hold its place until it is known.
    file.write_all(&whole_header(&tensors, notes, 0)?)?;
    let mut hash = Pieces::of(data_len);
    each_piece(graph, contents, read, |bytes| {
        hash.see(bytes);
        file.write_all(bytes)
    })?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&whole_header(&tensors, notes, hash.end())?)
}

/// What comes before the data: of the same length, whatever the hash of the data.
fn whole_header(
    tensors: &[u8],
    notes: &BTreeMap<&str, String>,
    hash_of_data: u64,
) -> std::io::Result<Vec<u8>> {
    let hash_of_data = shown(hash_of_data);
    let mut notes: BTreeMap<&str, &str> = notes.iter().map(|(name, note)| (*name, note.as_str())).collect();
    notes.insert(TENSORS, &hash_of_data);
    let of_notes = notes_hash(&notes);
    notes.insert(NOTES, &of_notes);
    // Notes go in by hand, in the order of their names: equal states make equal files.
    let comma = if tensors == b"{}" { "" } else { "," };
    let notes = format!("\"__metadata__\":{}{comma}", serde_json::to_string(&notes)?);
    let mut text = tensors.to_vec();
    text.splice(1..1, notes.into_bytes());
    // Tensor data begins at a multiple of eight bytes, as the format asks.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

/// Hands over the tensors of a file as their bytes, piece by piece.
fn each_piece(
    graph: &Graph,
    contents: Contents,
    mut read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
    mut see: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(4 * CHUNK);
    let mut rows = Vec::new();
    for (source, ty) in stored(graph, contents) {
        let (row, n) = (row_elements(source, ty), ty.numel());
        let together = ROWS_TOGETHER.div_ceil(row) * row;
        for first in (0..n).step_by(together) {
            rows.resize(together.min(n - first), 0.0);
            read(source, first, &mut rows).map_err(std::io::Error::other)?;
            let mut positions = our_positions(source, ty, rows.len());
            loop {
                bytes.clear();
                for position in positions.by_ref().take(CHUNK) {
                    bytes.extend_from_slice(&rows[position].to_le_bytes());
                }
                if bytes.is_empty() {
                    break;
                }
                see(&bytes)?;
            }
        }
    }
    Ok(())
}
