//! A folder of images: one subfolder per class, JPEG or PNG files in it. Classes are numbered by name.

use super::bad_data;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Image files with their classes, sorted by class and name.
#[derive(Debug)]
pub(super) struct ImageFolder {
    pub(super) files: Vec<(PathBuf, i32)>,
    pub(super) n_classes: usize,
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
        Ok(ImageFolder { files, n_classes: classes.len() })
    }

    /// Decodes one image: RGB bytes row by row, with height and width.
    pub(super) fn decode(&self, i: usize) -> Result<(Vec<u8>, usize, usize)> {
        let path = &self.files[i].0;
        let bytes = std::fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
        // The beginning says what a file is; its name may lie.
        let decoded = if bytes.starts_with(b"\x89PNG") { decode_png(&bytes) } else { decode_jpeg(bytes) };
        decoded.map_err(|message| bad_data(path.display(), format!("cannot be decoded: {message}")))
    }
}

fn decode_png(bytes: &[u8]) -> std::result::Result<(Vec<u8>, usize, usize), String> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let size = reader.output_buffer_size().ok_or("it is too large")?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(|e| e.to_string())?;
    pixels.truncate(info.buffer_size());
    let rgb = to_rgb(&pixels, info.color_type.samples())?;
    Ok((rgb, info.height as usize, info.width as usize))
}

fn decode_jpeg(bytes: Vec<u8>) -> std::result::Result<(Vec<u8>, usize, usize), String> {
    let mut decoder = zune_jpeg::JpegDecoder::new(std::io::Cursor::new(bytes));
    let pixels = decoder.decode().map_err(|e| e.to_string())?;
    let info = decoder.info().ok_or("it has no header")?;
    let (height, width) = (usize::from(info.height), usize::from(info.width));
    Ok((to_rgb(&pixels, pixels.len() / (height * width).max(1))?, height, width))
}

/// Three bytes per pixel from one (grey), two (grey and opacity), three, or four (opacity is dropped).
fn to_rgb(pixels: &[u8], samples: usize) -> std::result::Result<Vec<u8>, String> {
    match samples {
        1 | 2 => Ok(pixels.chunks_exact(samples).flat_map(|pixel| [pixel[0]; 3]).collect()),
        3 | 4 => Ok(pixels.chunks_exact(samples).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()),
        n => Err(format!("it has {n} values per pixel")),
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
