//! Image files to pixels: PNG and JPEG, as RGB bytes.
//!
//! What a header claims is checked against limits, and its memory asked for, before anything is decoded: a file of a kilobyte
//! can claim more than any machine has.

use super::bad_data;
use super::room::{NoRoom, probe, zeros};
use crate::error::{Error, Result};
use crate::files;
use remat_plan::Bytes;
use std::io::{BufRead as _, BufReader, Cursor, ErrorKind};
use std::path::Path;

/// Pixels of the largest image that is decoded.
const MAX_PIXELS: usize = 1 << 26;

/// Memory for decoding one image, and bytes of the largest file; an image in several scans takes three times as much as
/// another.
const MAX_BYTES: usize = 224 << 20;

/// Why there are no pixels.
enum Failure {
    /// The file is no image, or none of those that are decoded.
    Image(String),
    NoRoom(NoRoom),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Image(why)
    }
}

impl From<NoRoom> for Failure {
    fn from(none: NoRoom) -> Failure {
        Failure::NoRoom(none)
    }
}

/// Decodes a PNG or JPEG file: RGB bytes row by row, with height and width.
pub fn decode_image(path: &Path) -> Result<(Vec<u8>, usize, usize)> {
    let bytes = files::read_regular(path, Bytes(MAX_BYTES as u64)).map_err(|error| match error.kind() {
        // What a folder holds in the place of an image is bad data, and need not end a run.
        ErrorKind::FileTooLarge | ErrorKind::InvalidInput | ErrorKind::IsADirectory => {
            bad_data(path.display(), error.to_string())
        }
        _ => Error::io(format!("read {}", path.display()))(error),
    })?;
    // The beginning says what a file is; its name may lie.
    let decoded = if bytes.starts_with(b"\x89PNG") { decode_png(&bytes) } else { decode_jpeg(bytes) };
    decoded.map_err(|failure| match failure {
        Failure::Image(why) => bad_data(path.display(), format!("cannot be decoded: {why}")),
        Failure::NoRoom(none) => none.during(format!("decode {}", path.display())),
    })
}

/// Height and width of an image file, and the memory that [`decode_image`] takes; `None` where the header cannot be read.
pub(super) fn decoding_bytes(path: &Path) -> Option<(usize, usize, u64)> {
    let mut file = BufReader::new(files::open_regular(path).ok()?);
    let in_file = file.get_ref().metadata().ok()?.len();
    let (height, width, per_pixel) = if file.fill_buf().ok()?.starts_with(b"\x89PNG") {
        let reader = png::Decoder::new(file).read_info().ok()?;
        (reader.info().height as usize, reader.info().width as usize, 4)
    } else {
        let mut decoder = zune_jpeg::JpegDecoder::new(file);
        decoder.decode_headers().ok()?;
        jpeg_size(&decoder.info()?, in_file).ok()?
    };
    check_size(height, width, per_pixel).ok()?;
    Some((height, width, in_file + (per_pixel * height * width) as u64))
}

/// Refuses sizes before anything is allocated for them.
fn check_size(height: usize, width: usize, per_pixel: usize) -> std::result::Result<(), String> {
    let most = MAX_PIXELS.min(MAX_BYTES / per_pixel);
    match height.checked_mul(width) {
        Some(pixels) if pixels <= most => Ok(()),
        _ => Err(format!("it claims {width} × {height} pixels; at most {most} of this kind are decoded")),
    }
}

/// Height, width and bytes per pixel that decoding takes.
fn jpeg_size(
    info: &zune_jpeg::ImageInfo,
    in_file: u64,
) -> std::result::Result<(usize, usize, usize), String> {
    let (height, width) = (usize::from(info.height), usize::from(info.width));
    // A block of 64 pixels takes at least a bit. Four times as many pixels are a claim without an image.
    if (height * width) as u64 > in_file.saturating_mul(4 * 8 * 64) {
        return Err(format!("it claims {width} × {height} pixels, more than {in_file} bytes can hold"));
    }
    // All coefficients of an image that comes in several scans are kept until the last one.
    let per_pixel = if info.sof.is_progressive() { 3 + 6 } else { 3 };
    check_size(height, width, per_pixel)?;
    Ok((height, width, per_pixel))
}

fn decode_png(bytes: &[u8]) -> std::result::Result<(Vec<u8>, usize, usize), Failure> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    check_size(reader.info().height as usize, reader.info().width as usize, 4)?;
    let mut pixels = zeros(reader.output_buffer_size().ok_or_else(|| "it is too large".to_owned())?)?;
    let info = reader.next_frame(&mut pixels).map_err(|e| e.to_string())?;
    pixels.truncate(info.buffer_size());
    let rgb = to_rgb(pixels, info.color_type.samples())?;
    Ok((rgb, info.height as usize, info.width as usize))
}

