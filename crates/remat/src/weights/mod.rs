//! Weight files in the safetensors format, exchangeable with PyTorch.
//!
//! In and out: a graph's parameters and buffers, or all its state for a checkpoint, one tensor at a time, so that no
//! second copy is held beside the engine's own. Convolution weights are permuted between our `[out, kh, kw, in]` and PyTorch's
//! `[out, in, kh, kw]` on the way. A file is checked as a whole before the first tensor is read, and a saved file
//! replaces the old one only when it is complete: readers see the one or the other.
//!
//! Our files note a hash of their tensors and a hash of their notes, so that a disk that lies is noticed before what it gives is
//! used ([`WeightFile::verify`]). Files from elsewhere have no such notes and are taken as they are.

use crate::error::{Error, Result};
use crate::files;
use crate::graph::{FileLayout, Graph, Kind, Source, Type};
use crate::hash::{self, Pieces};
use remat_plan::Shown;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The header's own limit in the format's reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Nobody reads more of them.
const SHOWN_FAULTS: usize = 20;

/// PyTorch's count of batches seen by a batch norm, which a fixed momentum makes meaningless.
const IGNORED_SUFFIX: &str = ".num_batches_tracked";

/// The note of the hash of all tensors, as they lie in the file.
const TENSORS: &str = "tensors";
/// The note of the hash of all other notes.
const NOTES: &str = "notes";

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Parameters and buffers. When it is read, the rest of a checkpoint may be beside them.
    Weights,
    /// All state, including the optimizer state: a checkpoint.
    State,
}

/// How the names of state begin that is no weight.
const BESIDE_WEIGHTS: [&str; 2] = ["optimizer.", "accumulated."];

/// The tensors of a file.
fn stored<'g>(graph: &'g Graph, contents: Contents) -> impl Iterator<Item = (&'g Source, &'g Type)> {
    let with_type = |s: &'g Source| (s, &graph.values[s.value]);
    let kept = move |kind: Kind| match contents {
        Contents::Weights => matches!(kind, Kind::Parameter | Kind::Buffer),
        Contents::State => kind.is_state(),
    };
    graph.sources.iter().map(with_type).filter(move |(_, v)| kept(v.kind)).map(|(s, v)| (s, &v.ty))
}

/// A tensor's shape in the file.
fn file_shape(source: &Source, ty: &Type) -> Vec<usize> {
    match (source.file_layout, ty.shape()) {
        (FileLayout::ConvWeight, &[o, h, w, i]) => vec![o, i, h, w],
        (_, shape) => shape.to_vec(),
    }
}

/// Elements that are read or written together.
const CHUNK: usize = 4096;

/// Elements of a tensor that a program reads together where it is not in memory as a whole, at least.
const ROWS_TOGETHER: usize = 1 << 16;

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
fn our_positions(source: &Source, ty: &Type, n: usize) -> impl Iterator<Item = usize> + use<> {
    let (pixels, channels) = pixels_and_channels(source, ty);
    (0..n).map(move |at| {
        let (outer, inner) = (at / (pixels * channels), at % (pixels * channels));
        outer * pixels * channels + inner % pixels * channels + inner / pixels
    })
}

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

/// A hash of all notes but its own, in the order of their names.
fn notes_hash(notes: &BTreeMap<&str, &str>) -> String {
    let others = notes.iter().filter(|note| *note.0 != NOTES);
    let text: String = others.map(|(name, value)| format!("{name}\0{value}\0")).collect();
    shown(hash::bytes(text.as_bytes()))
}

fn shown(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Writes all parameters and buffers of `graph`; `read` gives a source's values in our element order, from an element on,
/// the same ones however often it is asked.
pub fn save(
    graph: &Graph,
    path: &Path,
    read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    save_with(graph, path, Contents::Weights, &BTreeMap::new(), read)
}

/// As [`save`], with more or other contents and with notes. `tensors` and `notes` are notes of ours: see
/// [`WeightFile::verify`].
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
    mut read: impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
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
    let mut text = serde_json::to_vec(&header)?;

    // The header comes first and has the hash of what follows, so tensors are passed over twice.
    let mut hash = Pieces::of(header.data_len() as u64);
    each_piece(graph, contents, &mut read, |bytes| {
        hash.see(bytes);
        Ok(())
    })?;
    let tensors = shown(hash.end());
    let mut notes: BTreeMap<&str, &str> = notes.iter().map(|(name, note)| (*name, note.as_str())).collect();
    notes.insert(TENSORS, &tensors);
    let of_notes = notes_hash(&notes);
    notes.insert(NOTES, &of_notes);
    // Notes go in by hand, in the order of their names: equal states make equal files.
    let comma = if text == b"{}" { "" } else { "," };
    let notes = format!("\"__metadata__\":{}{comma}", serde_json::to_string(&notes)?);
    text.splice(1..1, notes.into_bytes());
    // Tensor data begins at a multiple of eight bytes, as the format asks.
    text.resize(text.len().next_multiple_of(8), b' ');

    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(&text)?;
    each_piece(graph, contents, &mut read, |bytes| file.write_all(bytes))
}

