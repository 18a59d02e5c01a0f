//! IDX files, the format of MNIST: big-endian header with element type and extents, then bytes. Plain or gzipped.

use super::bad_data;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read as _;
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

/// Extents and bytes of an IDX file of bytes.
fn read(path: &Path) -> Result<(Vec<usize>, Vec<u8>)> {
    let action = || format!("read {}", path.display());
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(Error::io(action()))?;
    if path.extension().is_some_and(|end| end == "gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).map_err(Error::io(action()))?;
    } else {
        file.read_to_end(&mut bytes).map_err(Error::io(action()))?;
    }
    let broken = |message: String| bad_data(path.display(), message);
    let &[0, 0, kind, n_dimensions, ..] = &bytes[..] else {
        return Err(broken("is not an IDX file: it does not begin with two zero bytes".to_owned()));
    };
    if kind != 8 {
        return Err(broken(format!("holds elements of type {kind:#04x}; only bytes (0x08) are read")));
    }
    let header = 4 + 4 * usize::from(n_dimensions);
    let Some(extents) = bytes.get(4..header) else {
        return Err(broken("ends inside its header".to_owned()));
    };
    let extent = |e: &[u8]| u32::from_be_bytes([e[0], e[1], e[2], e[3]]) as usize;
    let extents: Vec<usize> = extents.chunks_exact(4).map(extent).collect();
    let size = extents.iter().try_fold(1usize, |size, &e| size.checked_mul(e));
    let held = bytes.len() - header;
    if size != Some(held) {
        return Err(broken(format!(
            "has {held} bytes after its header instead of the product of {extents:?}"
        )));
    }
    bytes.drain(..header);
    Ok((extents, bytes))
}