fn decode_jpeg(bytes: Vec<u8>) -> std::result::Result<(Vec<u8>, usize, usize), Failure> {
    let in_file = bytes.len() as u64;
    let mut decoder = zune_jpeg::JpegDecoder::new(Cursor::new(bytes));
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let info = decoder.info().ok_or_else(|| "it has no header".to_owned())?;
    let (height, width, per_pixel) = jpeg_size(&info, in_file)?;
    probe((per_pixel * height * width) as u64)?;
    let pixels = decoder.decode().map_err(|e| e.to_string())?;
    let samples = pixels.len() / (height * width).max(1);
    Ok((to_rgb(pixels, samples)?, height, width))
}

/// Three bytes per pixel from one (grey), two (grey and opacity), three, or four (opacity is dropped).
fn to_rgb(mut pixels: Vec<u8>, samples: usize) -> std::result::Result<Vec<u8>, Failure> {
    let n_pixels = pixels.len() / samples.max(1);
    match samples {
        1 | 2 => {
            let more = (3 * n_pixels).saturating_sub(pixels.len());
            pixels.try_reserve_exact(more).map_err(|_| NoRoom(Bytes(3 * n_pixels as u64)))?;
            pixels.resize(3 * n_pixels, 0);
            // From the end on, so that nothing is written over before it is read.
            for i in (0..n_pixels).rev() {
                let grey = pixels[i * samples];
                pixels[3 * i..3 * i + 3].fill(grey);
            }
        }
        3 => {}
        4 => {
            (0..n_pixels).for_each(|i| pixels.copy_within(4 * i..4 * i + 3, 3 * i));
            pixels.truncate(3 * n_pixels);
        }
        n => return Err(format!("it has {n} values per pixel").into()),
    }
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_values_becomes_three() {
        let rgb = |pixels: &[u8], samples| to_rgb(pixels.to_vec(), samples).map_err(|_| "none");
        assert_eq!(rgb(&[1, 2, 3], 1).unwrap(), [1, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(rgb(&[1, 9, 2, 9, 3, 9, 4, 9], 2).unwrap(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
        assert_eq!(rgb(&[1, 2, 3, 4, 5, 6], 3).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(rgb(&[1, 2, 3, 9, 4, 5, 6, 9], 4).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(rgb(&[1, 2], 0).is_err() && rgb(&[1; 5], 5).is_err());
    }

    #[test]
    fn a_small_file_that_claims_a_huge_image_is_refused_before_memory_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.png");
        let mut encoder = png::Encoder::new(std::fs::File::create(&path).unwrap(), 200_000, 200_000);
        encoder.set_color(png::ColorType::Rgb);
        // The header and a beginning of data; nobody gets as far as reading it.
        encoder.write_header().unwrap().write_chunk(png::chunk::IDAT, &[0x78, 0x9C, 3, 0]).unwrap();
        let message = decode_image(&path).unwrap_err().to_string();
        assert!(message.contains("bomb.png") && message.contains("200000 × 200000 pixels"), "{message}");

        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/red.jpg");
        let mut bytes = std::fs::read(fixture).unwrap();
        // The frame header (SOF0) has height and width two bytes each, after its length and precision.
        let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("a baseline picture");
        bytes[frame + 5..frame + 9].copy_from_slice(&[0x3F, 0xFF, 0x3F, 0xFF]);
        let path = folder.path().join("bomb.jpg");
        std::fs::write(&path, &bytes).unwrap();
        let message = decode_image(&path).unwrap_err().to_string();
        assert!(message.contains("bomb.jpg") && message.contains("16383 × 16383 pixels"), "{message}");
        // As large a file as it likes: an image in several scans takes more memory than another of its size.
        bytes[frame..frame + 9].copy_from_slice(&[0xFF, 0xC2, 0, 17, 8, 0x20, 0, 0x20, 0]);
        bytes.resize(1 << 20, 0);
        std::fs::write(&path, bytes).unwrap();
        let message = decode_image(&path).unwrap_err().to_string();
        assert!(message.contains("of this kind are decoded"), "{message}");
        // A file with a hole takes no space, however long it says it is.
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let message = decode_image(&path).unwrap_err().to_string();
        assert!(message.contains("bomb.jpg: is longer than 224.00 MiB"), "{message}");
    }
}
