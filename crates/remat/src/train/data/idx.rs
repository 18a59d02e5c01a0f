//! IDX files, the format of MNIST: big-endian header with element type and extents, then bytes. Plain or gzipped.

use super::bad_data;
use crate::error::{Error, Result};
use crate::files;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Grey images and their labels, as bytes in memory: as large as the unpacked files.
#[derive(Debug)]
pub(super) struct IdxImages {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) pixels: Vec<u8>,
    pub(super) labels: Vec<u8>,
}

impl IdxImages {
    /// Reads the images, and the labels from the file beside them whose name differs as MNIST's names do.
    pub(super) fn open(images: &Path) -> Result<IdxImages> {
        let labels = labels_path(images).ok_or_else(|| {
            let message = "is not a data set of images: give a folder with one subfolder of images per class, a folder \
                           with IDX files, or an IDX file with `images-idx3` in its name";
            bad_data(images.display(), message)
        })?;
        let (extents, pixels) = read(images)?;
        let [n, height, width] = extents[..] else {
            let message = format!("has {} dimensions instead of 3: image, row, column", extents.len());
            return Err(bad_data(images.display(), message));
        };
        let (label_extents, label_bytes) = read(&labels)?;
        if label_extents != [n] {
            let message = format!("has extents {label_extents:?}, but there are {n} images");
            return Err(bad_data(labels.display(), message));
        }
        if n == 0 || height == 0 || width == 0 {
            return Err(bad_data(images.display(), "holds no images"));
        }
        Ok(IdxImages { height, width, pixels, labels: label_bytes })
    }

    /// The bytes of one image.
    pub(super) fn image(&self, i: usize) -> &[u8] {
        let size = self.height * self.width;
        &self.pixels[i * size..(i + 1) * size]
    }
}

/// Whether a file name looks like MNIST's images.
pub(super) fn is_images(name: &str) -> bool {
    name.contains("images-idx3") || name.contains("images.idx3")
}

fn labels_path(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    let label_name = name.replace("images-idx3", "labels-idx1").replace("images.idx3", "labels.idx1");
    let beside = |name: &str| images.with_file_name(name);
    // One of the two may be packed and the other not.
    let other = match label_name.strip_suffix(".gz") {
        Some(plain) => beside(plain),
        None => beside(&format!("{label_name}.gz")),
    };
    let same = beside(&label_name);
    (label_name != name).then(|| if same.exists() || !other.exists() { same } else { other })
}

/// Bytes of the largest file that is unpacked: a packed file of a megabyte can hold a thousand.
const MAX_BYTES: u64 = 1 << 32;

/// Extents and bytes of an IDX file of bytes. What the header does not announce is never kept in memory.
fn read(path: &Path) -> Result<(Vec<usize>, Vec<u8>)> {
    let file = files::open_regular(path).map_err(Error::io(format!("read {}", path.display())))?;
    let file = BufReader::new(file);
    if path.extension().is_some_and(|end| end == "gz") {
        read_from(path, flate2::bufread::GzDecoder::new(file))
    } else {
        read_from(path, file)
    }
}

fn read_from(path: &Path, mut file: impl Read) -> Result<(Vec<usize>, Vec<u8>)> {
    let broken = |message: String| bad_data(path.display(), message);
    let mut part = |n_bytes: u64| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = file.by_ref().take(n_bytes).read_to_end(&mut bytes);
        read.map_err(Error::io(format!("read {}", path.display())))?;
        Ok(bytes)
    };
    let &[0, 0, kind, n_dimensions] = &part(4)?[..] else {
        return Err(broken("is not an IDX file: it does not begin with two zero bytes".to_owned()));
    };
    if kind != 8 {
        return Err(broken(format!("holds elements of type {kind:#04x}; only bytes (0x08) are read")));
    }
    let header = part(4 * u64::from(n_dimensions))?;
    if header.len() != 4 * usize::from(n_dimensions) {
        return Err(broken("ends inside its header".to_owned()));
    }
    let extent = |e: &[u8]| u32::from_be_bytes([e[0], e[1], e[2], e[3]]) as usize;
    let extents: Vec<usize> = header.chunks_exact(4).map(extent).collect();
    let size = extents.iter().try_fold(1u64, |size, &e| size.checked_mul(e as u64));
    let Some(size) = size.filter(|&size| size <= MAX_BYTES) else {
        return Err(broken(format!("claims the product of {extents:?} bytes; at most {MAX_BYTES} are read")));
    };
    let bytes = part(size)?;
    let n_more = part(1)?.len();
    if n_more > 0 || bytes.len() as u64 != size {
        let held = if n_more > 0 { "more".to_owned() } else { bytes.len().to_string() };
        return Err(broken(format!(
            "has {held} bytes after its header instead of the product of {extents:?}"
        )));
    }
    Ok((extents, bytes))
}
