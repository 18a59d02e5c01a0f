//! A folder of images: one subfolder per class, JPEG or PNG files in it. Classes are numbered by name.

use super::bad_data;
use super::decode::{decode_image, decoding_bytes};
use super::resize::resizing_bytes;
use crate::error::{Error, Result};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Image files with their classes, sorted by class and name.
#[derive(Debug)]
pub(super) struct ImageFolder {
    pub(super) files: Vec<(PathBuf, i32)>,
    /// Names of the classes, in the order of their numbers.
    pub(super) classes: Vec<String>,
}

impl ImageFolder {
    /// Lists the files; none is opened yet.
    pub(super) fn open(folder: &Path) -> Result<ImageFolder> {
        let classes: Vec<PathBuf> = entries(folder)?.into_iter().filter(|path| path.is_dir()).collect();
        let mut files = Vec::new();
        for (label, class) in (0..).zip(&classes) {
            let before = files.len();
            files.extend(entries(class)?.into_iter().filter(|path| is_image(path)).map(|path| (path, label)));
            if files.len() == before {
                return Err(bad_data(class.display(), "has no .jpg, .jpeg or .png file"));
            }
        }
        if classes.len() < 2 {
            let message = "needs one subfolder of images for each of at least two classes";
            return Err(bad_data(folder.display(), message));
        }
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ImageFolder { files, classes: classes.iter().map(name).collect() })
    }

    /// Memory that making an input of this height and width of the largest image takes. Files are opened and not read
    /// further than their header; those that cannot be read count when they are met.
    pub(super) fn decoding_bytes(&self, shape: (usize, usize)) -> u64 {
        let bytes = |(path, _): &(PathBuf, i32)| {
            let (height, width, decoding) = decoding_bytes(path)?;
            Some(decoding + resizing_bytes((height, width), shape, 3))
        };
        self.files.par_iter().filter_map(bytes).max().unwrap_or(0)
    }

    /// Decodes one image: RGB bytes row by row, with height and width.
    pub(super) fn decode(&self, i: usize) -> Result<(Vec<u8>, usize, usize)> {
        decode_image(&self.files[i].0)
    }
}

/// What is in a folder, sorted by name: the order must not depend on the file system.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let action = || format!("read the folder {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(action()))? {
        paths.push(entry.map_err(Error::io(action()))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn is_image(path: &Path) -> bool {
    let end = path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    matches!(end.as_deref(), Some("jpg" | "jpeg" | "png"))
}
