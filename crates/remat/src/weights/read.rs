//! Reading a weight file: checked as a whole before the first tensor is read.

use super::form::{
    CHUNK, Contents, NOTES, TENSORS, file_shape, notes_hash, our_positions, row_elements, shown, stored,
};
use crate::error::{Error, Result};
use crate::files;
use crate::graph::{Graph, Source, Type};
use crate::hash;
use remat_plan::Shown;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The header's own limit in the format's reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Nobody reads more of them.
const SHOWN_FAULTS: usize = 20;

/// PyTorch's count of batches seen by a batch norm, which a fixed momentum makes meaningless.
const IGNORED_SUFFIX: &str = ".num_batches_tracked";

/// How the names of state begin that is no weight.
const BESIDE_WEIGHTS: [&str; 2] = ["optimizer.", "accumulated."];

/// An open weight file that fits a graph.
#[derive(Debug)]
pub struct WeightFile {
    path: PathBuf,
    file: BufReader<File>,
    /// Where tensor data begins.
    data_start: u64,
    header: Metadata,
}

impl WeightFile {
    /// Opens a file and checks that it holds exactly the parameters and buffers of `graph`, as `f32`.
    pub fn open(graph: &Graph, path: &Path) -> Result<WeightFile> {
        let file = WeightFile::open_any(path)?;
        file.check(graph, Contents::Weights)?;
        Ok(file)
    }