/// Hands over the tensors of a file as their bytes, piece by piece.
fn each_piece(
    graph: &Graph,
    contents: Contents,
    read: &mut impl FnMut(&Source, usize, &mut [f32]) -> Result<()>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, Init};
    use std::collections::HashMap;

    fn small_graph(outputs: usize) -> Graph {
        let mut b = Builder::new("small");
        let conv = Type::f32(&[outputs, 2, 3, 4]).unwrap();
        b.source("conv.weight", Kind::Parameter, conv, Init::Constant(0.0), FileLayout::ConvWeight);
        b.buffer("bn.running_mean", Type::f32(&[5]).unwrap(), Init::Constant(0.0));
        b.source("state", Kind::OptimizerState, Type::scalar(), Init::Constant(0.0), FileLayout::Same);
        b.finish()
    }

    fn counting(graph: &Graph) -> HashMap<String, Vec<f32>> {
        stored(graph, Contents::Weights)
            .map(|(s, ty)| (s.name.clone(), (0..ty.numel()).map(|i| i as f32).collect()))
            .collect()
    }

    fn from(values: &HashMap<String, Vec<f32>>) -> impl FnMut(&Source, usize, &mut [f32]) -> Result<()> {
        |source, first, out| {
            out.copy_from_slice(&values[&source.name][first..][..out.len()]);
            Ok(())
        }
    }

    fn saved(folder: &Path) -> PathBuf {
        let (graph, path) = (small_graph(2), folder.join("small.safetensors"));
        let values = counting(&graph);
        save(&graph, &path, from(&values)).unwrap();
        path
    }

    #[test]
    fn what_is_saved_is_read_back_and_files_hold_pytorch_order() {
        let folder = tempfile::tempdir().unwrap();
        let (graph, path) = (small_graph(2), saved(folder.path()));
        let values = counting(&graph);
        let mut file = WeightFile::open(&graph, &path).unwrap();
        for (source, ty) in stored(&graph, Contents::Weights) {
            let mut out = vec![f32::NAN; ty.numel()];
            file.read(source, ty, 0, &mut out).unwrap();
            assert_eq!(out, values[&source.name], "{}", source.name);
            let row = row_elements(source, ty);
            let mut last = vec![f32::NAN; row];
            file.read(source, ty, ty.numel() - row, &mut last).unwrap();
            assert_eq!(last, values[&source.name][ty.numel() - row..], "the last row of {}", source.name);
            let (mut beyond, mut part) = (vec![0.0; row], vec![0.0; row.div_ceil(2)]);
            assert!(file.read(source, ty, ty.numel(), &mut beyond).is_err());
            assert!(row == 1 || file.read(source, ty, 0, &mut part).is_err());
        }
        let bytes = std::fs::read(&path).unwrap();
        let view = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let conv = view.tensor("conv.weight").unwrap();
        assert_eq!(conv.shape(), [2, 4, 2, 3]);
        // Element [1, 2, 1, 0] of the file is [1, 1, 0, 2] of ours.
        let at = ((4 + 2) * 2 + 1) * 3;
        let expected = (((2 + 1) * 3) * 4 + 2) as f32;
        assert_eq!(conv.data()[at * 4..at * 4 + 4], expected.to_le_bytes());
        assert!(view.tensor("state").is_err(), "optimizer state is no weight");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn every_mismatch_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path());
        let mut b = Builder::extend(small_graph(3), crate::graph::Phase::Forward);
        b.parameter("fc.weight", Type::f32(&[7]).unwrap(), Init::Constant(0.0));
        let mut graph = b.finish();
        graph.sources[1].name = "bn.mean".to_owned();
        let message = WeightFile::open(&graph, &path).unwrap_err().to_string();
        let (_, faults) = message.split_once("does not fit small:\n").expect(&message);
        assert_eq!(
            faults,
            "  conv.weight has shape [2, 4, 2, 3] instead of [3, 4, 2, 3]\n  bn.mean [5] is missing\n  \
             fc.weight [7] is missing\n  bn.running_mean is unknown"
        );
    }

    #[test]
    fn broken_files_are_refused_with_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let graph = small_graph(2);
        let path = saved(folder.path());
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            WeightFile::open(&graph, &path).unwrap_err().to_string()
        };
        for (bytes, message) in [
            (&whole[..whole.len() - 1], "is truncated"),
            (&[&whole[..], &[0]].concat()[..], "has bytes after its end"),
            (&whole[..4], "is too short"),
            (&whole[..20], "is not a safetensors file"),
            (&[0xFF; 64], "is not a safetensors file"),
            (b"\x02\0\0\0\0\0\0\0{]", "is not a safetensors file"),
        ] {
            let error = open(bytes);
            assert!(error.contains(message) && error.contains("small.safetensors"), "{error}");
        }
        let missing = WeightFile::open(&graph, &folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("open ") && missing.contains("none"), "{missing}");
    }

    #[test]
    fn other_element_types_and_batch_counters() {
        let folder = tempfile::tempdir().unwrap();
        let (graph, path) = (small_graph(2), folder.path().join("w"));
        let write = |dtype: Dtype, size: usize| {
            let data = vec![0; 48 * size];
            let mean = vec![0; 20];
            let counter = vec![0; 8];
            let view = |d, shape: &[usize], data| {
                safetensors::tensor::TensorView::new(d, shape.to_vec(), data).unwrap()
            };
            let tensors = [
                ("conv.weight", view(dtype, &[2, 4, 2, 3], &data)),
                ("bn.running_mean", view(Dtype::F32, &[5], &mean)),
                ("bn.num_batches_tracked", view(Dtype::I64, &[], &counter)),
            ];
            std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
        };
        write(Dtype::F32, 4);
        WeightFile::open(&graph, &path).unwrap();
        write(Dtype::F16, 2);
        let message = WeightFile::open(&graph, &path).unwrap_err().to_string();
        assert!(message.contains("conv.weight holds F16, only F32 is read"), "{message}");
    }

    #[test]
    fn a_failed_save_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let graph = small_graph(2);
        let values = counting(&graph);
        // A folder is where the file should go, so the rename fails after everything was written.
        let path = folder.path().join("taken");
        std::fs::create_dir_all(path.join("inside")).unwrap();
        let message = save(&graph, &path, from(&values)).unwrap_err().to_string();
        assert!(message.starts_with("write ") && message.contains("taken"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    }
}