    /// Opens a file and checks that it is whole, whatever it holds.
    pub fn open_any(path: &Path) -> Result<WeightFile> {
        let broken = |message: String| Error::Weights { place: path.display().to_string(), message };
        let file = files::open_regular(path).map_err(|error| match error.kind() {
            // A folder, a pipe or a device, which no later attempt can read either.
            ErrorKind::IsADirectory | ErrorKind::InvalidInput => broken(error.to_string()),
            _ => Error::io(format!("open {}", path.display()))(error),
        })?;
        let file_bytes = file.metadata().map_err(Error::io(format!("read {}", path.display())))?.len();
        let mut file = BufReader::new(file);

        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => broken("is too short for a safetensors file".to_owned()),
            // The file may be whole; it is the disk or the network that failed.
            _ => Error::io(format!("read {}", path.display()))(error),
        })?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES || length + 8 > file_bytes {
            return Err(broken(format!(
                "is not a safetensors file: its header would be {length} bytes long"
            )));
        }
        let mut text = Vec::new();
        // Reading in parts asks for memory in a way that may be refused.
        let n_read = file.by_ref().take(length).read_to_end(&mut text);
        let n_read = n_read.map_err(Error::io(format!("read {}", path.display())))? as u64;
        if n_read != length {
            return Err(broken("becomes shorter while it is being read".to_owned()));
        }
        let header: Metadata =
            serde_json::from_slice(&text).map_err(|e| broken(format!("is not a safetensors file: {e}")))?;
        let expected_bytes = (header.data_len() as u64).saturating_add(length + 8);
        if expected_bytes != file_bytes {
            let kind = if file_bytes < expected_bytes { "is truncated" } else { "has bytes after its end" };
            return Err(broken(format!("{kind}: {file_bytes} bytes instead of {expected_bytes}")));
        }
        Ok(WeightFile { path: path.to_owned(), file, data_start: length + 8, header })
    }

    /// Fails with every difference unless the file holds exactly this much of `graph`, as `f32`.
    pub fn check(&self, graph: &Graph, contents: Contents) -> Result<()> {
        let faults = mismatches(graph, contents, &self.header);
        if faults.is_empty() {
            return Ok(());
        }
        let mut list =
            faults.iter().take(SHOWN_FAULTS).map(|fault| format!("\n  {fault}")).collect::<String>();
        if faults.len() > SHOWN_FAULTS {
            list += &format!("\n  ... and {} more", faults.len() - SHOWN_FAULTS);
        }
        let message = format!("does not fit {}:{list}", graph.name);
        Err(Error::Weights { place: self.path.display().to_string(), message })
    }

    /// What the writer noted, by name.
    pub fn notes(&self) -> BTreeMap<&str, &str> {
        let notes = self.header.metadata().iter().flatten();
        notes.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// Fails if the file is not what was written, as far as it says so itself: its notes, and all of its tensors, which are
    /// read for it.
    pub fn verify(&mut self) -> Result<()> {
        let place = || self.path.display().to_string();
        let damaged = |what: &str| Error::Weights {
            place: place(),
            message: format!("is damaged: its {what} are not what was written"),
        };
        let notes = self.notes();
        let of_notes = notes.get(NOTES).map(|&hash| hash == notes_hash(&notes));
        let of_tensors = notes.get(TENSORS).map(|&hash| hash.to_owned());
        if of_notes == Some(false) || of_notes.is_none() && of_tensors.is_some() {
            return Err(damaged("notes"));
        }
        let Some(expected) = of_tensors else { return Ok(()) };
        let failed = |error| Error::io(format!("read {}", place()))(error);
        self.file.seek(SeekFrom::Start(self.data_start)).map_err(failed)?;
        let len = self.header.data_len() as u64;
        let found = hash::reader(len, (&mut self.file).take(len)).map_err(failed)?;
        if shown(found) == expected { Ok(()) } else { Err(damaged("tensors")) }
    }

    /// Reads elements of the tensor of a source of the graph into `out`, in our element order: whole
    /// [rows](row_elements), from element `first` on.
    pub fn read(&mut self, source: &Source, ty: &Type, first: usize, out: &mut [f32]) -> Result<()> {
        let place = || format!("{}, tensor {}", self.path.display(), source.name);
        let info = self.header.info(&source.name).filter(|info| info.shape == file_shape(source, ty));
        let is_inside = first.checked_add(out.len()).is_some_and(|end| end <= ty.numel());
        let row = row_elements(source, ty);
        let is_whole = first.is_multiple_of(row) && out.len().is_multiple_of(row);
        let Some(info) = info.filter(|_| is_inside && is_whole) else {
            return Err(Error::Weights { place: place(), message: format!("is not there as {ty}") });
        };
        let start = self.data_start + info.data_offsets.0 as u64 + 4 * first as u64;
        self.file.seek(SeekFrom::Start(start)).map_err(Error::io(format!("read {}", place())))?;
        let mut positions = our_positions(source, ty, out.len());
        let mut bytes = [0; 4 * CHUNK];
        let mut left = out.len();
        while left > 0 {
            let bytes = &mut bytes[..4 * left.min(CHUNK)];
            if let Err(e) = self.file.read_exact(bytes) {
                return Err(Error::io(format!("read {}", place()))(e));
            }
            for (element, position) in bytes.chunks_exact(4).zip(&mut positions) {
                out[position] = f32::from_le_bytes([element[0], element[1], element[2], element[3]]);
            }
            left -= bytes.len() / 4;
        }
        Ok(())
    }
}

/// Every difference between what a graph needs and what a file holds.
fn mismatches(graph: &Graph, contents: Contents, header: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known = std::collections::HashSet::new();
    for (source, ty) in stored(graph, contents) {
        known.insert(source.name.as_str());
        let shape = file_shape(source, ty);
        match header.info(&source.name) {
            None => faults.push(format!("{} {shape:?} is missing", source.name)),
            Some(info) if info.dtype != Dtype::F32 => {
                faults.push(format!("{} holds {:?}, only F32 is read", source.name, info.dtype));
            }
            Some(info) if info.shape != shape => {
                faults.push(format!("{} has shape {:?} instead of {shape:?}", source.name, info.shape));
            }
            Some(_) => {}
        }
    }
    let is_beside = |name: &str| {
        contents == Contents::Weights && BESIDE_WEIGHTS.iter().any(|prefix| name.starts_with(prefix))
    };
    let is_ignored = |name: &str| name.ends_with(IGNORED_SUFFIX) || is_beside(name);
    let unexpected = header.offset_keys().into_iter().filter(|name| !is_ignored(name));
    faults.extend(
        unexpected
            .filter(|name| !known.contains(name.as_str()))
            .map(|name| format!("{} is unknown", Shown(&name))),
    );
    faults
}
